//! `bellows show fib`: the sizes and the structure of the forwarding tables of a running network.

use std::fmt::Write;
use std::process::ExitCode;

use bellows_inspect::text::sanitize;
use bellows_observe::RuntimeDir;
use bellows_router::vrf::answers::FibAnswer;
use bellows_router::vrf::requests::Request;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::Domain;
use crate::terminal;
use crate::text::{Align, Table, count, percent, plural, scaled};

/// The most next hops that are printed.
const MAX_NEXT_HOPS: usize = 16;

pub fn execute(runtime_dir: &RuntimeDir, vrf: Option<&str>, as_json: bool) -> Result<ExitCode, CommandError> {
    let mut found = Vec::new();
    let mut network = String::new();
    for mut domain in Domain::all(runtime_dir, vrf)? {
        let answer = domain.ask(&Request::Fib {})?;
        network = domain.network();
        found.push(ShownFib { answer, vrf: domain.name().to_owned() });
    }
    let text = if as_json {
        format!("{:#}\n", json!(ShownTables { name: network, vrfs: found }))
    } else {
        let rich = terminal::stdout_is_rich();
        found.iter().map(|fib| render(fib, rich)).collect::<Vec<_>>().join("\n")
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The tables of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown tables")]
pub struct ShownTables {
    /// The name of the network.
    name: String,
    /// The routing domains.
    vrfs: Vec<ShownFib>,
}

/// The tables of a routing domain.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Tables of a routing domain", extend("includes" = ["Answer with tables"]))]
struct ShownFib {
    #[serde(flatten)]
    #[schemars(with = "FibAnswer")]
    answer: Value,
    /// Its name.
    vrf: String,
}

fn render(ShownFib { answer: fib, vrf }: &ShownFib, rich: bool) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let out = match number(&fib["groups"]["out_of_use"]) {
        0 => String::new(),
        out => format!(", {} of them out of use", count(out)),
    };
    let mut text = format!(
        "{}: {} of {} adjacencies in use, {} with {}{out}\n",
        sanitize(vrf),
        count(number(&fib["adjacencies"]["used"])),
        count(number(&fib["adjacencies"]["capacity"])),
        plural(number(&fib["groups"]["count"]), "group"),
        plural(number(&fib["groups"]["ways"]), "way"),
    );
    for (key, name) in [("ipv4", "IPv4"), ("ipv6", "IPv6")] {
        let family = &fib[key];
        let routes = number(&family["routes"]);
        let origins = family["origins"].as_object().into_iter().flatten();
        let origins: Vec<String> = origins
            .filter(|(_, routes)| number(routes) > 0)
            .map(|(origin, routes)| format!("{} {origin}", count(number(routes))))
            .collect();
        let bytes = number(&family["bytes"]);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{name}: {} ({}), compiled to {}B, {}\n",
            plural(routes, "route"),
            origins.join(", "),
            scaled(bytes as f64),
            plural(number(&family["distinct_next_hops"]), "next hop"),
        );
        let mut lengths = Table::new(&[("PREFIX", Align::Right), ("ROUTES", Align::Right), ("SHARE", Align::Right)]);
        let mut by_length: Vec<(u64, u64)> = family["lengths"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(length, routes)| Some((length.parse().ok()?, number(routes))))
            .collect();
        by_length.sort_unstable();
        for (length, of_length) in by_length {
            lengths.row([format!("/{length}"), count(of_length), percent(of_length as f64 / routes as f64)]);
        }
        let mut next_hops = Table::new(&[("NEXT", Align::Right), ("ROUTES", Align::Right), ("TO", Align::Left)]);
        for next in family["next_hops"].as_array().into_iter().flatten().take(MAX_NEXT_HOPS) {
            let to = next["to"].as_str().unwrap_or_default().to_owned();
            next_hops.row([next["next"].to_string(), count(number(&next["routes"])), to]);
        }
        for table in [lengths, next_hops] {
            if !table.is_empty() {
                text.push('\n');
                text += &table.render(rich);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_sizes_lengths_and_next_hops() {
        let family = json!({
            "routes": 4, "bytes": 1_000_000, "origins": { "static": 3, "control": 0, "connected": 1 },
            "lengths": { "24": 3, "8": 1 }, "distinct_next_hops": 1,
            "next_hops": [{ "next": 17, "routes": 3, "to": "via 192.0.2.1 dev lan" }],
        });
        let answer = json!({
            "ipv4": family, "ipv6": {}, "groups": { "count": 1, "ways": 2, "out_of_use": 1 },
            "adjacencies": { "used": 3, "capacity": 100 },
        });
        let text = render(&ShownFib { answer, vrf: "router/vrf".to_owned() }, false);
        for part in [
            "router/vrf: 3 of 100 adjacencies",
            "1 group with 2 ways, 1 of them out of use",
            "IPv4: 4 routes (3 static, 1 connected)",
            "via 192.0.2.1 dev lan",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let lengths: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with('/')).collect();
        assert!(lengths[0].contains("/8") && lengths[1].contains("/24"), "{text}");
    }
}
