//! A network: named apps, and links between their ports.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use crate::app::{App, Erased, Ports, Traits};

/// One app of a network, made but not started.
pub struct AppSpec {
    /// Its name in links and reports.
    pub name: String,
    /// Its type's name.
    pub kind: String,
    /// Two apps of one name, kind and fingerprint are the same: a reload keeps the old one.
    pub fingerprint: String,
    pub(crate) traits: Traits,
    pub(crate) app: Box<dyn Erased>,
}

impl AppSpec {
    /// An app of any type under a name.
    pub fn new<A: App>(name: &str, kind: &str, fingerprint: &str, app: A) -> AppSpec {
        AppSpec {
            name: name.to_owned(),
            kind: kind.to_owned(),
            fingerprint: fingerprint.to_owned(),
            traits: Traits::of::<A>(),
            app: Box::new(app),
        }
    }

    /// What the engine knows of its type.
    pub fn traits(&self) -> Traits {
        self.traits
    }

    /// Has the inputs' iterators fetch the packets' data so many packets ahead, at most 64, in place of what the app
    /// [says](App::PREFETCH). A reload takes an app with another distance for another app.
    #[must_use]
    pub fn prefetching(mut self, packets: usize) -> AppSpec {
        self.traits.prefetch = packets;
        self.fingerprint.push_str(&format!(" prefetching {packets}"));
        self
    }
}

impl fmt::Debug for AppSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.kind)
    }
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// The app's name.
    pub app: String,
    /// The port's name.
    pub port: String,
}

impl End {
    /// Whether a link can name an app or a port so.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || "<>".contains(c))
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.app, self.port)
    }
}

/// A link: packets go from an output of one app to an input of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkSpec {
    /// The output.
    pub from: End,
    /// The input.
    pub to: End,
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} -> {}", self.from, self.to)
    }
}

/// A text is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a link; write it as `app.output -> app.input`")]
pub struct LinkSyntaxError(pub String);

impl std::str::FromStr for LinkSpec {
    type Err = LinkSyntaxError;

    /// Reads `app.output -> app.input`. App names may hold dots; the port is what follows the last.
    fn from_str(text: &str) -> Result<LinkSpec, LinkSyntaxError> {
        let end = |text: &str| {
            let (app, port) = text.trim().rsplit_once('.')?;
            (End::is_name(app) && End::is_name(port)).then(|| End { app: app.to_owned(), port: port.to_owned() })
        };
        let parsed = text.split_once("->").and_then(|(from, to)| Some(LinkSpec { from: end(from)?, to: end(to)? }));
        parsed.ok_or_else(|| LinkSyntaxError(text.to_owned()))
    }
}

/// Apps and links, the description of what an engine runs.
#[derive(Debug, Default)]
pub struct Network {
    /// The apps, in order.
    pub apps: Vec<AppSpec>,
    /// The links, in order.
    pub links: Vec<LinkSpec>,
    /// File that it was read from, for reports; may be empty.
    pub source: String,
    /// Its text, for reports; may be empty.
    pub text: String,
}

impl Network {
    /// A network of nothing.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds an app, for networks that are built by a program rather than read from a file.
    pub fn app<A: App>(mut self, name: &str, app: A) -> Network {
        self.apps.push(AppSpec::new(name, std::any::type_name::<A>(), "", app));
        self
    }

    /// Adds a link, written as `app.output -> app.input`.
    ///
    /// # Errors
    /// When the text is no link. Whether its ends exist is found by [`Network::faults`].
    pub fn link(mut self, link: &str) -> Result<Network, LinkSyntaxError> {
        self.links.push(link.parse()?);
        Ok(self)
    }

    /// Everything that is wrong with the way the network is put together; empty if it can run.
    pub fn faults(&self) -> Vec<Fault> {
        let apps: Vec<WiredApp<'_>> = self.apps.iter().map(AppSpec::wired).collect();
        wiring_faults(&apps, &self.links)
    }
}

/// An app as links see it, whether it has been made or not.
#[derive(Clone, Copy, Debug)]
pub struct WiredApp<'n> {
    /// Its name in links.
    pub name: &'n str,
    /// Its type's name, and its inputs and outputs; `None` if the type is unknown. Then every port may exist, and none
    /// must be linked.
    pub ports: Option<(&'n str, Ports, Ports)>,
}

impl WiredApp<'_> {
    fn ports(&self, side: Side) -> Option<Ports> {
        let (_, inputs, outputs) = self.ports?;
        Some(match side {
            Side::Input => inputs,
            Side::Output => outputs,
        })
    }
}

