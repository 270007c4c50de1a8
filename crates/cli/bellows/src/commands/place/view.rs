//! Placements as tables and as JSON.

use std::path::PathBuf;
use std::time::Duration;

use bellows_inspect::crossings::{CrossingCost, CrossingSource, PairCost};
use bellows_inspect::placing::{Load, MIN_GAIN, PlacementPlan};
use bellows_inspect::reports::Subject;
use bellows_inspect::text::sanitize;
use bellows_sys::cpu;
use schemars::JsonSchema;
use serde::Serialize;

use super::processors::{MachinePort, PortReport};
use crate::text::{Align, Table, UNKNOWN, figure, nanos, packet_rate, percent, span};

/// The present placement, and the proposed one.
#[derive(Debug)]
pub struct PlacementView {
    pub network: Subject,
    pub pid: u32,
    pub seconds: f64,
    pub ticks_per_second: u64,
    pub packets_per_second: f64,
    pub crossing: CrossingCost,
    pub idle_breaths: Option<f64>,
    pub ports: Vec<MachinePort>,
    pub today: PlacementPlan,
    pub proposed: PlacementPlan,
    pub is_exact: bool,
}

fn processor(load: &Load) -> String {
    load.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string())
}

/// A proposal as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Proposal", extend("includes" = ["Network"]))]
pub struct Proposal<'v> {
    #[serde(flatten)]
    network: &'v Subject,
    /// The measured time.
    seconds: f64,
    /// Clocks in a second.
    ticks_per_second: u64,
    /// Through the busiest link.
    packets_per_second: f64,
    /// The share of breaths without packets, from 0 to 1; null without breaths.
    idle_breaths: Option<f64>,
    /// The cost of a packet that crosses from worker to worker.
    crossing: &'v CrossingCost,
    /// Apps at interfaces of the kernel.
    ports: Vec<PortReport<'v>>,
    /// The present placement.
    today: &'v PlacementPlan,
    /// The proposed placement.
    proposed: &'v PlacementPlan,
    /// Whether all placements were tried.
    exact: bool,
    /// Sentences.
    warnings: &'v [String],
    /// With `--write`, the files that were changed; otherwise empty.
    written: &'v [PathBuf],
}

impl PlacementView {
    pub fn report<'v>(&'v self, warnings: &'v [String], written: &'v [PathBuf]) -> Proposal<'v> {
        Proposal {
            network: &self.network,
            seconds: self.seconds,
            ticks_per_second: self.ticks_per_second,
            packets_per_second: self.packets_per_second,
            idle_breaths: self.idle_breaths,
            crossing: &self.crossing,
            ports: self.ports.iter().map(MachinePort::report).collect(),
            today: &self.today,
            proposed: &self.proposed,
            exact: self.is_exact,
            warnings,
            written,
        }
    }

    pub fn render(&self, warnings: &[String], rich: bool) -> String {
        let Subject { name, .. } = &self.network;
        let time = span(Duration::from_secs_f64(self.seconds));
        let mut text = format!(
            "{name} (process {}): measured for {time}, {} through the busiest link\n",
            self.pid,
            packet_rate(self.packets_per_second)
        );
        text += &crossing(&self.crossing);
        text.extend(self.ports.iter().map(port));
        text += &format!("\n{}\n", self.table().render(rich));
        text += &summary("today", &self.today);
        text += &summary("proposed", &self.proposed);
        if !self.is_better() {
            text += "The present placement is as good, within what can be measured.\n";
        }
        if !self.is_exact {
            text += "There are too many apps to try all placements, so a better one may exist.\n";
        }
        let warnings = warnings.iter().map(|warning| format!("warning: {warning}\n"));
        text + &sanitize(&warnings.collect::<String>())
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("PLACEMENT", Align::Left),
            ("WORKER", Align::Left),
            ("CPU", Align::Right),
            ("CLOCKS/PKT", Align::Right),
            ("LOAD", Align::Right),
            ("APPS", Align::Left),
        ]);
        for (name, plan) in [("today", &self.today), ("proposed", &self.proposed)] {
            for (at, load) in plan.workers.iter().enumerate() {
                table.row([
                    if at == 0 { name.to_owned() } else { String::new() },
                    load.name.clone(),
                    processor(load),
                    figure(load.clocks_per_packet),
                    percent(load.clocks_per_packet / plan.bottleneck().max(f64::MIN_POSITIVE)),
                    load.apps.join(", "),
                ]);
            }
        }
        table
    }

    /// Whether the proposal is better than the present placement, by more than can be measured.
    fn is_better(&self) -> bool {
        let [today, proposed] = [&self.today, &self.proposed].map(PlacementPlan::bottleneck);
        proposed < today * (1.0 - MIN_GAIN)
    }

    /// What was written, and what to do next.
    pub fn next(&self, written: &[PathBuf]) -> String {
        let name = &self.network.name;
        if written.is_empty() {
            return "the network file has this placement already\n".to_owned();
        }
        let files: Vec<String> = written.iter().map(|file| file.display().to_string()).collect();
        format!(
            "written to {}; `bellows reload {name}` puts it into effect, `bellows place {name} --check` then compares\n",
            files.join(", ")
        )
    }
}

