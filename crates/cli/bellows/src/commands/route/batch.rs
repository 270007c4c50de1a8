//! Files of routes: in batches, or all at once.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bellows_router::vrf::answers::SwapAnswer;
use bellows_router::vrf::requests::{BareVerb, Change, Changed, LineError, Request, RoutesToStage, SwapOfRoutes};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::{Domain, DomainNames, LineCounts, Lines, value_of};
use crate::terminal;
use crate::text::{plural, span};

/// The maximum number of errors that are printed.
const MAX_SHOWN: u64 = 20;

/// Changes of routes by a file.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Changed routes", extend("includes" = ["Routing domain", "Counts of lines"]))]
pub struct ChangedRoutes {
    #[serde(flatten)]
    counts: LineCounts,
    #[serde(flatten)]
    domain: DomainNames,
    /// How long it took.
    seconds: f64,
}

/// Routes in the place of all others.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Replaced routes", extend("includes" = ["Routing domain", "Answer to `swap`"]))]
pub struct ReplacedRoutes {
    #[serde(flatten)]
    #[schemars(with = "SwapAnswer")]
    swapped: Value,
    /// Lines that were left out: routes that follow from interfaces and neighbours.
    skipped: u64,
    #[serde(flatten)]
    domain: DomainNames,
    /// How long it took.
    seconds: f64,
}

/// Whether a line is that of a route that follows from interfaces, neighbours or Linux, as `show` prints it.
fn follows(line: &str) -> bool {
    let is_of_kernel = value_of(line, "origin") == Some("kernel");
    is_of_kernel || matches!(value_of(line, "proto"), Some("connected" | "neighbour" | "kernel"))
}

/// Carries out the commands of a file. Each batch takes effect as a whole.
pub fn change(
    domain: &mut Domain,
    file: &Path,
    bare: BareVerb,
    force: bool,
    json: bool,
) -> Result<ExitCode, CommandError> {
    let start = Instant::now();
    let mut lines = Lines::open(file)?;
    let mut counts = LineCounts::default();
    while let Some(batch) = lines.next_batch(follows)? {
        if batch.lines.is_empty() {
            continue;
        }
        let change = Change { commands: batch.lines.clone(), bare, force };
        let changed = domain.ask(&Request::Change(change)).inspect_err(|_| lines.clear_progress())?;
        let changed: Changed = serde_json::from_value(changed)
            .map_err(|error| CommandError::Failed(format!("unexpected answer: {error}")))?;
        counts.added += changed.added as u64;
        counts.replaced += changed.replaced as u64;
        counts.deleted += changed.deleted as u64;
        if !changed.errors.is_empty() {
            lines.clear_progress();
            if !force {
                let text = lines.render(&batch, &changed.errors);
                let first = batch.numbers.first().copied().unwrap_or_default();
                let done = plural(counts.done(), "command");
                let rest = format!("{done} before line {first} took effect, none from there on");
                return Err(CommandError::Diagnosed(format!("{}\n{rest}", text.trim_end())));
            }
            let room = MAX_SHOWN.saturating_sub(counts.failed) as usize;
            counts.failed += changed.errors.len() as u64;
            let shown = &changed.errors[..changed.errors.len().min(room)];
            terminal::fail(&lines.render(&batch, shown));
        }
        lines.show_progress(counts.done());
    }
    lines.clear_progress();
    counts.skipped = lines.skipped;
    if json {
        let changed = ChangedRoutes { counts, domain: domain.names(), seconds: start.elapsed().as_secs_f64() };
        terminal::print(&format!("{:#}\n", json!(changed)))?;
    } else {
        terminal::print(&format!("{} in {}\n", counts.sentence("route"), span(start.elapsed())))?;
    }
    Ok(if counts.failed > 0 { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// Replaces all routes by those of a file, at once.
pub fn replace_all(domain: &mut Domain, file: &Path, json: bool) -> Result<ExitCode, CommandError> {
    let start = Instant::now();
    let mut lines = Lines::open(file)?;
    let mut staged = 0;
    while let Some(batch) = lines.next_batch(follows)? {
        if batch.lines.is_empty() {
            continue;
        }
        let routes = Request::Stage(RoutesToStage { routes: batch.lines.clone() });
        let answer = domain.ask(&routes).inspect_err(|_| lines.clear_progress())?;
        let errors: Vec<LineError> = serde_json::from_value(answer["errors"].clone())
            .map_err(|error| CommandError::Failed(format!("unexpected answer: {error}")))?;
        if !errors.is_empty() {
            lines.clear_progress();
            let text = lines.render(&batch, &errors);
            return Err(CommandError::Diagnosed(format!("{}\nno route has been changed", text.trim_end())));
        }
        staged = answer["staged"].as_u64().unwrap_or_default();
        lines.show_progress(staged);
    }
    lines.clear_progress();
    if staged == 0 {
        let message = format!("`{}` has no routes, so that none would be left", lines.name());
        return Err(CommandError::Usage(format!("{message}; `bellows route flush all` removes all routes")));
    }
    let answer = domain.ask(&Request::Swap(SwapOfRoutes { routes: staged as usize }))?;
    if json {
        let replaced = ReplacedRoutes {
            swapped: answer,
            skipped: lines.skipped,
            domain: domain.names(),
            seconds: start.elapsed().as_secs_f64(),
        };
        terminal::print(&format!("{:#}\n", json!(replaced)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let number = |key: &str| answer[key].as_u64().unwrap_or_default();
    let mut text = format!("{} in place of {}", plural(number("after"), "route"), crate::text::count(number("before")));
    for (count, what) in [(number("repeated"), "repeated by later lines"), (lines.skipped, "left out")] {
        if count > 0 {
            text += &format!(", {} {what}", crate::text::count(count));
        }
    }
    terminal::print(&format!("{text}, in {}\n", span(start.elapsed())))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::follows;

    #[test]
    fn routes_that_follow_from_others_are_known() {
        for (line, expected) in [
            ("192.0.2.0/24 dev lan proto connected", true),
            ("192.0.2.0/24 dev lan proto kernel scope link src 192.0.2.7", true),
            ("192.0.2.7/32 dev lan proto  neighbour metric 0", true),
            ("10.0.0.0/8 via 192.0.2.1 proto static", false),
            ("10.0.0.0/8 via 192.0.2.1 proto bgp", false),
            ("10.0.0.0/8 via 192.0.2.1 proto bgp origin kernel", true),
            ("10.0.0.0/8 via 192.0.2.1 proto static origin kernel", true),
            ("10.0.0.0/8 via 192.0.2.1 dev proto proto control", false),
            ("10.0.0.0/8 dev connected", false),
            ("proto", false),
            ("10.0.0.0/8 dev myproto connected", false),
            ("10.0.0.0/8 dev proto proto kernel", true),
        ] {
            assert_eq!(follows(line), expected, "{line}");
        }
    }
}
