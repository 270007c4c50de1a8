//! Turns apps in a row into a network: which inputs get packets, and which outputs lead to a sink.

use bellows_engine::{AppSpec, LinkEnd, LinkSpec, Ports, Side};

/// Why apps in a row cannot be linked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// An app without outputs is not the last.
    #[error("`{0}` has no outputs; put it last")]
    NoOutputs(String),
    /// An app without inputs is not the first.
    #[error("`{0}` has no inputs; put it first")]
    NoInputs(String),
    /// An app has neither inputs nor outputs.
    #[error("`{0}` has neither inputs nor outputs, so no packet passes through it")]
    NoPorts(String),
    /// The app has no such port.
    #[error("`{app}` has no {side} `{port}`; {}", has(*side, known))]
    UnknownPort {
        /// The app.
        app: String,
        /// The side of the port.
        side: Side,
        /// The port as given.
        port: String,
        /// The ports of the app.
        known: Vec<String>,
    },
    /// A port was named twice.
    #[error("the {0} `{1}` is named twice; name it once")]
    Twice(Side, String),
}

fn has(side: Side, known: &[String]) -> String {
    match known {
        [] => format!("it has no {side}s"),
        known => format!("its {side}s: {}", names(known)),
    }
}

/// Names in a sentence.
pub(super) fn names(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The links of apps in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// The links from one app of the row to the next.
    pub links: Vec<LinkSpec>,
    /// Inputs that get packets from one of the benchmark's sources.
    pub fed: Vec<LinkEnd>,
    /// Inputs that must be linked but get no packets.
    pub quiet: Vec<LinkEnd>,
    /// Outputs that lead to one of the benchmark's sinks.
    pub drained: Vec<LinkEnd>,
    /// The app that makes its own packets, in place of a source.
    pub own_source: Option<String>,
    /// The app at which packets end, in place of a sink.
    pub own_sink: Option<String>,
}

impl Wiring {
    /// Links apps in a row: the first output of each leads to the first input of the next. Of the remaining ports those
    /// named by `inputs` and `outputs` are linked, or all if none is named. An app with any number of ports gets the
    /// minimum that it needs, but at least one.
    ///
    /// # Errors
    /// See [`WiringError`].
    pub fn of(apps: &[AppSpec], inputs: &[String], outputs: &[String]) -> Result<Wiring, WiringError> {
        let mut wiring = Wiring::default();
        let (Some(first), Some(last)) = (apps.first(), apps.last()) else { return Ok(wiring) };
        for (position, app) in apps.iter().enumerate() {
            let (is_first, is_last) = (position == 0, position + 1 == apps.len());
            let info = app.info();
            match (info.inputs.is_none(), info.outputs.is_none()) {
                (true, true) => return Err(WiringError::NoPorts(app.name.clone())),
                (true, _) if !is_first => return Err(WiringError::NoInputs(app.name.clone())),
                (_, true) if !is_last => return Err(WiringError::NoOutputs(app.name.clone())),
                (true, _) => wiring.own_source = Some(app.name.clone()),
                (_, true) => wiring.own_sink = Some(app.name.clone()),
                (false, false) => {}
            }
            let none: &[String] = &[];
            let asked_in = if is_first { inputs } else { none };
            let asked_out = if is_last { outputs } else { none };
            let mut entries = ports(app, Side::Input, asked_in)?;
            let mut exits = ports(app, Side::Output, asked_out)?;
            if !is_first {
                wiring.links.last_mut().into_iter().for_each(|link| link.to = entries.linked.remove(0));
            }
            if !is_last {
                let from = exits.linked.remove(0);
                wiring.links.push(LinkSpec { to: from.clone(), from });
            }
            wiring.fed.append(&mut entries.linked);
            wiring.quiet.append(&mut entries.quiet);
            wiring.drained.append(&mut exits.linked);
            wiring.drained.append(&mut exits.quiet);
        }
        for (side, asked, app) in [(Side::Input, inputs, first), (Side::Output, outputs, last)] {
            if let Some((_, twice)) = asked.iter().enumerate().find(|(index, port)| asked[..*index].contains(port)) {
                return Err(WiringError::Twice(side, twice.clone()));
            }
            let is_none = match side {
                Side::Input => app.info().inputs.is_none(),
                Side::Output => app.info().outputs.is_none(),
            };
            if let (true, Some(port)) = (is_none, asked.first()) {
                let (app, port) = (app.name.clone(), port.clone());
                return Err(WiringError::UnknownPort { app, side, port, known: Vec::new() });
            }
        }
        Ok(wiring)
    }

    /// Sentences for the report.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(app) = &self.own_source {
            remarks.push(format!(
                "`{app}` makes its own packets: it replaces the baseline's source, and the difference is its cost \
                 minus the source's"
            ));
        }
        if let Some(app) = &self.own_sink {
            remarks.push(format!(
                "packets end at `{app}`: it replaces the baseline's sink, and the difference is its cost minus the \
                 sink's"
            ));
        }
        let written = |ends: &[LinkEnd]| names(&ends.iter().map(LinkEnd::to_string).collect::<Vec<_>>());
        if !self.quiet.is_empty() {
            remarks.push(format!("{} get no packets; choose inputs that get packets with --in", written(&self.quiet)));
        }
        if self.fed.len() > 1 {
            let fed = written(&self.fed);
            remarks.push(format!("{fed} each have their own source, and the baseline has as many sources"));
        }
        if self.drained.len() > 1 {
            let drained = written(&self.drained);
            remarks.push(format!("{drained} each lead to their own sink: the extra sinks are part of the difference"));
        }
        remarks
    }
}