/// A line about the cost of a crossing.
fn crossing(cost: &CrossingCost) -> String {
    let pair = |pair: &PairCost| {
        let latency = nanos(pair.latency_ns as u64);
        format!("the processors {} and {} (a packet alone takes {latency})", pair.sender, pair.receiver)
    };
    let source = match cost.source {
        CrossingSource::Network => "as measured in this network".to_owned(),
        CrossingSource::Processors => {
            format!("measured between {}", cost.pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        CrossingSource::Assumed => {
            let why = cost.why_assumed.as_deref().unwrap_or("it is not measured");
            format!("assumed: {why}; see docs/reading-the-numbers.md")
        }
    };
    let (send, receive) = (figure(cost.send), figure(cost.receive));
    sanitize(&format!(
        "a crossing takes {send} clocks a packet from the sender's worker and {receive} from the receiver's, {source}\n"
    ))
}

/// A line about a port.
fn port(port: &MachinePort) -> String {
    let MachinePort { app, interface, handlers } = port;
    let known = match handlers {
        Ok((processors, source)) => {
            format!("packets arrive on the processors {}, by {source}", cpu::ranges(processors))
        }
        Err(why) => format!("no processor is known: {why}"),
    };
    sanitize(&format!("port `{app}` at {interface}: {known}\n"))
}

/// A line about a placement.
fn summary(name: &str, plan: &PlacementPlan) -> String {
    let crossing = match plan.crossing_links.is_empty() {
        true => "no packet crosses".to_owned(),
        false => {
            format!("{} crossings a packet ({})", figure(plan.crossings_per_packet), plan.crossing_links.join(", "))
        }
    };
    let rate = packet_rate(plan.packets_per_second);
    sanitize(&format!(
        "{name}: {} clocks a packet on the busiest worker, at most {rate}; {crossing}\n",
        figure(plan.bottleneck())
    ))
}

/// An expectation beside what is measured.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(title = "Comparison of placements", extend("includes" = ["Network"]))]
pub struct PlacementComparison {
    #[serde(flatten)]
    pub network: Subject,
    /// The measured time.
    pub seconds: f64,
    /// Through the busiest link.
    pub packets_per_second: f64,
    /// The placement as it was written.
    pub expected: PlacementPlan,
    /// The placement as it was measured.
    pub measured: PlacementPlan,
}

impl PlacementComparison {
    pub fn render(&self, rich: bool) -> String {
        let mut table = Table::new(&[
            ("WORKER", Align::Left),
            ("CPU", Align::Right),
            ("EXPECTED", Align::Right),
            ("MEASURED", Align::Right),
            ("RATIO", Align::Right),
            ("APPS", Align::Left),
        ]);
        for expected in &self.expected.workers {
            let measured = self.measured.workers.iter().find(|load| load.name == expected.name);
            let ratio = measured.map(|load| load.clocks_per_packet / expected.clocks_per_packet);
            table.row([
                expected.name.clone(),
                measured.map_or_else(|| UNKNOWN.to_owned(), processor),
                figure(expected.clocks_per_packet),
                measured.map_or_else(|| UNKNOWN.to_owned(), |load| figure(load.clocks_per_packet)),
                ratio.filter(|ratio| ratio.is_finite()).map_or_else(|| UNKNOWN.to_owned(), figure),
                expected.apps.join(", "),
            ]);
        }
        let time = span(Duration::from_secs_f64(self.seconds));
        format!(
            "{}: clocks of each worker for each packet of the busiest link, expected when the placement was written, \
             and measured for {time}\n\n{}\nexpected: at most {}; measured: at most {} by these clocks, {} through the \
             busiest link\n",
            self.network.name,
            table.render(rich),
            packet_rate(self.expected.packets_per_second),
            packet_rate(self.measured.packets_per_second),
            packet_rate(self.packets_per_second)
        )
    }
}

#[cfg(test)]
mod tests {
    use bellows_inspect::crossings::CrossingMeter;
    use bellows_inspect::networks::State;
    use serde_json::json;

    use super::*;

    fn plan(workers: &[(&str, Option<usize>, f64, &str)], crossing: &[&str]) -> PlacementPlan {
        let load = |&(name, cpu, clocks_per_packet, app): &(&str, Option<usize>, f64, &str)| Load {
            name: name.to_owned(),
            cpu,
            apps: vec![app.to_owned()],
            clocks_per_packet,
        };
        let mut plan = PlacementPlan { workers: workers.iter().map(load).collect(), ..PlacementPlan::default() };
        plan.crossing_links = crossing.iter().map(|link| (*link).to_owned()).collect();
        plan.crossings_per_packet = crossing.len() as f64;
        plan.packets_per_second = 1e9 / plan.bottleneck();
        plan
    }

    fn network() -> Subject {
        Subject { name: "router".to_owned(), user: "ada".to_owned(), state: State::Running }
    }

    fn view() -> PlacementView {
        PlacementView {
            network: network(),
            pid: 7,
            seconds: 2.0,
            ticks_per_second: 1_000_000_000,
            packets_per_second: 1e6,
            crossing: CrossingCost::assumed("it is a test"),
            idle_breaths: None,
            ports: vec![
                MachinePort { app: "a".into(), interface: "eth0".into(), handlers: Ok((vec![1], "a test".to_owned())) },
                MachinePort {
                    app: "b".into(),
                    interface: "veth0".into(),
                    handlers: Err("it has no device".to_owned()),
                },
            ],
            today: plan(&[("main", None, 500.0, "a, b")], &[]),
            proposed: plan(&[("main", None, 300.0, "a"), ("worker-1", Some(1), 240.0, "b")], &["a.o -> b.i"]),
            is_exact: true,
        }
    }

    #[test]
    fn both_placements_are_shown() {
        let text = view().render(&["it is late".to_owned()], false);
        let expected = "\
router (process 7): measured for 2.00 s, 1.00 Mpps through the busiest link
a crossing takes 20.0 clocks a packet from the sender's worker and 3.00 from the receiver's, assumed: it is a test; \
see docs/reading-the-numbers.md
port `a` at eth0: packets arrive on the processors 1, by a test
port `b` at veth0: no processor is known: it has no device

PLACEMENT  WORKER    CPU  CLOCKS/PKT     LOAD  APPS
today      main      any         500  100.0 %  a, b
proposed   main      any         300  100.0 %  a
           worker-1    1         240   80.0 %  b

today: 500 clocks a packet on the busiest worker, at most 2.00 Mpps; no packet crosses
proposed: 300 clocks a packet on the busiest worker, at most 3.33 Mpps; 1.00 crossings a packet (a.o -> b.i)
warning: it is late
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_source_of_the_cost_of_a_crossing_is_shown() {
        let in_network = PlacementView { crossing: CrossingCost::in_network(7.0, 2.0), ..view() };
        let text = in_network.render(&[], false);
        assert!(text.contains("from the sender's worker and 2.00 from the receiver's, as measured in this"), "{text}");
        let mut meter = CrossingMeter::new(|sender, receiver| {
            Ok(PairCost { sender, receiver, packets_per_vector: 128, send: 41.0, receive: 1.5, latency_ns: 210.4 })
        });
        let measured = PlacementView { crossing: meter.between(&[([0, 3], 9)]), ..view() };
        let text = measured.render(&[], false);
        let expected = "a crossing takes 41.0 clocks a packet from the sender's worker and 1.50 from the receiver's, \
                        measured between the processors 0 and 3 (a packet alone takes 210 ns)\n";
        assert!(text.contains(expected), "{text}");
        let proposal = json!(measured.report(&[], &[]));
        assert_eq!(proposal["crossing"]["source"], "processors", "{proposal:#}");
        assert_eq!(proposal["crossing"]["pairs"][0]["receiver"], 3, "{proposal:#}");
        let assumed = json!(view().report(&[], &[]));
        assert_eq!(assumed["crossing"]["why_assumed"], "it is a test", "{assumed:#}");
        assert_eq!(assumed["crossing"]["measured"], false, "{assumed:#}");
    }

    #[test]
    fn a_port_whose_processors_are_unknown_has_none_in_json() {
        let proposal = json!(view().report(&["it is late".to_owned()], &[]));
        assert_eq!(proposal["ports"][0]["processors"], json!([1]), "{proposal:#}");
        assert!(proposal["ports"][1]["processors"].is_null(), "{proposal:#}");
    }

    #[test]
    fn a_proposal_that_gains_nothing_says_so() {
        let same = PlacementView { proposed: view().today, is_exact: false, ..view() };
        let text = same.render(&[], false);
        assert!(text.contains("The present placement is as good") && text.contains("too many apps"), "{text}");
        assert!(same.next(&[]).contains("already"));
    }

    #[test]
    fn expectation_and_measurement_are_side_by_side() {
        let measured = plan(&[("main", Some(0), 330.0, "a"), ("other", None, 1.0, "c")], &[]);
        let comparison = PlacementComparison {
            network: network(),
            seconds: 1.0,
            packets_per_second: 1e6,
            expected: view().proposed,
            measured,
        };
        let text = comparison.render(false);
        assert!(text.contains("main        0       300       330   1.10  a\n"), "{text}");
        assert!(text.contains("worker-1    –       240         –      –  b\n"), "{text}");
        assert!(text.ends_with("expected: at most 3.33 Mpps; measured: at most 3.03 Mpps by these clocks, 1.00 Mpps through the busiest link\n"), "{text}");
        assert_eq!(json!(comparison)["expected"]["workers"][1]["cpu"], 1);
    }
}
