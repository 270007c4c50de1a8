//! The processors of a network's workers.

use bellows_engine::MAIN;
use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::crossings::ProcessorPair;
use bellows_inspect::placing::{Costs, PlacementPlan};
use bellows_inspect::processors::{Handlers, Machine};
use bellows_observe::{AppStatus, RuntimeDir};
use bellows_placement::processors::{Processor, Worker, assign, distance};
use bellows_sys::cpu;
use schemars::JsonSchema;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::terminal;

/// A port at a network interface.
#[derive(Debug)]
pub struct MachinePort {
    /// The app.
    pub app: String,
    /// The interface.
    pub interface: String,
    /// The processors that handle its interrupts.
    pub handlers: Handlers,
}

impl MachinePort {
    pub fn report(&self) -> PortReport<'_> {
        let (processors, source) = match &self.handlers {
            Ok((processors, source)) => (Some(&processors[..]), source),
            Err(why) => (None, why),
        };
        PortReport { app: &self.app, interface: &self.interface, processors, source }
    }
}

/// The processors of a port as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Processors of a port")]
pub struct PortReport<'p> {
    /// The app.
    app: &'p str,
    /// Its interface.
    interface: &'p str,
    /// Those on which the kernel receives its packets; null if unknown.
    processors: Option<&'p [usize]>,
    /// A sentence: how they are known, or why not.
    source: &'p str,
}

/// The processors among which to choose, and what decides.
#[derive(Debug)]
pub struct Choice {
    machine: Machine,
    pid: u32,
    /// All processors of the machine.
    all: Vec<Processor>,
    /// Those to use.
    pub usable: Vec<Processor>,
    /// Whether they were given on the command line.
    is_asked: bool,
    /// The network's ports at interfaces.
    pub ports: Vec<MachinePort>,
}

impl Choice {
    /// The processors of a network, or those `asked` for.
    ///
    /// # Errors
    /// If the network may not use a processor.
    pub fn new(machine: &Machine, runtime_dir: &RuntimeDir, asked: Option<&[usize]>) -> Result<Choice, CommandError> {
        let pid = runtime_dir.pid().unwrap_or(0);
        let allowed = machine.allowed(pid);
        let unusable = asked.unwrap_or_default().iter().find(|processor| !allowed.contains(processor));
        if let Some(unusable) = unusable {
            let allowed = cpu::ranges(&allowed);
            return Err(CommandError::Usage(format!(
                "--cpus: there is no processor {unusable} for this network; it may use {allowed}"
            )));
        }
        let all = machine.processors();
        let known = |&number: &usize| all.iter().copied().find(|processor| processor.number == number);
        let processor = |number| known(number).unwrap_or(Processor { number: *number, core: *number, node: 0 });
        let usable = asked.unwrap_or(&allowed).iter().map(processor).collect();
        let ports = ports(machine, runtime_dir);
        Ok(Choice { machine: machine.clone(), pid, all, usable, is_asked: asked.is_some(), ports })
    }

    /// Adds the processors to which the workers' threads are pinned.
    pub fn find_pinned(&self, plan: &mut PlacementPlan) {
        for load in &mut plan.workers {
            load.cpu = self.pinned(&load.name);
        }
    }

    fn pinned(&self, worker: &str) -> Option<usize> {
        let thread = if worker == MAIN { "engine".to_owned() } else { format!("worker {worker}") };
        self.machine.pinned(self.pid, &thread)
    }

    /// Adds the best processors. That of the first worker is left to the kernel, unless the processors were asked for,
    /// it has one already, or it has ports whose interrupts are known: it cannot change while the network runs.
    pub fn assign(&self, costs: &Costs, plan: &mut PlacementPlan) {
        let workers = self.workers(costs, plan);
        let processors = self.best(&workers);
        for ((load, worker), processor) in plan.workers.iter_mut().zip(&workers).zip(processors) {
            let is_wanted = self.is_asked || worker.today.is_some() || !worker.ports.is_empty();
            load.cpu = (load.name != MAIN || is_wanted).then_some(processor);
        }
    }

    /// The processors between which packets of a plan cross if its workers get the best ones; without a plan, those of
    /// two workers that exchange packets.
    pub fn crossing_pairs(&self, costs: &Costs, plan: Option<&PlacementPlan>) -> Vec<ProcessorPair> {
        let workers = match plan {
            Some(plan) => self.workers(costs, plan),
            None => {
                let first = Worker { today: self.pinned(MAIN), ..Worker::default() };
                vec![first, Worker { crossings: vec![(0, 1)], ..Worker::default() }]
            }
        };
        let processors = self.best(&workers);
        let mut pairs = Vec::new();
        for (worker, &own) in workers.iter().zip(&processors) {
            pairs.extend(worker.crossings.iter().map(|&(other, packets)| ([own, processors[other]], packets)));
        }
        pairs
    }

    /// The workers of a plan, with what decides about their processors.
    fn workers(&self, costs: &Costs, plan: &PlacementPlan) -> Vec<Worker> {
        let crossings = costs.crossings(plan);
        let worker = |(load, crossings): (&bellows_inspect::placing::Load, Vec<(usize, u64)>)| {
            let own = self.ports.iter().filter(|port| load.apps.contains(&port.app));
            let known =
                own.filter_map(|port| Some((costs.packets_of(&port.app), port.handlers.as_ref().ok()?.0.clone())));
            Worker { today: self.pinned(&load.name), ports: known.collect(), crossings }
        };
        plan.workers.iter().zip(crossings).map(worker).collect()
    }

    /// The best processors for workers, by number; none if there are none to use.
    fn best(&self, workers: &[Worker]) -> Vec<usize> {
        if self.usable.is_empty() {
            return Vec::new();
        }
        assign(workers, &self.usable, &self.all).into_iter().map(|place| self.usable[place].number).collect()
    }

    /// A warning for each pair of workers that share a core.
    pub fn shared_cores(&self, plan: &PlacementPlan) -> Vec<String> {
        let processor = |number: Option<usize>| self.usable.iter().find(|processor| Some(processor.number) == number);
        let mut warnings = Vec::new();
        for (at, one) in plan.workers.iter().enumerate() {
            for other in &plan.workers[..at] {
                let (Some(first), Some(second)) = (processor(one.cpu), processor(other.cpu)) else { continue };
                if distance(*first, *second) == 1 {
                    let numbers = format!("{} and {}", second.number, first.number);
                    warnings.push(format!(
                        "`{}` and `{}` share a core (processors {numbers}), so each is slower than expected here",
                        other.name, one.name
                    ));
                }
            }
        }
        warnings
    }
}

/// The ports at interfaces of the kernel, as the running apps report them.
fn ports(machine: &Machine, runtime_dir: &RuntimeDir) -> Vec<MachinePort> {
    let apps = match ask(runtime_dir, &Request::Apps) {
        Ok(Reply::Apps { apps, .. }) => apps,
        Ok(_) => Vec::new(),
        Err(failure) => {
            terminal::warn(&format!("{failure}; interrupts of interfaces are not considered\n"));
            Vec::new()
        }
    };
    apps.iter().filter_map(|app| port(machine, app)).collect()
}

fn port(machine: &Machine, app: &AppStatus) -> Option<MachinePort> {
    let link = app.status.get("link")?;
    let interface = link["name"].as_str()?.to_owned();
    let handlers = machine.handlers(&interface, link["index"].as_u64());
    Some(MachinePort { app: app.app.clone(), interface, handlers })
}
