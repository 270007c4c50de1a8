//! Lists of routes, and look-ups.

use std::net::IpAddr;
use std::process::ExitCode;

use bellows_config::nearest;
use bellows_inspect::text::sanitize;
use bellows_router::vrf::answers::{LookUpAnswer, ShownRoute};
use bellows_router::vrf::requests::{LookUp, Page, PrefixMatch, Request, RouteLines, Selection, in_place_of};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::{Domain, DomainNames};
use crate::terminal;
use crate::text::{count, percent, plural};

/// Takes the prefix from the words: `PREFIX`, `exact PREFIX`, `root PREFIX`, `match PREFIX`.
pub fn select_prefix(select: &mut Selection, words: &[String]) -> Result<(), CommandError> {
    let how = |word: &str| match word {
        "exact" => Some(PrefixMatch::Exact),
        "root" => Some(PrefixMatch::Root),
        "match" => Some(PrefixMatch::Match),
        _ => None,
    };
    select.prefix = match words {
        [] => return Ok(()),
        [word] if how(word).is_none() => Some((PrefixMatch::Exact, word.clone())),
        [word, prefix] if how(word).is_some() => how(word).map(|how| (how, prefix.clone())),
        [word] => return Err(CommandError::Usage(format!("`{word}` needs a prefix"))),
        [first, ..] => {
            // What is behind the prefix is wrong, or what is not one.
            let is_prefix = first == "default" || first.contains(['.', ':', '/']);
            let known = if how(first).is_some() { 2 } else { usize::from(is_prefix) };
            let wrong = words.get(known).unwrap_or(first);
            if let Some(help) = in_place_of(wrong) {
                return Err(CommandError::Usage(format!("`{wrong}` is not a condition of routes here: {help}")));
            }
            let near = nearest(wrong, ["exact", "root", "match", "dev", "via", "proto", "vrf"]);
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let known = "`exact PREFIX`, `root PREFIX`, `match PREFIX`, `dev`, `via`, `proto` and `vrf`";
            return Err(CommandError::Usage(format!(
                "`{wrong}` is not a condition of routes{near}; there are {known}"
            )));
        }
    };
    if let Some((_, prefix)) = &mut select.prefix
        && prefix == "default"
    {
        let is_v6 = select.family == Some(6);
        *prefix = if is_v6 { "::/0" } else { "0.0.0.0/0" }.to_owned();
    }
    Ok(())
}

/// What is printed of routes, page by page.
#[derive(JsonSchema)]
#[schemars(title = "Shown routes", extend("includes" = ["Routing domain"]))]
#[expect(dead_code, reason = "only its schema is read: the text of each page is printed as it arrives")]
pub struct ShownRoutes {
    #[schemars(flatten)]
    domain: DomainNames,
    /// The routes, in the order of families, prefixes and metrics.
    routes: Vec<ShownRoute<'static>>,
    /// Where a limited list goes on: the prefix and the metric of its last route; null at the end.
    next: Option<(String, u32)>,
}

/// What becomes of packets to an address.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown look-up", extend("includes" = ["Routing domain", "Answer to a look-up"]))]
pub struct ShownLookUp {
    #[serde(flatten)]
    #[schemars(with = "LookUpAnswer")]
    answer: Value,
    #[serde(flatten)]
    domain: DomainNames,
}

