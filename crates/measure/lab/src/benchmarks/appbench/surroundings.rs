//! What apps need besides their keys: shared objects, and packets that other apps have changed and tagged.

use std::sync::{Arc, Mutex, PoisonError};

use bellows_basic::sink::Sink;
use bellows_config::{BenchFiles, BenchRow, BenchSetup, BenchStep, Registry};
use bellows_engine::{App, AppSpec, Engine, Io, Network, Port, Ports, Settings};
use bellows_packet::Packet;

use super::ChainRow;
use crate::supply::{Frame, SupplyConfig, pair};
use crate::traffic::Traffic;

/// Breaths after the last packet was sent, in which packets leave the apps.
const LAST_BREATHS: usize = 64;

impl ChainRow {
    /// The row, and its packets unless others are chosen, with what its first app says that it needs. An app that needs
    /// objects, prepared packets or named inputs may be written without keys: it gets those of its own benchmark.
    pub(super) fn surrounded(self, registry: &Registry) -> (ChainRow, Option<Traffic>) {
        let first = self.apps.split(['(', '|']).next().unwrap_or_default().trim();
        let Some(own) = own_row(first, registry) else { return (self, None) };
        let is_bare = is_bare(&self.apps);
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let apps = if is_bare { own.app(first) } else { self.apps.clone() };
        let against = match own_row(self.against.trim(), registry) {
            Some(own) if is_bare_name(&self.against) => own.app(self.against.trim()),
            _ => self.against,
        };
        let inputs = if self.inputs.is_empty() { owned(own.inputs) } else { self.inputs };
        let outputs = if self.outputs.is_empty() && is_bare { owned(own.outputs) } else { self.outputs };
        // A test parses every row's.
        let traffic = own.traffic.parse().ok();
        (ChainRow { apps, against, inputs, outputs, objects: own.objects, before: own.before }, traffic)
    }

    /// A sentence for the report about the apps in front of the measured ones.
    pub(super) fn remark(&self) -> Option<String> {
        let before: Vec<String> = self.before.iter().map(|step| format!("`{}`", step.app)).collect();
        let s = if before.len() == 1 { "has" } else { "have" };
        (!before.is_empty()).then(|| {
            format!(
                "packets are as {} {s} passed them on; that is done in advance, and not measured",
                before.join(", ")
            )
        })
    }
}

/// Whether a row is the type of a single app.
fn is_bare(apps: &str) -> bool {
    !apps.contains(['(', '|'])
}

fn is_bare_name(apps: &str) -> bool {
    !apps.is_empty() && is_bare(apps)
}

/// The first benchmark of an app type, if it has more than keys.
fn own_row(app: &str, registry: &Registry) -> Option<BenchRow> {
    // Apps that need files have only keys.
    match registry.get(app)?.bench(&BenchFiles::new("", "")) {
        BenchSetup::Rows(rows) => {
            rows.into_iter().next().filter(|row| row.has_surroundings() || !row.inputs.is_empty())
        }
        BenchSetup::Unmeasured(_) => None,
    }
}

/// The frames of a traffic, as these apps pass them on.
///
/// # Errors
/// If the frames cannot be made, or none of them passes.
pub(super) fn passed(
    config: &SupplyConfig,
    steps: &[BenchStep],
    apps: Vec<AppSpec>,
    burst: usize,
) -> Result<Vec<Frame>, String> {
    let frames = config.traffic.frames().map_err(|error| error.to_string())?;
    if steps.is_empty() {
        return Ok(frames.into_iter().map(|bytes| Frame { bytes, tag: 0 }).collect());
    }
    let settings = Settings { burst, sampling: false, ..Settings::default() };
    let (supply, _handle) =
        pair(&SupplyConfig::new(config.traffic.clone()), burst).map_err(|error| error.to_string())?;
    let arrived = Arc::default();
    let names: Vec<String> = apps.iter().map(|app| app.name.clone()).collect();
    let others: Vec<String> = steps.iter().zip(&apps).flat_map(|(step, app)| other_outputs(step, app)).collect();
    let network = Network { apps, ..Network::default() }
        .app(FIRST, supply)
        .app(LAST, Recorder { arrived: Arc::clone(&arrived), wanted: frames.len() });
    let mut from = format!("{FIRST}.output");
    let mut links = Vec::new();
    for (step, name) in steps.iter().zip(&names) {
        links.push(format!("{from} -> {name}.{}", step.input));
        from = format!("{name}.{}", step.output);
    }
    links.push(format!("{from} -> {LAST}.input"));
    let linked = links.iter().try_fold(network, |network, link| network.link(link));
    let mut network = linked.map_err(|error| error.to_string())?;
    for (place, output) in others.iter().enumerate() {
        let name = format!("{LAST}-{place}");
        network =
            network.app(&name, Sink).link(&format!("{output} -> {name}.input")).map_err(|error| error.to_string())?;
    }
    let mut engine = Engine::new(network, settings, None).map_err(|error| error.to_string())?;
    engine.breathe_times((frames.len().div_ceil(burst) + LAST_BREATHS) as u64);
    drop(engine);
    let frames = std::mem::take(&mut *arrived.lock().unwrap_or_else(PoisonError::into_inner));
    if frames.is_empty() {
        let before = steps.iter().map(|step| format!("`{}`", step.app)).collect::<Vec<_>>().join(", ");
        return Err(format!(
            "no packet of `{}` passes {before}, which are in front of the measured apps; choose other packets with \
             --traffic",
            config.traffic
        ));
    }
    Ok(frames)
}

