//! The benchmarks, one file or folder each, with options, measurement and report.

pub mod appbench;
pub mod apps;
pub mod blit;
pub mod breathsim;
pub mod crossing;
pub mod day;
pub mod engine;
pub mod esp;
pub mod fib;
pub mod filter;
pub mod floods;
pub mod history;
pub mod l2vpn;
pub mod neighbours;
pub mod notify;
pub mod prefetch;
pub mod reload;
pub mod router;
pub mod scrape;
pub mod vring;
pub mod workers;

use bellows_config::Registry;
use clap::Args;

use crate::bench::{Benchmark, RefusedOptions, RunWorker, benchmarks};
use crate::beside::disturb;
use crate::cases::Cases;

benchmarks! {
    /// The benchmarks of `bellows bench`.
    pub enum BenchCommand {
        Apps(apps),
        Blit(blit),
        Crossing(crossing),
        Day(day),
        Engine(engine),
        Esp(esp),
        Fib(fib),
        Filter(filter),
        Floods(floods),
        History(history),
        L2vpn(l2vpn),
        Neighbours(neighbours),
        Notify(notify),
        Prefetch(prefetch),
        Reload(reload),
        Router(router),
        Scrape(scrape),
        Vring(vring),
        Workers(workers),
    }
    apart {
        Appbench(appbench),
        Breathsim(breathsim),
    }
}

/// A benchmark of the list.
pub struct BenchmarkEntry {
    /// Its name.
    pub name: &'static str,
    /// Whether it has its own command instead of a subcommand of `bench`.
    pub is_apart: bool,
    /// See [`Benchmark::CASES`].
    pub cases: Cases,
    /// See [`Benchmark::QUICK`].
    pub quick: &'static str,
    /// See [`Benchmark::MORE`].
    pub more: &'static [&'static str],
    /// See [`Benchmark::RARE`].
    pub rare: &'static [&'static str],
    /// See [`Benchmark::REFUSED`].
    pub refused: &'static [RefusedOptions],
    /// The clap definition, for the help.
    pub command: fn() -> clap::Command,
    work: RunWorker,
}

impl BenchmarkEntry {
    const fn of<B: Benchmark>(is_apart: bool) -> BenchmarkEntry {
        BenchmarkEntry {
            name: B::NAME,
            is_apart,
            cases: B::CASES,
            quick: B::QUICK,
            more: B::MORE,
            rare: B::RARE,
            refused: B::REFUSED,
            command: || B::augment_args(clap::Command::new("bench")),
            work: B::WORK,
        }
    }

    /// The words of its command, without the program's name.
    pub fn words(&self) -> Vec<&'static str> {
        if self.is_apart { vec![self.name] } else { vec!["bench", self.name] }
    }

    /// The first line of its help.
    pub fn about(&self) -> String {
        (self.command)().get_about().map(ToString::to_string).unwrap_or_default()
    }
}

/// The arguments of a worker.
#[derive(Clone, Debug, Args)]
pub struct WorkerArguments {
    /// The benchmark
    name: String,
}

/// Runs a worker of a benchmark, or a disturbance.
///
/// # Errors
/// When the task cannot be read, an answer cannot be written, or no benchmark has that name.
pub fn work(name: &str, registry: &Registry) -> Result<(), std::io::Error> {
    match ALL.iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.work)(registry),
        None if name == "beside" => crate::workers::take_part(disturb),
        None => Err(std::io::Error::other(format!("there is no benchmark `{name}` to work for"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_says_what_it_measures() {
        for entry in ALL {
            let about = entry.about();
            assert!(!about.is_empty() && !about.ends_with('.'), "{}: {about}", entry.name);
            assert!(!entry.quick.is_empty() && !entry.refused.is_empty(), "{}", entry.name);
        }
        assert!(work("nothing", &bellows_apps::registry()).is_err());
    }
}
