//! `bellows show mac`: the MAC addresses that the bridges of a running network know.

use std::process::ExitCode;
use std::time::Duration;

use bellows_config::nearest;
use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use bellows_switch::mac_table::requests::{ListedAddress, Page, Request, Selection};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::AnsweringApp;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, span};

/// What has a table: an object, or a bridge with one of its own.
const KINDS: [&str; 2] = ["mac-table", "bridge"];

/// Which addresses are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Options of `show mac` and `clear mac`")]
#[group(id = "addresses")]
pub struct MacOptions {
    /// One table of MAC addresses: an object, or a bridge with a table of its own
    #[arg(long, value_name = "TABLE", hide_short_help = true)]
    table: Option<String>,
    /// MAC addresses at a port
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    port: Option<String>,
    /// MAC addresses in a VLAN
    #[arg(long, value_name = "VLAN", hide_short_help = true, value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// One MAC address
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    mac: Option<String>,
}

impl MacOptions {
    /// Whether there is any.
    pub fn is_given(&self) -> bool {
        *self != MacOptions::default()
    }

    /// The selection for a table.
    pub fn selection(&self) -> Selection {
        Selection { port: self.port.clone(), vlan: self.vlan, mac: self.mac.clone() }
    }

    /// The tables that are meant.
    pub fn tables(&self, runtime_dir: &RuntimeDir) -> Result<Vec<AnsweringApp>, CommandError> {
        let all = AnsweringApp::all(runtime_dir, &KINDS)?;
        let network = runtime_dir.name();
        if all.is_empty() {
            return Err(CommandError::Usage(format!(
                "`{network}` has no table of MAC addresses: no app of type `bridge`"
            )));
        }
        let Some(name) = &self.table else { return Ok(all) };
        let names: Vec<String> = all.iter().map(|table| table.name().to_owned()).collect();
        let meant: Vec<AnsweringApp> = all.into_iter().filter(|table| table.name() == name).collect();
        if meant.is_empty() {
            let help = match nearest(name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are `{}`", names.join("`, `")),
            };
            return Err(CommandError::Usage(format!("`{network}` has no table of MAC addresses `{name}`; {help}")));
        }
        Ok(meant)
    }
}

/// Asks tables. A port need not be one of each.
pub fn ask_each<T>(
    tables: Vec<AnsweringApp>,
    options: &MacOptions,
    mut ask: impl FnMut(&mut AnsweringApp) -> Result<T, CommandError>,
) -> Result<Vec<T>, CommandError> {
    let (mut answers, mut without_port) = (Vec::new(), None);
    for mut table in tables {
        match ask(&mut table) {
            Ok(answer) => answers.push(answer),
            Err(error) if options.port.is_some() => without_port = Some(error),
            Err(error) => return Err(error),
        }
    }
    match without_port {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

/// All addresses of a table that are meant.
fn list(table: &mut AnsweringApp, select: &Selection) -> Result<Vec<Value>, CommandError> {
    let (mut all, mut goes_on) = (Vec::new(), false);
    loop {
        let mut answer = table.ask(&Request::Addresses(Page { select: select.clone(), goes_on }))?;
        if let Value::Array(page) = answer["addresses"].take() {
            all.extend(page);
        }
        goes_on = true;
        if answer["more"] != true {
            return Ok(all);
        }
    }
}

pub fn execute(runtime_dir: &RuntimeDir, options: &MacOptions, as_json: bool) -> Result<ExitCode, CommandError> {
    let tables = ask_each(options.tables(runtime_dir)?, options, |table| {
        let addresses = list(table, &options.selection())?;
        Ok(AddressTable { table: table.name().to_owned(), addresses })
    })?;
    let text = if as_json {
        format!("{:#}\n", json!(ShownAddresses { name: runtime_dir.name(), tables }))
    } else {
        render(&tables, terminal::stdout_is_rich())
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The MAC addresses of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown MAC addresses")]
pub struct ShownAddresses {
    /// The name of the network.
    name: String,
    /// The tables of MAC addresses; only the one that was named.
    tables: Vec<AddressTable>,
}

/// The addresses of a table.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Table of MAC addresses")]
struct AddressTable {
    /// Its name: that of an object, or of a bridge that has one of its own.
    table: String,
    /// Its addresses, in the order of VLANs and addresses.
    #[schemars(with = "Vec<ListedAddress>")]
    addresses: Vec<Value>,
}

fn render(tables: &[AddressTable], rich: bool) -> String {
    let mut text = Table::new(&[
        ("MAC", Align::Left),
        ("VLAN", Align::Right),
        ("PORT", Align::Left),
        ("STATE", Align::Left),
        ("AGE", Align::Right),
        ("TABLE", Align::Left),
    ]);
    for (table, one) in tables.iter().flat_map(|of| of.addresses.iter().map(move |one| (&of.table, one))) {
        let word = |key: &str| sanitize(one[key].as_str().unwrap_or(UNKNOWN));
        let number = |key: &str| one[key].as_u64();
        let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        text.row([
            word("mac"),
            known(number("vlan").map(|vlan| vlan.to_string())),
            word("port"),
            word("state"),
            known(number("age_seconds").map(|seconds| span(Duration::from_secs(seconds)))),
            sanitize(table),
        ]);
    }
    if text.is_empty() { "no MAC addresses\n".to_owned() } else { text.render(rich) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_lines_of_a_table() {
        let known = json!({ "mac": "02:00:00:00:00:01", "vlan": 5, "port": "a", "state": "learned", "age_seconds": 9 });
        let fixed =
            json!({ "mac": "02:00:00:00:00:02", "vlan": null, "port": "b", "state": "static", "age_seconds": null });
        let text = render(&[AddressTable { table: "macs".to_owned(), addresses: vec![known, fixed] }], false);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["MAC", "VLAN", "PORT", "STATE", "AGE", "TABLE"]);
        assert_eq!(lines[1][..4], ["02:00:00:00:00:01", "5", "a", "learned"]);
        assert_eq!(lines[2], ["02:00:00:00:00:02", UNKNOWN, "b", "static", UNKNOWN, "macs"]);
        assert_eq!(render(&[], false), "no MAC addresses\n");
    }
}