/// Prints routes, page by page.
pub fn show(
    domain: &mut Domain,
    select: Selection,
    mut after: Option<(String, u32)>,
    limit: Option<usize>,
    only_count: bool,
    as_json: bool,
) -> Result<ExitCode, CommandError> {
    let (mut shown, mut is_first, has_begun) = (0, true, after.is_some());
    let form = if as_json { RouteLines::Json } else { RouteLines::Plain };
    loop {
        let rest = limit.map(|limit| limit - shown);
        let page = Page { select: select.clone(), after: after.take(), limit: rest, only_count, text: Some(form) };
        let mut answer =
            if rest == Some(0) { json!({ "count": 0, "next": null }) } else { domain.ask(&Request::Routes(page))? };
        let mut text = String::new();
        if as_json && is_first {
            begin(&mut text, domain);
        }
        let lines = match answer["text"].take() {
            Value::String(lines) => lines,
            _ => String::new(),
        };
        if as_json {
            for (index, route) in lines.lines().enumerate() {
                text += if shown + index == 0 { "\n    " } else { ",\n    " };
                text += route;
            }
        } else {
            text += &sanitize(&lines);
        }
        shown += answer["count"].as_u64().unwrap_or_default() as usize;
        after = serde_json::from_value(answer["next"].clone()).unwrap_or_default();
        let is_last = after.is_none() || limit == Some(shown);
        if as_json && is_last {
            text += &format!("\n  ],\n  \"next\": {}\n}}\n", answer["next"]);
        }
        is_first = false;
        if !terminal::print_on(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        if is_last {
            break;
        }
    }
    if shown == 0 && !only_count && !as_json && limit != Some(0) {
        tell_of_others(domain, &select, has_begun)?;
    }
    if only_count {
        terminal::print(&format!("{}\n", plural(shown as u64, "route")))?;
    } else if let (Some((prefix, _)), false) = (&after, as_json) {
        terminal::notice(&format!("there may be more: `--after {prefix}` shows them\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says why a list is empty, and what there is besides.
fn tell_of_others(domain: &mut Domain, select: &Selection, is_rest: bool) -> Result<(), CommandError> {
    if is_rest || *select != usual(Selection::default()) {
        terminal::notice(
            "no routes are as the conditions say; `proto all` includes those of interfaces and neighbours\n",
        );
        return Ok(());
    }
    let tables = domain.ask(&Request::Fib {})?;
    let of = |family: &str| tables[family]["routes"].as_u64().unwrap_or_default();
    let others = plural(of("ipv4") + of("ipv6"), "route");
    terminal::notice(&format!(
        "no routes of the network file, of commands or of Linux; `bellows route show proto all` prints the {others} of \
         interfaces and neighbours\n"
    ));
    Ok(())
}

/// Without origins, the routes of a list are all that do not follow from interfaces and neighbours.
pub fn usual(mut select: Selection) -> Selection {
    if select.origins.is_empty() {
        select.origins = ["static", "control", "kernel"].map(str::to_owned).to_vec();
    }
    select
}

/// Begins the JSON of a list.
fn begin(text: &mut String, domain: &Domain) {
    let (network, vrf) = (json!(domain.network()), json!(domain.name()));
    *text += &format!("{{\n  \"name\": {network},\n  \"vrf\": {vrf},\n  \"routes\": [");
}

/// A route as a line that `add` understands, with its origin.
fn line(route: &Value) -> String {
    let text = route["route"].as_str().unwrap_or_default();
    let origin = if route["origin"] == "kernel" { " origin kernel" } else { "" };
    format!("{text} proto {}{origin}", route["protocol"].as_str().unwrap_or_default())
}

/// Prints what becomes of packets to an address.
pub fn look_up(domain: &mut Domain, words: Vec<String>, as_json: bool) -> Result<ExitCode, CommandError> {
    let address = |text: &str| -> Result<IpAddr, CommandError> {
        text.parse().map_err(|_| {
            CommandError::Usage(format!("`{text}` is not an IP address; write, for example, `lookup 198.51.100.7`"))
        })
    };
    let look_up = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [to] | ["to", to] => LookUp { address: address(to)?, from: None },
        [to, "from", from] | ["to", to, "from", from] | ["from", from, "to", to] => {
            LookUp { address: address(to)?, from: Some(address(from)?) }
        }
        _ => return Err(CommandError::Usage("write `lookup ADDRESS`, or `lookup ADDRESS from ADDRESS`".to_owned())),
    };
    let answer = domain.ask(&Request::LookUp(look_up))?;
    if as_json {
        terminal::print(&format!("{:#}\n", json!(ShownLookUp { answer, domain: domain.names() })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = found(&answer);
    if answer["from"].is_object() {
        text += "the way back:\n";
        text += &found(&answer["from"]);
    }
    terminal::print(&sanitize(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn found(answer: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let address = word(&answer["address"]);
    if answer["route"].is_null() {
        return format!("{address}: no route\n");
    }
    let mut text = format!("{address}: {}\n", line(&answer["route"]));
    let ways = answer["ways"].as_array().map_or(&[][..], Vec::as_slice);
    for way in ways {
        let state = match (way["kind"].as_str(), way["state"].as_str()) {
            (_, Some(state)) => state.to_owned(),
            (Some("glean"), None) => "not asked yet".to_owned(),
            (kind, None) => kind.unwrap_or_default().to_owned(),
        };
        let mac = way["mac"].as_str().map_or_else(String::new, |mac| format!(" lladdr {mac}"));
        let share = match way["share"].as_f64().filter(|_| ways.len() > 1) {
            Some(_) if way["in_use"] == false => ", out of use because it does not answer".to_owned(),
            Some(share) => format!(", {} of flows", percent(share)),
            None => String::new(),
        };
        text += &format!(
            "  neighbour {} dev {}{mac} {state}, adjacency {}, weight {}{share}\n",
            word(&way["neighbour"]),
            word(&way["interface"]),
            way["adjacency"],
            way["weight"],
        );
    }
    let compiled = &answer["compiled"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let (first, last) = (number(&compiled["cells"][0]), number(&compiled["cells"][1]));
    let cells = if first == last {
        format!("cell {}", count(first))
    } else {
        format!("cells {} to {}", count(first), count(last))
    };
    text + &format!("  compiled to {cells}, by bits {} to {}\n", compiled["bits"][0], compiled["bits"][1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer whose route has ways with these shares of flows.
    fn answer(shares: &[f64]) -> Value {
        let way = |share: &f64| {
            json!({
                "interface": "lan", "neighbour": "192.0.2.7", "weight": 1, "share": share, "in_use": *share > 0.0,
                "adjacency": 18, "kind": "complete", "state": "reachable", "mac": null,
            })
        };
        json!({
            "address": "203.0.113.7",
            "route": { "route": "203.0.113.0/24 via 192.0.2.7", "protocol": "static" },
            "ways": shares.iter().map(way).collect::<Vec<Value>>(),
            "compiled": { "bits": [0, 18], "cells": [7, 7] },
        })
    }

    #[test]
    fn of_several_ways_each_has_its_share_also_if_that_is_all() {
        assert!(!found(&answer(&[1.0])).contains("flows"));
        let text = found(&answer(&[1.0, 0.0]));
        assert!(text.contains("weight 1, 100.0 % of flows\n"), "{text}");
        assert!(text.contains("weight 1, out of use because it does not answer\n"), "{text}");
        assert_eq!(found(&answer(&[0.5, 0.5])).matches("50.0 % of flows").count(), 2);
    }
}
