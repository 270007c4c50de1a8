//! From apps in a row to a network: which ports get packets, where what comes out ends, and what all that is compared with.

use bellows_engine::{AppSpec, LinkEnd, LinkSpec, Ports, Side};

/// What is wrong with the way apps are to be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// Nothing comes out of an app that is to feed another.
    #[error("nothing comes out of `{0}`, which has no outputs; put it last")]
    NoOutputs(String),
    /// Nothing goes into an app that is to be fed.
    #[error("nothing goes into `{0}`, which has no inputs; put it first")]
    NoInputs(String),
    /// An app has neither inputs nor outputs.
    #[error("no packet goes through `{0}`, which has neither inputs nor outputs")]
    NoPorts(String),
    /// There is no such port.
    #[error("`{app}` has no {side} `{port}`; {}", has(*side, known))]
    UnknownPort {
        /// The app.
        app: String,
        /// Which way packets would go.
        side: Side,
        /// The port that was asked for.
        port: String,
        /// The ports that there are.
        known: Vec<String>,
    },
    /// A port was asked for twice.
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

/// How apps in a row are wired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// From one app of the row to the next.
    pub links: Vec<LinkSpec>,
    /// Inputs that get packets from a source of the measurement's.
    pub fed: Vec<LinkEnd>,
    /// Inputs that must be linked and get no packets.
    pub quiet: Vec<LinkEnd>,
    /// Outputs that lead to a sink of the measurement's.
    pub drained: Vec<LinkEnd>,
    /// The app that brings packets of its own, in the place of a source.
    pub own_source: Option<String>,
    /// The app at which packets end, in the place of a sink.
    pub own_sink: Option<String>,
}

impl Wiring {
    /// Wires apps in a row: the first output of each leads to the first input of the next. Of the others, those named by
    /// `inputs` and `outputs` are linked, or all of them where none is named; an app with any number of ports gets as few
    /// as it needs, but one.
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

    /// What a reader must know to make sense of the figures, in sentences.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(app) = &self.own_source {
            remarks.push(format!(
                "`{app}` brings packets of its own: it takes the place of the baseline's source, and the difference is what it \
                 costs more than that"
            ));
        }
        if let Some(app) = &self.own_sink {
            remarks.push(format!(
                "packets end at `{app}`: it takes the place of the baseline's sink, and the difference is what it costs more than \
                 that"
            ));
        }
        let written = |ends: &[LinkEnd]| names(&ends.iter().map(LinkEnd::to_string).collect::<Vec<_>>());
        if !self.quiet.is_empty() {
            remarks.push(format!("no packets go to {}; name what is to get some with --in", written(&self.quiet)));
        }
        if self.fed.len() > 1 {
            let fed = written(&self.fed);
            remarks.push(format!("{fed} get packets of a source each, and the baseline has as many sources"));
        }
        if self.drained.len() > 1 {
            let drained = written(&self.drained);
            remarks
                .push(format!("{drained} lead to a sink each: what the further sinks cost is part of the difference"));
        }
        remarks
    }
}

/// The ports of one app on one side that are linked.
struct Linked {
    linked: Vec<LinkEnd>,
    /// Those that were not asked for, but must be linked.
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
        let apps = load_chain(chain, "APP", Path::new("."), &bellows_apps::registry()).unwrap();
        let owned = |ports: &[&str]| ports.iter().map(|&port| port.to_owned()).collect::<Vec<String>>();
        Wiring::of(&apps, &owned(inputs), &owned(outputs))
    }

    fn ends(ends: &[LinkEnd]) -> Vec<String> {
        ends.iter().map(LinkEnd::to_string).collect()
    }

    #[test]
    fn all_ports_that_there_are_get_packets_or_a_sink() {
        let tee = wiring("tee", &[], &[]).unwrap();
        assert_eq!((ends(&tee.fed), ends(&tee.drained)), (vec!["tee.input".into()], vec!["tee.output".into()]));
        assert!(tee.remarks().is_empty());
        let pair = wiring("match", &[], &[]).unwrap();
        assert_eq!(ends(&pair.fed), ["match.expected", "match.actual"]);
        assert_eq!(ends(&pair.drained), ["match.mismatch"]);
        assert!(pair.remarks()[0].contains("`match.expected`, `match.actual` get packets of a source each"));
    }

    #[test]
    fn ports_can_be_named_and_the_rest_that_must_be_linked_is_quiet() {
        let tee = wiring("tee", &["input"], &["a", "b"]).unwrap();
        assert_eq!(ends(&tee.drained), ["tee.a", "tee.b"]);
        assert!(tee.remarks()[0].contains("a sink each"));
        let pair = wiring("match", &["actual"], &[]).unwrap();
        assert_eq!((ends(&pair.fed), ends(&pair.quiet)), (vec!["match.actual".into()], vec!["match.expected".into()]));
        assert!(pair.remarks()[0].contains("no packets go to `match.expected`"));
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
    fn a_source_and_a_sink_take_the_places_of_those_of_the_reference() {
        let row = wiring("source | sink", &[], &[]).unwrap();
        assert_eq!((row.own_source.as_deref(), row.own_sink.as_deref()), (Some("source"), Some("sink")));
        assert!(row.fed.is_empty() && row.drained.is_empty());
        assert_eq!(row.remarks().len(), 2);
        assert_eq!(Wiring::of(&[], &[], &[]), Ok(Wiring::default()), "the baseline has no apps");
    }

    #[test]
    fn what_cannot_be_wired_says_why() {
        let why =
            |chain: &str, inputs: &[&str], outputs: &[&str]| wiring(chain, inputs, outputs).unwrap_err().to_string();
        assert_eq!(why("sink | tee", &[], &[]), "nothing comes out of `sink`, which has no outputs; put it last");
        assert_eq!(why("tee | source", &[], &[]), "nothing goes into `source`, which has no inputs; put it first");
        assert_eq!(
            why("match", &["axpected"], &[]),
            "`match` has no input `axpected`; its inputs: `expected`, `actual`"
        );
        assert_eq!(why("tee | sink", &[], &["out"]), "`sink` has no output `out`; it has no outputs");
        assert_eq!(why("tee", &[], &["a", "a"]), "the output `a` is named twice; name it once");
    }
}
