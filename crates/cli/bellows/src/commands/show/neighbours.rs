//! `bellows show neighbours`: the neighbours of the routing domains of a running network.

use std::process::ExitCode;

use bellows_observe::RuntimeDir;
use bellows_router::vrf::answers::ListedNeighbour;
use bellows_router::vrf::requests::{NeighbourPage, NeighbourSelection, Request};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::Domain;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, span};

pub fn execute(runtime_dir: &RuntimeDir, vrf: Option<&str>, json: bool) -> Result<ExitCode, CommandError> {
    print(Domain::all(runtime_dir, vrf)?, &NeighbourSelection::default(), json)
}

/// The neighbours of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown neighbours")]
pub struct ShownNeighbours {
    /// The name of the network.
    name: String,
    /// The routing domains.
    vrfs: Vec<DomainNeighbours>,
}

/// The neighbours of a routing domain.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Neighbours")]
struct DomainNeighbours {
    /// The name of the routing domain.
    vrf: String,
    /// Its neighbours, in the order of interfaces and addresses.
    #[schemars(with = "Vec<ListedNeighbour>")]
    neighbours: Vec<Value>,
}

/// A page of neighbours: the first one, or the next one of those that were begun. Also returns whether there are more.
pub fn page(
    domain: &mut Domain,
    select: &NeighbourSelection,
    goes_on: bool,
) -> Result<(Vec<Value>, bool), CommandError> {
    let mut answer = domain.ask(&Request::Neighbours(NeighbourPage { select: select.clone(), goes_on }))?;
    let Value::Array(page) = answer["neighbours"].take() else { return Ok((Vec::new(), false)) };
    Ok((page, answer["more"] == true))
}

/// Prints the neighbours of these domains.
pub fn print(domains: Vec<Domain>, select: &NeighbourSelection, json: bool) -> Result<ExitCode, CommandError> {
    let mut tables = Vec::new();
    let mut network = String::new();
    for mut domain in domains {
        let (mut all, mut more) = page(&mut domain, select, false)?;
        while more {
            let next = page(&mut domain, select, true)?;
            all.extend(next.0);
            more = next.1;
        }
        network = domain.network();
        tables.push(DomainNeighbours { vrf: domain.name().to_owned(), neighbours: all });
    }
    if json {
        terminal::print(&format!("{:#}\n", json!(ShownNeighbours { name: network, vrfs: tables })))?;
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
    for DomainNeighbours { vrf, neighbours } in &tables {
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
