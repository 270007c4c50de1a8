//! Wiring errors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::link::{LinkEnd, LinkSpec, Side};
use crate::port::Ports;

/// An app's name and ports, whether the app has been created or not.
#[derive(Clone, Copy, Debug)]
pub struct WiredApp<'n> {
    /// Its name in links.
    pub name: &'n str,
    /// The type's name, inputs and outputs; `None` if the type is unknown. Then any port may exist, and none must be
    /// linked.
    pub ports: Option<(&'n str, Ports, Ports)>,
}

impl WiredApp<'_> {
    pub(crate) fn ports(&self, side: Side) -> Option<Ports> {
        let (_, inputs, outputs) = self.ports?;
        Some(match side {
            Side::Input => inputs,
            Side::Output => outputs,
        })
    }
}

/// All wiring errors of a network: first errors in links, in their order, then open ports, in the order of the apps.
///
/// If several apps have the same name, links refer to the first. The apps need not have been created.
pub fn wiring_errors(apps: &[WiredApp<'_>], links: &[LinkSpec]) -> Vec<WiringError> {
    let mut check = Check::new(apps, links.len());
    for (index, link) in links.iter().enumerate() {
        check.link(index, link);
    }
    for app in apps {
        check.open_ports(app);
    }
    check.errors
}

/// The check of a network. Names and ports are looked up by hash, so the time grows linearly with the size of the
/// network.
struct Check<'n> {
    apps: &'n [WiredApp<'n>],
    by_name: HashMap<&'n str, &'n WiredApp<'n>>,
    /// The first occurrence of each link.
    written: HashMap<&'n LinkSpec, usize>,
    /// The first link of each end on each side.
    first: HashMap<(Side, &'n LinkEnd), usize>,
    /// The number of links of each app on each side.
    count: HashMap<(Side, &'n str), usize>,
    /// The names of all apps, built for the first unknown name.
    known: Option<Arc<[String]>>,
    errors: Vec<WiringError>,
}

impl<'n> Check<'n> {
    fn new(apps: &'n [WiredApp<'n>], links: usize) -> Check<'n> {
        let mut check = Check {
            apps,
            by_name: HashMap::with_capacity(apps.len()),
            written: HashMap::with_capacity(links),
            first: HashMap::with_capacity(2 * links),
            count: HashMap::with_capacity(2 * apps.len()),
            known: None,
            errors: Vec::new(),
        };
        for app in apps {
            if !LinkEnd::is_name(app.name) {
                check.errors.push(WiringError::BadName { app: app.name.to_owned() });
            }
            match check.by_name.entry(app.name) {
                Entry::Vacant(free) => {
                    free.insert(app);
                }
                Entry::Occupied(_) => check.errors.push(WiringError::DuplicateApp { app: app.name.to_owned() }),
            }
        }
        check
    }

    fn link(&mut self, index: usize, link: &'n LinkSpec) {
        match self.written.entry(link) {
            Entry::Vacant(free) => {
                free.insert(index);
            }
            // Do not also report that both of its ends are linked twice.
            Entry::Occupied(first) => {
                return self.errors.push(WiringError::DuplicateLink {
                    link: index,
                    spec: link.clone(),
                    first: *first.get(),
                });
            }
        }
        for side in [Side::Output, Side::Input] {
            let end = link.end(side);
            match self.by_name.get(end.app.as_str()) {
                Some(app) => self.port(index, side, end, app),
                None => {
                    let names = || self.apps.iter().map(|app| app.name.to_owned()).collect();
                    let known = Arc::clone(self.known.get_or_insert_with(names));
                    self.errors.push(WiringError::UnknownApp { link: index, side, name: end.app.clone(), known });
                }
            }
            match self.first.entry((side, end)) {
                Entry::Vacant(free) => {
                    free.insert(index);
                }
                Entry::Occupied(first) => {
                    self.errors.push(WiringError::LinkedTwice {
                        link: index,
                        side,
                        end: end.clone(),
                        first: *first.get(),
                    });
                }
            }
        }
        if link.from.app == link.to.app {
            self.errors.push(WiringError::SelfLink { link: index, app: link.from.app.clone() });
        }
    }

    /// Checks the port at one end of a link, given its app.
    fn port(&mut self, link: usize, side: Side, end: &'n LinkEnd, app: &WiredApp<'_>) {
        if let (Some((kind, ..)), Some(Ports::Named(named))) = (app.ports, app.ports(side))
            && !named.iter().any(|port| port.name == end.port)
        {
            let known = named.iter().map(|port| port.name.to_owned()).collect();
            self.errors.push(WiringError::UnknownPort { link, side, end: end.clone(), kind: kind.to_owned(), known });
        }
        *self.count.entry((side, &end.app)).or_default() += 1;
    }

    fn open_ports(&mut self, app: &WiredApp<'_>) {
        for side in [Side::Input, Side::Output] {
            match app.ports(side) {
                None => {}
                Some(Ports::Named(ports)) => {
                    for port in ports.iter().filter(|port| port.required) {
                        let end = LinkEnd { app: app.name.to_owned(), port: port.name.to_owned() };
                        if !self.first.contains_key(&(side, &end)) {
                            self.errors.push(WiringError::OpenPort { side, end, help: port.help });
                        }
                    }
                }
                Some(Ports::Any { at_least, help }) => {
                    let count = self.count.get(&(side, app.name)).copied().unwrap_or(0);
                    if count < at_least {
                        let app = app.name.to_owned();
                        self.errors.push(WiringError::TooFewPorts { side, app, count, at_least, help });
                    }
                }
            }
        }
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}

