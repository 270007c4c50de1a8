//! The plan of a measurement: the apps of the subject as they are read, and the two networks that are made of them.

use std::path::Path;

use bellows_config::{BenchStep, Loaded, Overrides, Registry, load, load_chain};
use bellows_engine::{AppSpec, Network, Settings};
use bellows_packet::pool;

use super::testbed::{Links, Supplies, Testbed};
use super::wiring::{self, Wiring};
use super::{AppbenchCell, AppbenchError, AppbenchOptions, ChainRow, InPlace, Run, Subject, surroundings};
use crate::supply::SupplyConfig;

/// The name of the command line's apps in error messages.
const APP: &str = "APP";

/// The analysed subject.
pub(super) struct AppbenchPlan<'s> {
    subject: &'s Subject,
    pub(super) settings: Settings,
    pub(super) wiring: Wiring,
    /// The baseline's apps, in the place of the measured ones.
    pub(super) against: Wiring,
    pub(super) has_baseline: bool,
    /// The names of the apps of both networks.
    names: Vec<String>,
    /// The name of the subject, and its own prefetch distance.
    pub(super) subject_name: String,
    pub(super) own_distance: usize,
    /// Sentences for the report.
    pub(super) remarks: Vec<String>,
}

impl<'s> AppbenchPlan<'s> {
    /// Whether the baseline contains other apps.
    pub(super) fn is_comparison(&self) -> bool {
        matches!(self.subject, Subject::Row(row) if !row.against.is_empty())
    }

    pub(super) fn of(options: &'s AppbenchOptions, registry: &Registry) -> Result<AppbenchPlan<'s>, AppbenchError> {
        let AppbenchOptions { subject, .. } = options;
        match subject {
            Subject::Row(row) => {
                let wire = |apps: &[AppSpec]| Wiring::of(apps, &row.inputs, &row.outputs);
                let (apps, others) = (row.read(&row.apps, registry)?, row.read(&row.against, registry)?);
                let (wiring, against) = (wire(&apps)?, wire(&others)?);
                let names = apps.iter().chain(&others).map(|app| app.name.clone()).collect();
                let remarks = row.remark().into_iter().chain(wiring.remarks()).collect();
                let settings = options.over(Settings::default());
                let own_distance = apps.iter().map(|app| app.info().prefetch).max().unwrap_or(0);
                let subject_name = apps.iter().map(|app| app.name.as_str()).collect::<Vec<_>>().join(" | ");
                Ok(AppbenchPlan {
                    subject,
                    settings,
                    wiring,
                    against,
                    has_baseline: true,
                    names,
                    subject_name,
                    own_distance,
                    remarks,
                })
            }
            Subject::InPlace(place) => {
                let Loaded { network, engine, .. } = place.load(registry)?;
                let Some(app) = network.apps.iter().find(|app| app.name == place.app) else {
                    let known: Vec<String> = network.apps.iter().map(|app| app.name.clone()).collect();
                    return Err(AppbenchError::NoApp { name: place.app.clone(), known: wiring::names(&known) });
                };
                let own_distance = app.info().prefetch;
                let bypass = Bypass::of(&network, &place.app);
                let remarks = bypass.remarks(&place.app);
                let has_baseline = matches!(bypass, Bypass::Possible);
                let (wiring, against) = Default::default();
                let settings = options.over(engine.settings());
                let subject_name = place.app.clone();
                Ok(AppbenchPlan {
                    subject,
                    settings,
                    wiring,
                    against,
                    has_baseline,
                    names: Vec::new(),
                    subject_name,
                    own_distance,
                    remarks,
                })
            }
        }
    }

    /// Makes one of the two networks.
    pub(super) fn testbed(
        &self,
        run: Run,
        settings: Settings,
        cell: AppbenchCell,
        supply_config: SupplyConfig,
        registry: &Registry,
    ) -> Result<Testbed, String> {
        let to_text = |error: AppbenchError| error.to_string();
        match self.subject {
            Subject::Row(row) => {
                let (apps, wiring) = match run {
                    Run::WithApp => (&row.apps, &self.wiring),
                    Run::Baseline => (&row.against, &self.against),
                };
                let (apps, before) = row.read_behind(apps, registry).map_err(to_text)?;
                let apps = fetching(apps, cell.prefetch);
                let frames = surroundings::passed(&supply_config, &row.before, before, settings.burst)?;
                let supplies = Supplies { frames, config: supply_config };
                Testbed::of_row(apps, wiring, self.wiring.fed.len(), &self.names, supplies, settings)
            }
            Subject::InPlace(place) => {
                let Loaded { mut network, engine, .. } = place.load(registry).map_err(to_text)?;
                // The first network of a process fixes the packet pool.
                let _ = pool::init(engine.pool_config());
                let mut links = Links::into(&network, &place.app);
                if run == Run::Baseline {
                    links = Bypass::take(&mut network, &place.app, links);
                } else if let Some(index) = network.apps.iter().position(|app| app.name == place.app) {
                    let rest = network.apps.split_off(index + 1);
                    let app = network.apps.pop().into_iter().collect();
                    network.apps.append(&mut fetching(app, cell.prefetch));
                    network.apps.extend(rest);
                }
                Testbed::in_place(network, &place.app, links, settings)
            }
        }
    }
}

/// Sets the prefetch distance of apps.
fn fetching(apps: Vec<AppSpec>, prefetch: Option<usize>) -> Vec<AppSpec> {
    match prefetch {
        Some(distance) => apps.into_iter().map(|app| app.prefetching(distance)).collect(),
        None => apps,
    }
}

impl ChainRow {
    fn read(&self, apps: &str, registry: &Registry) -> Result<Vec<AppSpec>, AppbenchError> {
        if apps.is_empty() {
            return Ok(Vec::new());
        }
        load_chain(apps, &self.objects, APP, Path::new(""), registry).map_err(AppbenchError::Diagnosed)
    }

