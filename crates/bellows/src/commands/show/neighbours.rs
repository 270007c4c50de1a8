//! `bellows show neighbours`: the neighbours of the routing domains of a running network.

use std::process::ExitCode;

use bellows_apps::vrf::requests::{NeighbourSelection, Request};
use bellows_observe::RuntimeDir;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::Domain;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, span};

pub fn execute(runtime_dir: &RuntimeDir, vrf: Option<&str>, json: bool) -> Result<ExitCode, CommandError> {
    print(Domain::all(runtime_dir, vrf)?, NeighbourSelection::default(), json)
}

/// Prints the neighbours of these domains.
pub fn print(domains: Vec<Domain>, select: NeighbourSelection, json: bool) -> Result<ExitCode, CommandError> {
    let mut tables = Vec::new();
    let mut network = String::new();
    for mut domain in domains {
        let answer = domain.ask(&Request::Neighbours(select.clone()))?;
        network = domain.network();
        tables.push((domain.name().to_owned(), answer["neighbours"].as_array().cloned().unwrap_or_default()));
    }
    if json {
        let vrfs: Vec<Value> =
            tables.into_iter().map(|(vrf, neighbours)| json!({ "vrf": vrf, "neighbours": neighbours })).collect();
        terminal::print(&format!("{:#}\n", json!({ "name": network, "vrfs": vrfs })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("ADDRESS", Align::Left),
        ("LLADDR", Align::Left),
        ("INTERFACE", Align::Left),
        ("STATE", Align::Left),
        ("AGE", Align::Right),
        ("WAITING", Align::Right),
        ("VRF", Align::Left),
    ]);
    for (vrf, neighbours) in &tables {
        for one in neighbours {
            let word = |key: &str| one[key].as_str().unwrap_or(UNKNOWN).to_owned();
            let age = one["age_seconds"].as_u64().map(|seconds| span(std::time::Duration::from_secs(seconds)));
            table.row([
                word("address"),
                word("mac"),
                word("interface"),
                word("state"),
                age.unwrap_or_else(|| UNKNOWN.to_owned()),
                one["waiting"].to_string(),
                vrf.clone(),
            ]);
        }
    }
    let text = if table.is_empty() { "no neighbours\n".to_owned() } else { table.render(terminal::stdout_is_rich()) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
