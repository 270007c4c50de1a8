//! Networks for benchmarks.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bellows_apps::registry;
use bellows_config::{Configure, Context, Overrides, load_str};
use bellows_engine::Network;
use bellows_observe::SearchPath;
use bellows_sys::private_folder;

use crate::report::BenchError;
use crate::workers::fail;

/// Creates an app of the catalogue.
pub(crate) fn configured<A: Configure>(config: A::Config) -> A {
    A::configure(config, &Context::default()).unwrap_or_else(|mistake| fail(&mistake))
}

/// Adds links to a network.
pub(crate) fn linked(network: Network, links: impl IntoIterator<Item = impl AsRef<str>>) -> Network {
    links.into_iter().fold(network, |network, link| network.link(link.as_ref()).unwrap_or_else(|error| fail(&error)))
}

/// Loads a network from a text.
pub(crate) fn loaded(text: &str) -> Network {
    match load_str(text, "bench.toml", Path::new("."), &registry(), &Overrides::default()) {
        Ok(loaded) => loaded.network,
        Err(diagnostics) => fail(&diagnostics),
    }
}

/// Builds the text of a network file.
#[derive(Default)]
pub(crate) struct Text {
    links: String,
    /// The tables of apps and workers.
    tables: String,
}

impl Text {
    /// Adds an app with its keys.
    pub(crate) fn app(&mut self, name: &str, kind: &str, keys: &str) {
        let _ = write!(self.tables, "[apps.{name}]\napp = \"{kind}\"\n{keys}\n");
    }

    /// Adds a worker.
    pub(crate) fn worker(&mut self, name: &str) {
        let _ = write!(self.tables, "[workers.{name}]\n\n");
    }

    /// Adds a link.
    pub(crate) fn link(&mut self, from: &str, to: &str) {
        let _ = writeln!(self.links, "  \"{from} -> {to}\",");
    }

    /// The text of the file.
    pub(crate) fn finish(self) -> String {
        format!("links = [\n{}]\n\n{}", self.links, self.tables)
    }
}

/// A folder for sockets or counters, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// A new folder for a benchmark.
    ///
    /// # Errors
    /// [`BenchError::Folder`].
    pub(crate) fn new(bench: &str) -> Result<Folder, BenchError> {
        Folder::within(&std::env::temp_dir(), bench)
    }

    /// A new folder where engines have their counters: on tmpfs, or wherever this user has chosen.
    ///
    /// # Errors
    /// [`BenchError::Folder`].
    pub(crate) fn beside_counters(bench: &str) -> Result<Folder, BenchError> {
        let own = SearchPath::current().own;
        let found = own.iter().filter_map(|path| path.parent()).find_map(|path| Folder::within(path, bench).ok());
        found.map_or_else(|| Folder::new(bench), Ok)
    }

    fn within(path: &Path, bench: &str) -> Result<Folder, BenchError> {
        let name = format!("bellows-{bench}");
        let made = private_folder::fresh(path, &name);
        made.map(Folder).map_err(|error| BenchError::Folder(path.join(name), error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The number of sites in the production network.
const SITES: usize = 6;

/// A network like that of a provider of private Ethernet networks, with 30 apps and 58 links: frames from two lines are
/// distributed to six sites, counted, copied to every other site, and limited to each site's rate. Its sources send one
/// packet at once and the next after an hour.
pub(crate) fn production() -> Network {
    let mut text = Text::default();
    for line in ["uplink", "access"] {
        text.app(line, "source", "rate = 0.0003\nheaders = \"ethernet\"");
        text.link(&format!("{line}.output"), &format!("ingress.{line}"));
    }
    text.app("ingress", "join", "");
    text.app("share", "rss", "");
    text.link("ingress.output", "share.input");
    for site in 0..SITES {
        text.app(&format!("count-{site}"), "counter", "");
        text.app(&format!("flood-{site}"), "tee", "");
        text.app(&format!("merge-{site}"), "join", "");
        text.app(&format!("limit-{site}"), "rate-limiter", "rate = \"1Gb/s\"\nqueue = 1000");
        text.link(&format!("share.site-{site}"), &format!("count-{site}.input"));
        text.link(&format!("count-{site}.output"), &format!("flood-{site}.input"));
        for other in (0..SITES).filter(|&other| other != site) {
            text.link(&format!("flood-{site}.site-{other}"), &format!("merge-{other}.site-{site}"));
        }
        text.link(&format!("merge-{site}.output"), &format!("limit-{site}.input"));
        text.link(&format!("limit-{site}.output"), &format!("egress.site-{site}"));
    }
    text.app("egress", "join", "");
    text.app("wire", "sink", "");
    text.link("egress.output", "wire.input");
    loaded(&text.finish())
}

#[cfg(test)]
mod tests {
    use bellows_engine::{Engine, Settings};

    use super::*;

    #[test]
    fn the_production_network_floods_the_first_packets_and_is_idle_then() {
        let network = production();
        assert_eq!((network.apps.len(), network.links.len()), (30, 58));
        let mut engine = Engine::new(network, Settings::default(), None).unwrap();
        assert_eq!(engine.breathe_times(100), 1);
        let snapshot = engine.snapshot();
        let wire = snapshot.links.iter().find(|link| link.to == "wire.input").unwrap();
        assert_eq!(wire.packets, 2 * (SITES as u64 - 1), "each of two packets to all sites but the one it came from");
        assert_eq!(snapshot.dropped(), 0);
    }
}