    /// Apps of the row, and those in front of them, which share their objects.
    pub(super) fn read_behind(
        &self,
        apps: &str,
        registry: &Registry,
    ) -> Result<(Vec<AppSpec>, Vec<AppSpec>), AppbenchError> {
        let steps = self.before.iter().map(BenchStep::to_string);
        let all: Vec<String> = Some(apps.to_owned()).filter(|apps| !apps.is_empty()).into_iter().chain(steps).collect();
        // Those in front come last, because an app's name depends on the ones before it.
        let mut apps = self.read(&all.join(" | "), registry)?;
        let before = apps.split_off(apps.len() - self.before.len());
        Ok((apps, before))
    }
}

impl InPlace {
    fn load(&self, registry: &Registry) -> Result<Loaded, AppbenchError> {
        load(&self.file, registry, &Overrides::new(&self.set)).map_err(AppbenchError::Diagnosed)
    }
}

/// Whether a network can run without one of its apps.
enum Bypass {
    /// The app's input link can lead to the app's receiver.
    Possible,
    /// The app has this many inputs and outputs linked.
    Impossible { inputs: usize, outputs: usize },
}

/// A count with its noun.
fn plural(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

impl Bypass {
    fn of(network: &Network, app: &str) -> Bypass {
        let inputs = network.links.iter().filter(|link| link.to.app == app).count();
        let outputs = network.links.iter().filter(|link| link.from.app == app).count();
        if (inputs, outputs) == (1, 1) { Bypass::Possible } else { Bypass::Impossible { inputs, outputs } }
    }

    /// Removes the app from the network, and joins the links on both sides of it.
    fn take(network: &mut Network, app: &str, links: Links) -> Links {
        network.apps.retain(|spec| spec.name != app);
        let Some(from) = network.links.iter().position(|link| link.from.app == app) else { return links };
        let from = network.links.remove(from);
        for link in &mut network.links {
            if link.to.app == app {
                link.to = from.to.clone();
            }
        }
        Links::from(network, &from.to)
    }

    fn remarks(&self, app: &str) -> Vec<String> {
        match self {
            Bypass::Possible => vec![format!(
                "the baseline is the network without `{app}`, with the links on both sides joined; packets that \
                 `{app}` drops, copies or changes pass unchanged there, which is part of the difference"
            )],
            Bypass::Impossible { inputs, outputs } => vec![format!(
                "`{app}` has {} and {} linked, so the network cannot run without it: there is no baseline and no \
                 difference, only the live accounting",
                plural(*inputs, "input"),
                plural(*outputs, "output"),
            )],
        }
    }
}
