//! `bellows show run --advise`: apps that wait for the data of their packets.

use std::io::BufRead;
use std::time::Duration;

use bellows_engine::{LookAhead, TrialResult};
use bellows_inspect::control::{Connection, OBSTACLE_TIMEOUT, Reply, Request, TrialEnd, TrialLine};
use bellows_inspect::text::{foreign_json, sanitize};
use bellows_observe::RuntimeDir;
use schemars::JsonSchema;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::text::{Align, Table, count, figure, percent, plural, span};
use crate::watch::{Status, catch_signals, on_signal};

/// What a trial of look-ahead found.
pub struct Advice {
    /// How long the trial was to take.
    duration: Duration,
    end: TrialEnd,
    results: Vec<TrialResult>,
}

/// The result of a trial as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Advice")]
pub struct AdviceReport<'a> {
    /// How long the trial was to take.
    seconds: f64,
    /// Why it ended.
    end: TrialEnd,
    /// What follows, in sentences.
    advice: Vec<String>,
    /// Each app that had calls with at least 8 packets in the trial.
    apps: &'a [TrialResult],
}

impl Advice {
    /// Has a running network try look-ahead for some time. Ctrl-C ends the trial early.
    pub fn ask(runtime_dir: &RuntimeDir, duration: Duration) -> Result<Advice, CommandError> {
        let signals = catch_signals()?;
        let request = Request::LookAhead { seconds: duration.as_secs_f64() };
        let (reply, mut connection) = Connection::open(runtime_dir, &request)?;
        if reply != Reply::Trying {
            return Err(CommandError::Failed(format!("unexpected reply: {reply:?}")));
        }
        on_signal(signals, connection.hangup()?);
        let mut status = Status::on_terminal();
        // The other side ends the trial when the time is over. If it does not, it hangs.
        let stream = connection.stream(Some(duration.saturating_add(OBSTACLE_TIMEOUT)));
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).is_err() || !line.ends_with('\n') {
                let why = connection.given_up().unwrap_or("the network has ended").to_owned();
                return Err(CommandError::Failed(format!("the trial of look-ahead has no result: {why}")));
            }
            match foreign_json(line.as_bytes()) {
                Ok(TrialLine::Progress { calls }) => {
                    status.update(|| {
                        format!("trying look-ahead for {}: {}", span(duration), plural(calls as u64, "call"))
                    });
                }
                Ok(TrialLine::End { why, results }) => return Ok(Advice { duration, end: why, results }),
                Err(error) => return Err(CommandError::Failed(format!("the reply is not part of a trial: {error}"))),
            }
        }
    }

    pub fn report(&self) -> AdviceReport<'_> {
        AdviceReport {
            seconds: self.duration.as_secs_f64(),
            end: self.end,
            advice: self.sentences(),
            apps: &self.results,
        }
    }

    /// The table of apps, and what follows from it.
    pub fn render(&self, rich: bool) -> String {
        let calls: usize = self.results.iter().flat_map(|result| result.calls).sum();
        let early = match self.end {
            TrialEnd::Time => "",
            TrialEnd::Requested => "; ended early",
            TrialEnd::Over => "; ended early, because the network was reloaded or has ended",
        };
        let mut text =
            format!("Trial of look-ahead for {}, {}{early}\n", span(self.duration), plural(calls as u64, "call"));
        if !self.results.is_empty() {
            text += &format!("\n{}\n", self.table().render(rich));
        }
        self.sentences().into_iter().for_each(|sentence| text += &format!("{}\n", sanitize(&sentence)));
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("NAME", Align::Left),
            ("CALLS", Align::Right),
            ("PKTS/CALL", Align::Right),
            ("CLOCKS/PKT", Align::Right),
            ("PREFETCHES", Align::Right),
            ("AFTER THEM", Align::Right),
            ("SAVED", Align::Right),
            ("LOOK-AHEAD", Align::Left),
        ]);
        for result in &self.results {
            table.row([
                result.app.clone(),
                count(result.calls.iter().sum::<usize>() as u64),
                figure(result.packets_per_call),
                figure(result.clocks),
                figure(result.fetch),
                figure(result.clocks_after),
                percent(result.saved.max(0.0)),
                match result.verdict {
                    LookAhead::Unknown => "too few calls",
                    LookAhead::Sufficient => "sufficient",
                    LookAhead::Missing => "missing",
                }
                .to_owned(),
            ]);
        }
        table
    }

    /// What to do.
    fn sentences(&self) -> Vec<String> {
        let missing = self.results.iter().filter(|result| result.verdict == LookAhead::Missing);
        let mut sentences: Vec<String> = missing.map(advice).collect();
        let judged = self.results.iter().filter(|result| result.is_known()).count();
        if sentences.is_empty() && judged > 0 {
            sentences.push("No app waits for data of its packets that it could prefetch.".to_owned());
        }
        if judged < self.results.len() {
            sentences.push("Apps with too few calls of at least 8 packets were not judged: try for longer.".to_owned());
        }
        if self.results.is_empty() {
            sentences.push("No app had a call of at least 8 packets.".to_owned());
        }
        sentences.push("The trial covers the first cache line of packets, not tables that apps look up.".to_owned());
        sentences
    }
}

fn advice(result: &TrialResult) -> String {
    let TrialResult { app, clocks, fetch, clocks_after, saved, .. } = result;
    format!(
        "`{app}` waits for the data of its packets: a packet costs {} clocks, and {} if it is prefetched first ({} for \
         that), {} less. Set `prefetch` in its table, or a longer one.",
        figure(*clocks),
        figure(fetch + clocks_after),
        figure(*fetch),
        percent(*saved),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(app: &str, verdict: LookAhead) -> TrialResult {
        TrialResult {
            app: app.to_owned(),
            calls: [600, 634],
            packets_per_call: 128.0,
            clocks: 60.0,
            fetch: 12.0,
            clocks_after: 18.0,
            saved: 0.5,
            p: 1e-30,
            verdict,
        }
    }

    fn advice(end: TrialEnd, results: Vec<TrialResult>) -> Advice {
        Advice { duration: Duration::from_secs(5), end, results }
    }

    #[test]
    fn an_app_that_waits_is_named_with_its_clocks_and_the_remedy() {
        let results = vec![result("input", LookAhead::Missing), result("lookup", LookAhead::Sufficient)];
        let text = advice(TrialEnd::Time, results).render(false);
        for wanted in
            ["Trial of look-ahead for 5.00 s, 2,468 calls\n", "`input` waits", "60.0 clocks, and 30.0", "`prefetch`"]
        {
            assert!(text.contains(wanted), "{text}");
        }
        assert!(!text.contains("`lookup`") && !text.contains("No app") && !text.contains("not judged"), "{text}");
    }

    #[test]
    fn what_was_not_found_is_said_too() {
        let fine = advice(TrialEnd::Requested, vec![result("input", LookAhead::Sufficient)]).render(false);
        assert!(fine.contains("ended early") && fine.contains("No app waits"), "{fine}");
        let unknown = advice(TrialEnd::Over, vec![result("input", LookAhead::Unknown)]).render(false);
        assert!(unknown.contains("not judged") && !unknown.contains("No app"), "{unknown}");
        let none = advice(TrialEnd::Time, Vec::new());
        assert!(none.render(false).contains("No app had a call"));
        assert!(none.report().apps.is_empty());
    }
}
