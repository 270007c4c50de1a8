//! `bellows bench notify`.

use std::process::ExitCode;

use bellows_lab::notify::{self, Options};
use bellows_lab::audience::Audience;
use bellows_lab::workers;
use clap::Args;

use crate::failure::Failure;
use crate::measuring::{failure, print, watched};
use crate::subcommand::{Execute, Program};

/// Measure what notifying a virtual machine costs, and touching its memory first
///
/// Cases: clocks of the thread that notifies, per call, in four ways. write: write(2) to the eventfd, the reference;
/// it can wait for as long as the peer likes. poll-write: poll(2) for room, then write(2). direct: as the app
/// vhost-user does it, by the kernel through io_uring. helper: as the app does it without io_uring: another thread
/// writes. The peer sleeps on another processor, in poll, epoll or read; or nobody waits (idle). Beside the clocks
/// stand their ratio to those of write in the same process, and the time from the start of the call until the peer
/// runs.
///
/// fault-4k and fault-2m: clocks of the first store to a page of the peer's memory, of 4 KiB and of 2 MiB (hugetlbfs).
/// Nobody has touched the page (untouched), or the peer has (touched). Cases that the machine cannot measure are named
/// below the table, with the reason.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Notifications of each kind per process, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=60_000))]
    rounds: u16,
    /// Processor to measure on [default: last allowed]; the peer has another
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
    cpu: Option<usize>,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.measure {
            workers::answer(notify::measure)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            processes: self.processes.into(),
            rounds: self.rounds.into(),
            cpu: self.cpu,
            filter: self.case.clone(),
        };
        let run = |audience: &mut dyn Audience| notify::run(&options, &["bench", "notify", "--measure"], audience);
        let report = watched(self.json, run).map_err(failure)?;
        print(&report, self.json, notify::text)
    }
}