/// A wiring error of a network. `link` is the position of a link in the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// No app can have this name.
    #[error("`{}` is not a valid name of an app; {}", .app.escape_debug(), LinkEnd::NAMES)]
    BadName {
        /// The name.
        app: String,
    },
    /// Two apps have the same name.
    #[error("there are two apps named `{app}`")]
    DuplicateApp {
        /// The name.
        app: String,
    },
    /// A link is written twice.
    #[error("the link `{spec}` is written twice; remove one of them")]
    DuplicateLink {
        /// The second of them.
        link: usize,
        /// The link.
        spec: LinkSpec,
        /// The first of them.
        first: usize,
    },
    /// A link names an unknown app.
    #[error("there is no app `{name}`; the network has {}", list(known))]
    UnknownApp {
        /// The link.
        link: usize,
        /// Which end of it.
        side: Side,
        /// The name as written.
        name: String,
        /// The names of all apps, shared by all errors of a network.
        known: Arc<[String]>,
    },
    /// A link names a port that its app does not have.
    #[error("`{}` ({kind}) has no {side} `{}`; its {side}s: {}", end.app, end.port, list(known))]
    UnknownPort {
        /// The link.
        link: usize,
        /// Which end of it.
        side: Side,
        /// The end as written.
        end: LinkEnd,
        /// The app's type.
        kind: String,
        /// The ports of the app.
        known: Vec<String>,
    },
    /// Two links share a port.
    #[error("the {side} `{end}` is linked twice; put a `tee` or a `join` between")]
    LinkedTwice {
        /// The second link.
        link: usize,
        /// Which end of it.
        side: Side,
        /// The port.
        end: LinkEnd,
        /// The first link.
        first: usize,
    },
    /// A link leads from an app to itself.
    #[error("a link leads from `{app}` to itself; put another app between")]
    SelfLink {
        /// The link.
        link: usize,
        /// The app.
        app: String,
    },
    /// A required port has no link.
    #[error("the {side} `{end}` is not linked ({help})")]
    OpenPort {
        /// The port's direction.
        side: Side,
        /// The port.
        end: LinkEnd,
        /// One line about the packets that pass through it.
        help: &'static str,
    },
    /// An app with any number of ports has too few.
    #[error("`{app}` has {count} {side}s linked; it needs {at_least} or more")]
    TooFewPorts {
        /// The direction of the ports.
        side: Side,
        /// The app.
        app: String,
        /// The number of linked ports.
        count: usize,
        /// The required minimum.
        at_least: usize,
        /// One line about the packets that pass through them.
        help: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::port::Port;

    /// A type of app: its name, its inputs and its outputs.
    type Kind = (&'static str, Ports, Ports);

    const PACKETS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const SOURCE: Kind = ("Source", Ports::NONE, Ports::Named(&[Port::required("output", "packets")]));
    const TEE: Kind = ("Tee", PACKETS, Ports::Any { at_least: 1, help: "copies" });
    const SWITCH: Kind = (
        "Switch",
        Ports::Any { at_least: 2, help: "packets" },
        Ports::Named(&[Port::required("a", "the first half"), Port::optional("b", "the rest")]),
    );

    #[derive(Debug, Default)]
    struct Network {
        apps: Vec<WiredApp<'static>>,
        links: Vec<LinkSpec>,
    }

    impl Network {
        fn app(mut self, name: &'static str, kind: Kind) -> Network {
            self.apps.push(WiredApp { name, ports: Some(kind) });
            self
        }

        fn link(mut self, link: &str) -> Network {
            self.links.push(link.parse().unwrap());
            self
        }

        fn errors(&self) -> Vec<WiringError> {
            wiring_errors(&self.apps, &self.links)
        }
    }

    #[test]
    fn a_correct_network_has_no_errors() {
        let network = Network::default().app("s", SOURCE).app("t", TEE).app("u", TEE);
        let network = network.link("s.output -> t.input");
        assert_eq!(network.errors().len(), 3, "t has no output, u neither output nor input");
        let network = network.link("t.any -> u.input");
        assert_eq!(
            network.errors(),
            [WiringError::TooFewPorts { side: Side::Output, app: "u".into(), count: 0, at_least: 1, help: "copies" }]
        );
    }

    #[test]
    fn every_error_is_found_and_lists_the_alternatives() {
        let network = Network::default().app("s", SOURCE).app("t", TEE).app("t", TEE);
        let links = ["s.out -> t.input", "x.a -> t.input", "t.a -> t.b", "s.out -> t.input", "x.a -> t.input"];
        let network = links.into_iter().fold(network, |network, link| network.link(link));
        let errors: Vec<String> = network.errors().iter().map(WiringError::to_string).collect();
        for expected in [
            "there are two apps named `t`",
            "`s` (Source) has no output `out`; its outputs: `output`",
            "there is no app `x`; the network has `s`, `t`, `t`",
            "the input `t.input` is linked twice; put a `tee` or a `join` between",
            "a link leads from `t` to itself; put another app between",
            "the output `s.output` is not linked (packets)",
            "the link `s.out -> t.input` is written twice; remove one of them",
            "the link `x.a -> t.input` is written twice; remove one of them",
        ] {
            assert_eq!(errors.iter().filter(|error| *error == expected).count(), 1, "{expected} in {errors:#?}");
        }
    }

    #[test]
    fn names_that_network_files_cannot_have_are_errors() {
        let apps = ["a", "$(id)"].map(|name| WiredApp { name, ports: None });
        assert_eq!(wiring_errors(&apps, &[]), [WiringError::BadName { app: "$(id)".to_owned() }]);
        let app = "a\u{1b}".to_owned();
        assert!(WiringError::BadName { app }.to_string().starts_with("`a\\u{1b}` is not a valid name of an app; use"));
    }

    #[test]
    fn an_app_of_unknown_type_has_no_port_errors() {
        let apps = [WiredApp { name: "new", ports: None }, WiredApp { name: "t", ports: Some(TEE) }];
        let links = ["new.any -> t.input", "t.a -> new.thing", "t.b -> new.thing"].map(|link| link.parse().unwrap());
        let end = LinkEnd { app: "new".into(), port: "thing".into() };
        assert_eq!(
            wiring_errors(&apps, &links),
            [WiringError::LinkedTwice { link: 2, side: Side::Input, end, first: 1 }]
        );
        assert_eq!(wiring_errors(&apps, &links[..2]), []);
        assert_eq!(wiring_errors(&apps[..1], &[]), []);
    }

    /// A naive model of [`wiring_errors`]: every lookup is a linear search.
    mod model {
        use super::*;

        pub(super) fn errors(network: &Network) -> Vec<WiringError> {
            let mut errors = Vec::new();
            for (index, app) in network.apps.iter().enumerate() {
                if network.apps[..index].iter().any(|other| other.name == app.name) {
                    errors.push(WiringError::DuplicateApp { app: app.name.to_owned() });
                }
            }
            for (index, link) in network.links.iter().enumerate() {
                match network.links[..index].iter().position(|other| other == link) {
                    Some(first) => errors.push(WiringError::DuplicateLink { link: index, spec: link.clone(), first }),
                    None => errors.extend(link_errors(network, index, link)),
                }
            }
            for app in &network.apps {
                errors.extend(open_ports(network, app));
            }
            errors
        }

        fn link_errors(network: &Network, index: usize, link: &LinkSpec) -> Vec<WiringError> {
            let mut errors = Vec::new();
            for (side, end) in [(Side::Output, &link.from), (Side::Input, &link.to)] {
                match network.apps.iter().find(|app| app.name == end.app) {
                    None => {
                        let known = network.apps.iter().map(|app| app.name.to_owned()).collect();
                        errors.push(WiringError::UnknownApp { link: index, side, name: end.app.clone(), known });
                    }
                    Some(app) => {
                        if let Ports::Named(named) = app.ports(side).unwrap()
                            && !named.iter().any(|port| port.name == end.port)
                        {
                            let (end, kind) = (end.clone(), app.ports.unwrap().0.to_owned());
                            let known = named.iter().map(|port| port.name.to_owned()).collect();
                            errors.push(WiringError::UnknownPort { link: index, side, end, kind, known });
                        }
                    }
                }
                if let Some(first) = network.links[..index].iter().position(|other| other.end(side) == end) {
                    errors.push(WiringError::LinkedTwice { link: index, side, end: end.clone(), first });
                }
            }
            if link.from.app == link.to.app {
                errors.push(WiringError::SelfLink { link: index, app: link.from.app.clone() });
            }
            errors
        }

        fn open_ports(network: &Network, app: &WiredApp<'_>) -> Vec<WiringError> {
            let once = |index: &usize| !network.links[..*index].contains(&network.links[*index]);
            let links: Vec<&LinkSpec> =
                (0..network.links.len()).filter(once).map(|index| &network.links[index]).collect();
            let linked = |side: Side| links.iter().map(move |link| link.end(side)).filter(|end| end.app == app.name);
            let mut errors = Vec::new();
            for side in [Side::Input, Side::Output] {
                match app.ports(side).unwrap() {
                    Ports::Named(ports) => {
                        let open =
                            ports.iter().filter(|port| port.required && !linked(side).any(|end| end.port == port.name));
                        errors.extend(open.map(|port| WiringError::OpenPort {
                            side,
                            end: LinkEnd { app: app.name.to_owned(), port: port.name.to_owned() },
                            help: port.help,
                        }));
                    }
                    Ports::Any { at_least, help } => {
                        let count = linked(side).count();
                        if count < at_least {
                            errors.push(WiringError::TooFewPorts {
                                side,
                                app: app.name.to_owned(),
                                count,
                                at_least,
                                help,
                            });
                        }
                    }
                }
            }
            errors
        }
    }

    /// An end from few names, so that links often share one. No app has the last name.
    fn an_end() -> impl Strategy<Value = LinkEnd> {
        (0usize..7, 0usize..5).prop_map(|(app, port)| LinkEnd {
            app: ["s", "t", "u", "v", "w", "x", "nobody"][app].to_owned(),
            port: ["input", "output", "a", "b", "c"][port].to_owned(),
        })
    }

    proptest! {
        #[test]
        fn the_errors_equal_those_of_the_naive_model(
            apps in proptest::collection::vec((0usize..6, 0usize..3), 0..8),
            links in proptest::collection::vec((an_end(), an_end()), 0..12),
        ) {
            let mut network = apps.into_iter().fold(Network::default(), |network, (name, kind)| {
                let name = ["s", "t", "u", "v", "w", "x"][name];
                match kind {
                    0 => network.app(name, SOURCE),
                    1 => network.app(name, TEE),
                    _ => network.app(name, SWITCH),
                }
            });
            network.links = links.into_iter().map(|(from, to)| LinkSpec { from, to }).collect();
            prop_assert_eq!(network.errors(), model::errors(&network));
        }
    }

    #[test]
    fn the_errors_of_one_network_share_the_names_of_its_apps() {
        let network = Network::default().app("s", SOURCE);
        let network =
            ["1", "2", "3"].iter().fold(network, |network, port| network.link(&format!("x.{port} -> y.{port}")));
        let known = network.errors().into_iter().filter_map(|error| match error {
            WiringError::UnknownApp { known, .. } => Some(known),
            _ => None,
        });
        let known: Vec<Arc<[String]>> = known.collect();
        assert_eq!(known.len(), 6);
        assert!(known.iter().all(|names| Arc::ptr_eq(names, &known[0])));
    }
}