/// The ports of one app and side to link.
struct Linked {
    linked: Vec<LinkEnd>,
    /// Ports that were not named but must be linked.
    quiet: Vec<LinkEnd>,
}

fn ports(app: &AppSpec, side: Side, asked: &[String]) -> Result<Linked, WiringError> {
    let info = app.info();
    let (ports, usual) = match side {
        Side::Input => (info.inputs, "input"),
        Side::Output => (info.outputs, "output"),
    };
    let end = |port: &str| LinkEnd { app: app.name.clone(), port: port.to_owned() };
    let named = |named: &[&str]| named.iter().map(|port| end(port)).collect::<Vec<LinkEnd>>();
    match ports {
        Ports::Named(ports) => {
            let known: Vec<&str> = ports.iter().map(|port| port.name).collect();
            if asked.is_empty() {
                return Ok(Linked { linked: named(&known), quiet: Vec::new() });
            }
            if let Some(port) = asked.iter().find(|port| !known.contains(&port.as_str())) {
                let known = known.into_iter().map(str::to_owned).collect();
                return Err(WiringError::UnknownPort { app: app.name.clone(), side, port: port.clone(), known });
            }
            let rest = ports.iter().filter(|port| port.required && !asked.iter().any(|asked| asked == port.name));
            let quiet = rest.map(|port| end(port.name)).collect();
            Ok(Linked { linked: asked.iter().map(|port| end(port)).collect(), quiet })
        }
        Ports::Any { at_least, .. } => {
            let mut linked: Vec<LinkEnd> = asked.iter().map(|port| end(port)).collect();
            let wanted = if asked.is_empty() { at_least.max(1) } else { at_least };
            let mut number = 0;
            while linked.len() < wanted {
                number += 1;
                let port = if number == 1 { end(usual) } else { end(&format!("{usual}-{number}")) };
                if !linked.contains(&port) {
                    linked.push(port);
                }
            }
            Ok(Linked { linked, quiet: Vec::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bellows_config::load_chain;

    use super::*;

    fn wiring(chain: &str, inputs: &[&str], outputs: &[&str]) -> Result<Wiring, WiringError> {
        let apps = load_chain(chain, "", "APP", Path::new("."), &bellows_apps::registry()).unwrap();
        let owned = |ports: &[&str]| ports.iter().map(|&port| port.to_owned()).collect::<Vec<String>>();
        Wiring::of(&apps, &owned(inputs), &owned(outputs))
    }

    fn ends(ends: &[LinkEnd]) -> Vec<String> {
        ends.iter().map(LinkEnd::to_string).collect()
    }

    #[test]
    fn all_ports_get_packets_or_a_sink() {
        let tee = wiring("tee", &[], &[]).unwrap();
        assert_eq!((ends(&tee.fed), ends(&tee.drained)), (vec!["tee.input".into()], vec!["tee.output".into()]));
        assert!(tee.remarks().is_empty());
        let pair = wiring("match", &[], &[]).unwrap();
        assert_eq!(ends(&pair.fed), ["match.expected", "match.actual"]);
        assert_eq!(ends(&pair.drained), ["match.mismatch"]);
        assert!(pair.remarks()[0].contains("`match.expected`, `match.actual` each have their own source"));
    }

    #[test]
    fn ports_can_be_named_and_other_required_ports_are_quiet() {
        let tee = wiring("tee", &["input"], &["a", "b"]).unwrap();
        assert_eq!(ends(&tee.drained), ["tee.a", "tee.b"]);
        assert!(tee.remarks()[0].contains("their own sink"));
        let pair = wiring("match", &["actual"], &[]).unwrap();
        assert_eq!((ends(&pair.fed), ends(&pair.quiet)), (vec!["match.actual".into()], vec!["match.expected".into()]));
        assert!(pair.remarks()[0].contains("`match.expected` get no packets"));
    }

    #[test]
    fn apps_in_a_row_feed_one_another_by_their_first_ports() {
        let row = wiring("join | tee | match", &["a", "b"], &[]).unwrap();
        let links: Vec<String> = row.links.iter().map(LinkSpec::to_string).collect();
        assert_eq!(links, ["join.output -> tee.input", "tee.output -> match.expected"]);
        assert_eq!(ends(&row.fed), ["join.a", "join.b", "match.actual"]);
        assert_eq!(ends(&row.drained), ["match.mismatch"]);
    }

    #[test]
    fn a_source_and_a_sink_replace_those_of_the_baseline() {
        let row = wiring("source | sink", &[], &[]).unwrap();
        assert_eq!((row.own_source.as_deref(), row.own_sink.as_deref()), (Some("source"), Some("sink")));
        assert!(row.fed.is_empty() && row.drained.is_empty());
        assert_eq!(row.remarks().len(), 2);
        assert_eq!(Wiring::of(&[], &[], &[]), Ok(Wiring::default()), "the baseline has no apps");
    }

    #[test]
    fn wiring_errors_name_the_reason() {
        let why =
            |chain: &str, inputs: &[&str], outputs: &[&str]| wiring(chain, inputs, outputs).unwrap_err().to_string();
        assert_eq!(why("sink | tee", &[], &[]), "`sink` has no outputs; put it last");
        assert_eq!(why("tee | source", &[], &[]), "`source` has no inputs; put it first");
        assert_eq!(
            why("match", &["axpected"], &[]),
            "`match` has no input `axpected`; its inputs: `expected`, `actual`"
        );
        assert_eq!(why("tee | sink", &[], &["out"]), "`sink` has no output `out`; it has no outputs");
        assert_eq!(why("tee", &[], &["a", "a"]), "the output `a` is named twice; name it once");
    }
}
