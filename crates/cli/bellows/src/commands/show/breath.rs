//! `bellows show breath`: the calls of a breath, and their machine code.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use bellows_engine::listing::{ListedCall, Listing};
use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use serde_json::json;

use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{count, span};

pub fn execute(runtime_dir: &RuntimeDir, json: bool) -> Result<ExitCode, CommandError> {
    let Reply::Breath(listing) = ask(runtime_dir, &Request::Breath)? else {
        return Err(CommandError::Failed(format!("`{}` did not answer with its breath", runtime_dir.name())));
    };
    let text = if json { format!("{:#}\n", json!(listing)) } else { render(&listing) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn render(listing: &Listing) -> String {
    if listing.further.is_empty() {
        return render_one(listing);
    }
    let workers = std::iter::once(listing).chain(&listing.further);
    let named = workers.map(|listing| format!("worker {}, {}", sanitize(&listing.worker), render_one(listing)));
    named.collect::<Vec<_>>().join("\n")
}

/// The breath of one worker.
fn render_one(listing: &Listing) -> String {
    let mut text = format!("schedule {}", listing.schedule);
    if let Some(fallback_reason) = &listing.fallback_reason {
        let _ = write!(text, ", not native as requested: {fallback_reason}");
    }
    let _ = writeln!(text, "\n\ncalls of a breath, in order:");
    for call in &listing.calls {
        let _ = writeln!(text, "  {} {}  {}", call.entry, sanitize(&call.app), condition(call));
    }
    if listing.code.is_empty() {
        return text;
    }
    let bytes: usize = listing.code.iter().map(|line| line.bytes.len() / 2).sum();
    let assembling = span(Duration::from_nanos(listing.assembling_ns));
    let _ = writeln!(text, "\n{} bytes of machine code, assembled in {assembling}:", count(bytes as u64));
    for line in &listing.code {
        if let Some(label) = &line.label {
            let _ = writeln!(text, "\n; {}", sanitize(label));
        }
        let _ = writeln!(text, "  {:x}  {:<22}  {}", line.address, line.bytes, sanitize(&line.text));
    }
    text
}

/// The condition of a call.
fn condition(call: &ListedCall) -> String {
    match (&*call.entry, &*call.tests) {
        (_, []) => "in every breath".to_owned(),
        ("pull", [_]) => "when its slot says so".to_owned(),
        ("pull", slots) => format!("when one of its {} slots says so", slots.len()),
        (_, links) => format!("when packets wait in {}", sanitize(&links.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_engine::listing::CodeLine;

    #[test]
    fn every_stretch_is_labelled_and_every_call_has_its_condition() {
        let call = |entry: &str, app: &str, tests: &[&str]| ListedCall {
            entry: entry.to_owned(),
            app: app.to_owned(),
            function: String::new(),
            tests: tests.iter().map(|test| test.to_string()).collect(),
        };
        let line = |label: Option<&str>, text: &str| CodeLine {
            address: 0x1000,
            bytes: "4831c0".to_owned(),
            text: text.to_owned(),
            label: label.map(str::to_owned),
        };
        let listing = Listing {
            schedule: "native".to_owned(),
            fallback_reason: None,
            calls: vec![call("pull", "source", &["slot 0"]), call("push", "sink", &["source.output -> sink.input"])],
            assembling_ns: 20_000,
            code: vec![line(Some("push sink"), "xor rax, rax"), line(None, "ret")],
            ..Listing::default()
        };
        let both =
            Listing { further: vec![Listing { worker: "one".to_owned(), ..listing.clone() }], ..listing.clone() };
        assert!(render(&both).contains("\nworker one, schedule native\n"), "{}", render(&both));
        let text = render(&listing);
        for part in [
            "pull source  when its slot says so",
            "push sink  when packets wait in source.output -> sink.input",
            "6 bytes of machine code",
            "; push sink\n  1000  4831c0",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