/// Everything that is wrong with the way links join apps: first what is wrong with the links, in their order, then the
/// ports that lack one, in the order of the apps. Of several apps of one name, links mean the first.
///
/// [`Network::faults`] asks for apps that have been made; who reads a description of a network can also ask for those
/// that could not be made.
pub fn wiring_faults(apps: &[WiredApp<'_>], links: &[LinkSpec]) -> Vec<Fault> {
    let mut check = Check::new(apps, links.len());
    for (index, link) in links.iter().enumerate() {
        check.link(index, link);
    }
    for app in apps {
        check.open_ports(app);
    }
    check.faults
}

/// A network being checked. What a name or a port stands for is looked up by hash, so that the largest networks are
/// checked in time that grows with their size and no faster.
struct Check<'n> {
    apps: &'n [WiredApp<'n>],
    by_name: HashMap<&'n str, &'n WiredApp<'n>>,
    /// The first of each link.
    written: HashMap<&'n LinkSpec, usize>,
    /// The first link of each end on each side.
    first: HashMap<(Side, &'n End), usize>,
    /// How many links each app has on each side.
    count: HashMap<(Side, &'n str), usize>,
    /// The names of all apps, once one is asked for that is not there.
    known: Option<Arc<[String]>>,
    faults: Vec<Fault>,
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
            faults: Vec::new(),
        };
        for app in apps {
            match check.by_name.entry(app.name) {
                Entry::Vacant(free) => {
                    free.insert(app);
                }
                Entry::Occupied(_) => check.faults.push(Fault::DuplicateApp { app: app.name.to_owned() }),
            }
        }
        check
    }

    fn link(&mut self, index: usize, link: &'n LinkSpec) {
        match self.written.entry(link) {
            Entry::Vacant(free) => {
                free.insert(index);
            }
            // That both its ends are linked twice follows.
            Entry::Occupied(first) => {
                return self.faults.push(Fault::DuplicateLink { link: index, spec: link.clone(), first: *first.get() });
            }
        }
        for side in [Side::Output, Side::Input] {
            let end = link.end(side);
            match self.by_name.get(end.app.as_str()) {
                Some(app) => self.port(index, side, end, app),
                None => {
                    let names = || self.apps.iter().map(|app| app.name.to_owned()).collect();
                    let known = Arc::clone(self.known.get_or_insert_with(names));
                    self.faults.push(Fault::UnknownApp { link: index, side, name: end.app.clone(), known });
                }
            }
            match self.first.entry((side, end)) {
                Entry::Vacant(free) => {
                    free.insert(index);
                }
                Entry::Occupied(first) => {
                    self.faults.push(Fault::LinkedTwice { link: index, side, end: end.clone(), first: *first.get() });
                }
            }
        }
        if link.from.app == link.to.app {
            self.faults.push(Fault::SelfLink { link: index, app: link.from.app.clone() });
        }
    }

    /// Checks the port at one end of a link whose app there is.
    fn port(&mut self, link: usize, side: Side, end: &'n End, app: &WiredApp<'_>) {
        if let (Some((kind, ..)), Some(Ports::Named(named))) = (app.ports, app.ports(side))
            && !named.iter().any(|port| port.name == end.port)
        {
            let known = named.iter().map(|port| port.name.to_owned()).collect();
            self.faults.push(Fault::UnknownPort { link, side, end: end.clone(), kind: kind.to_owned(), known });
        }
        *self.count.entry((side, &end.app)).or_default() += 1;
    }

    fn open_ports(&mut self, app: &WiredApp<'_>) {
        for side in [Side::Input, Side::Output] {
            match app.ports(side) {
                None => {}
                Some(Ports::Named(ports)) => {
                    for port in ports.iter().filter(|port| port.required) {
                        let end = End { app: app.name.to_owned(), port: port.name.to_owned() };
                        if !self.first.contains_key(&(side, &end)) {
                            self.faults.push(Fault::OpenPort { side, end, help: port.help });
                        }
                    }
                }
                Some(Ports::Any { at_least, help }) => {
                    let count = self.count.get(&(side, app.name)).copied().unwrap_or(0);
                    if count < at_least {
                        let app = app.name.to_owned();
                        self.faults.push(Fault::TooFewPorts { side, app, count, at_least, help });
                    }
                }
            }
        }
    }
}

impl AppSpec {
    fn wired(&self) -> WiredApp<'_> {
        WiredApp { name: &self.name, ports: Some((&self.kind, self.traits.inputs, self.traits.outputs)) }
    }
}

impl LinkSpec {
    /// The end on a side: the output that it comes from, or the input that it goes to.
    pub fn end(&self, side: Side) -> &End {
        match side {
            Side::Output => &self.from,
            Side::Input => &self.to,
        }
    }
}

/// Which way packets go through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Into the app.
    Input,
    /// Out of the app.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Side::Input => "input",
            Side::Output => "output",
        })
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}