/// Outputs of an app that must be linked, but are not those by which packets go on.
fn other_outputs(step: &BenchStep, app: &AppSpec) -> Vec<String> {
    let Ports::Named(ports) = app.info().outputs else { return Vec::new() };
    let others = ports.iter().filter(|port| port.required && port.name != step.output);
    others.map(|port| format!("{}.{}", app.name, port.name)).collect()
}

/// The names of the ends, which no app type has.
const FIRST: &str = "benchmark-source";
const LAST: &str = "benchmark-sink";

/// Records the packets that arrive, up to a number.
struct Recorder {
    arrived: Arc<Mutex<Vec<Frame>>>,
    wanted: usize,
}

impl App for Recorder {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "the packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let mut input = io.input(0);
        let wanted = self.wanted - arrived.len();
        let frame = |packet: &Packet| Frame { bytes: packet.bytes().to_vec(), tag: packet.tag() };
        arrived.extend(input.packets().iter().take(wanted).map(frame));
        input.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(apps: &str) -> (ChainRow, Option<Traffic>) {
        ChainRow { apps: apps.to_owned(), ..ChainRow::default() }.surrounded(&bellows_apps::registry())
    }

    fn frames(apps: &str, traffic: &str) -> Result<Vec<Frame>, String> {
        let (row, _) = row(apps);
        let (_, before) = row.read_behind("", &bellows_apps::registry()).unwrap();
        passed(&SupplyConfig::new(traffic.parse().unwrap()), &row.before, before, 128)
    }

    #[test]
    fn an_app_of_a_router_gets_a_domain_and_ports_of_its_own() {
        let (alone, traffic) = row("ethernet-input");
        assert_eq!((&*alone.apps, &alone.inputs[..]), ("ethernet-input(vrf = \"router\")", &["in".to_owned()][..]));
        assert!(alone.objects.contains("[objects.router]") && alone.before.is_empty() && alone.remark().is_none());
        assert_eq!(traffic.unwrap().to_string(), "ipv4");
        let (rewrite, _) = row("ip4-rewrite");
        assert_eq!(rewrite.outputs, ["out"]);
        let remark = rewrite.remark().unwrap();
        assert!(remark.contains("`ethernet-input`, `ip4-input`, `ip4-lookup` have passed them on"), "{remark}");
        let (keys, _) = row("ip4-lookup(vrf = \"router\", prefetch = 4) | counter");
        assert!(keys.apps.starts_with("ip4-lookup(vrf = \"router\", prefetch = 4)") && !keys.objects.is_empty());
        let against =
            ChainRow { apps: "ip4-lookup".to_owned(), against: "ip4-lookup".to_owned(), ..ChainRow::default() };
        let (against, _) = against.surrounded(&bellows_apps::registry());
        assert_eq!(against.apps, against.against);
    }

    #[test]
    fn other_apps_are_as_they_are_written() {
        for apps in ["tee", "truncate", "rss", "nonsense", "source | sink"] {
            let (found, traffic) = row(apps);
            assert_eq!((found, traffic), (ChainRow { apps: apps.to_owned(), ..ChainRow::default() }, None));
        }
    }

    #[test]
    fn packets_are_as_the_apps_in_front_pass_them_on() {
        let plain = frames("tee", "ipv4").unwrap();
        assert!(plain.len() == 1024 && plain.iter().all(|frame| frame.tag == 0));
        let found = frames("ip4-rewrite", "ipv4").unwrap();
        assert!(plain.iter().zip(&found).all(|(plain, found)| plain.bytes == found.bytes), "in the same order");
        let tags: std::collections::BTreeSet<u32> = found.iter().map(|frame| frame.tag).collect();
        assert!(tags.len() >= 16 && !tags.contains(&0), "an adjacency for each next hop: {tags:?}");
        let error = frames("ip4-rewrite", "ethernet").unwrap_err();
        assert!(error.contains("no packet of `ethernet` passes `ethernet-input`"), "{error}");
        assert!(error.contains("--traffic"), "{error}");
    }
}