/// Something wrong with the way a network is put together. `link` is the link's position in [`Network::links`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Two apps have one name.
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
        /// What it says.
        spec: LinkSpec,
        /// The first of them.
        first: usize,
    },
    /// A link names an app that is not there.
    #[error("there is no app `{name}`; the network has {}", list(known))]
    UnknownApp {
        /// The link.
        link: usize,
        /// Which end of it.
        side: Side,
        /// The name as written.
        name: String,
        /// The names that there are; the faults of one network share them.
        known: Arc<[String]>,
    },
    /// A link names a port that its app has not.
    #[error("`{}` ({kind}) has no {side} `{}`; its {side}s: {}", end.app, end.port, list(known))]
    UnknownPort {
        /// The link.
        link: usize,
        /// Which end of it.
        side: Side,
        /// The end as written.
        end: End,
        /// The app's type.
        kind: String,
        /// The ports that there are.
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
        end: End,
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
        /// Which way packets would go.
        side: Side,
        /// The port.
        end: End,
        /// What goes through it.
        help: &'static str,
    },
    /// An app with any number of ports has too few.
    #[error("`{app}` has {count} {side}s linked; it needs {at_least} or more")]
    TooFewPorts {
        /// Which way packets would go.
        side: Side,
        /// The app.
        app: String,
        /// How many there are.
        count: usize,
        /// How many it needs.
        at_least: usize,
        /// What goes through them.
        help: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::app::Port;

    struct Source;
    impl App for Source {
        const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);
    }

    struct Tee;
    impl App for Tee {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
        const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "copies" };
    }

    #[test]
    fn links_read_as_they_are_written() {
        let link: LinkSpec = " a.b.output->c.input ".parse().unwrap();
        assert_eq!(link.to_string(), "a.b.output -> c.input");
        for text in ["", "a.b", "a -> b.c", "a.b -> ", ".b -> c.d", "a. -> c.d", "a.b -> c.d -> e.f", "a b.c -> d.e"] {
            assert!(text.parse::<LinkSpec>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_network_that_is_put_together_right_has_no_faults() {
        let network = Network::new().app("s", Source).app("t", Tee).app("u", Tee);
        let network = network.link("s.output -> t.input").unwrap();
        assert_eq!(network.faults().len(), 3, "t has no output, u neither output nor input");
        let network = network.link("t.any -> u.input").unwrap();
        assert_eq!(
            network.faults(),
            [Fault::TooFewPorts { side: Side::Output, app: "u".into(), count: 0, at_least: 1, help: "copies" }]
        );
    }

    #[test]
    fn every_fault_is_found_and_says_what_there_is() {
        let network = Network::new().app("s", Source).app("t", Tee).app("t", Tee);
        let links = ["s.out -> t.input", "x.a -> t.input", "t.a -> t.b", "s.out -> t.input", "x.a -> t.input"];
        let network = links.into_iter().fold(network, |network, link| network.link(link).unwrap());
        let faults: Vec<String> = network.faults().iter().map(Fault::to_string).collect();
        for expected in [
            "there are two apps named `t`",
            "`s` (bellows_engine::network::tests::Source) has no output `out`; its outputs: `output`",
            "there is no app `x`; the network has `s`, `t`, `t`",
            "the input `t.input` is linked twice; put a `tee` or a `join` between",
            "a link leads from `t` to itself; put another app between",
            "the output `s.output` is not linked (packets)",
            "the link `s.out -> t.input` is written twice; remove one of them",
            "the link `x.a -> t.input` is written twice; remove one of them",
        ] {
            assert_eq!(faults.iter().filter(|fault| *fault == expected).count(), 1, "{expected} in {faults:#?}");
        }
    }

    #[test]
    fn of_an_app_of_unknown_type_no_port_is_missed_or_unknown() {
        let tee = ("tee", Tee::INPUTS, Tee::OUTPUTS);
        let apps = [WiredApp { name: "new", ports: None }, WiredApp { name: "t", ports: Some(tee) }];
        let links = ["new.any -> t.input", "t.a -> new.thing", "t.b -> new.thing"].map(|link| link.parse().unwrap());
        let end = End { app: "new".into(), port: "thing".into() };
        assert_eq!(wiring_faults(&apps, &links), [Fault::LinkedTwice { link: 2, side: Side::Input, end, first: 1 }]);
        assert_eq!(wiring_faults(&apps, &links[..2]), []);
        assert_eq!(wiring_faults(&apps[..1], &[]), []);
    }

    /// What [`Network::faults`] must find, in the plainest words: each question is answered by a look at everything.
    mod model {
        use super::*;

        pub(super) fn faults(network: &Network) -> Vec<Fault> {
            let mut faults = Vec::new();
            for (index, app) in network.apps.iter().enumerate() {
                if network.apps[..index].iter().any(|other| other.name == app.name) {
                    faults.push(Fault::DuplicateApp { app: app.name.clone() });
                }
            }
            for (index, link) in network.links.iter().enumerate() {
                match network.links[..index].iter().position(|other| other == link) {
                    Some(first) => faults.push(Fault::DuplicateLink { link: index, spec: link.clone(), first }),
                    None => faults.extend(link_faults(network, index, link)),
                }
            }
            for app in &network.apps {
                faults.extend(open_ports(network, app));
            }
            faults
        }

        fn ports(app: &AppSpec, side: Side) -> Ports {
            if side == Side::Input { app.traits.inputs } else { app.traits.outputs }
        }

        fn link_faults(network: &Network, index: usize, link: &LinkSpec) -> Vec<Fault> {
            let mut faults = Vec::new();
            for (side, end) in [(Side::Output, &link.from), (Side::Input, &link.to)] {
                match network.apps.iter().find(|app| app.name == end.app) {
                    None => {
                        let known = network.apps.iter().map(|app| app.name.clone()).collect();
                        faults.push(Fault::UnknownApp { link: index, side, name: end.app.clone(), known });
                    }
                    Some(app) => {
                        if let Ports::Named(named) = ports(app, side)
                            && !named.iter().any(|port| port.name == end.port)
                        {
                            let (end, kind) = (end.clone(), app.kind.clone());
                            let known = named.iter().map(|port| port.name.to_owned()).collect();
                            faults.push(Fault::UnknownPort { link: index, side, end, kind, known });
                        }
                    }
                }
                if let Some(first) = network.links[..index].iter().position(|other| other.end(side) == end) {
                    faults.push(Fault::LinkedTwice { link: index, side, end: end.clone(), first });
                }
            }
            if link.from.app == link.to.app {
                faults.push(Fault::SelfLink { link: index, app: link.from.app.clone() });
            }
            faults
        }

        fn open_ports(network: &Network, app: &AppSpec) -> Vec<Fault> {
            let once = |index: &usize| !network.links[..*index].contains(&network.links[*index]);
            let links: Vec<&LinkSpec> =
                (0..network.links.len()).filter(once).map(|index| &network.links[index]).collect();
            let linked = |side: Side| links.iter().map(move |link| link.end(side)).filter(|end| end.app == app.name);
            let mut faults = Vec::new();
            for side in [Side::Input, Side::Output] {
                match ports(app, side) {
                    Ports::Named(ports) => {
                        let open =
                            ports.iter().filter(|port| port.required && !linked(side).any(|end| end.port == port.name));
                        faults.extend(open.map(|port| Fault::OpenPort {
                            side,
                            end: End { app: app.name.clone(), port: port.name.to_owned() },
                            help: port.help,
                        }));
                    }
                    Ports::Any { at_least, help } => {
                        let count = linked(side).count();
                        if count < at_least {
                            faults.push(Fault::TooFewPorts { side, app: app.name.clone(), count, at_least, help });
                        }
                    }
                }
            }
            faults
        }
    }

    struct Switch;
    impl App for Switch {
        const INPUTS: Ports = Ports::Any { at_least: 2, help: "packets" };
        const OUTPUTS: Ports = Ports::Named(&[Port::required("a", "the first half"), Port::optional("b", "the rest")]);
    }

    /// An end of few words, so that links often meet; the last name is that of no app.
    fn an_end() -> impl Strategy<Value = End> {
        (0usize..7, 0usize..5).prop_map(|(app, port)| End {
            app: ["s", "t", "u", "v", "w", "x", "nobody"][app].to_owned(),
            port: ["input", "output", "a", "b", "c"][port].to_owned(),
        })
    }

    proptest! {
        #[test]
        fn the_faults_are_those_of_the_plain_search(
            apps in proptest::collection::vec((0usize..6, 0usize..3), 0..8),
            links in proptest::collection::vec((an_end(), an_end()), 0..12),
        ) {
            let mut network = apps.into_iter().fold(Network::new(), |network, (name, kind)| {
                let name = ["s", "t", "u", "v", "w", "x"][name];
                match kind {
                    0 => network.app(name, Source),
                    1 => network.app(name, Tee),
                    _ => network.app(name, Switch),
                }
            });
            network.links = links.into_iter().map(|(from, to)| LinkSpec { from, to }).collect();
            prop_assert_eq!(network.faults(), model::faults(&network));
        }
    }

    #[test]
    fn the_faults_of_one_network_share_the_names_of_its_apps() {
        let network = Network::new().app("s", Source);
        let network = ["1", "2", "3"]
            .iter()
            .fold(network, |network, port| network.link(&format!("x.{port} -> y.{port}")).unwrap());
        let known = network.faults().into_iter().filter_map(|fault| match fault {
            Fault::UnknownApp { known, .. } => Some(known),
            _ => None,
        });
        let known: Vec<Arc<[String]>> = known.collect();
        assert_eq!(known.len(), 6);
        assert!(known.iter().all(|names| Arc::ptr_eq(names, &known[0])));
    }
}
