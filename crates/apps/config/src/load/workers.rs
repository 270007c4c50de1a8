//! Workers: their tables, and the processors and memory nodes that they name.

use bellows_engine::{LinkEnd, MAIN, WorkerSpec};
use bellows_packet::pool::MIN_PACKETS;
use bellows_sys::{cpu, numa};
use serde::Deserialize;

use super::Builder;
use super::checks::Owner;
use crate::diagnostics::{Diagnostic, quoted};
use crate::source::unknown_worker;
use crate::spanned::{Key, Place, Table};
use crate::worker::{WorkerConfig, worker_schema};

impl Builder<'_> {
    /// Reports a pool that is too small for the workers: it must have the minimum of one worker for each.
    pub(super) fn check_pool(&mut self, packets: usize, place: Option<Place>, workers: usize) {
        let least = MIN_PACKETS * workers;
        if packets >= least || workers == 1 {
            return;
        }
        let wrong = format!("a pool of {packets} packets is too small for {workers} workers");
        let wrong = Diagnostic::error(wrong)
            .help(format!("set `pool` in [engine] to {least} or more: {MIN_PACKETS} for each worker"));
        self.diagnostics.push(match place {
            Some(place) => wrong.at(place, "too small"),
            None => wrong,
        });
    }

    /// Reads the tables of the workers; those with errors have no result.
    pub(super) fn workers(&mut self, tables: Vec<(Key, Table)>) -> Vec<(Key, Option<WorkerSpec>)> {
        let schema = worker_schema();
        let mut workers = Vec::new();
        for (key, mut table) in tables {
            if key.name == MAIN {
                let wrong = Diagnostic::error(format!("the worker {} needs no table", quoted(MAIN)));
                let wrong = wrong.at(key.place, "the engine's own thread");
                self.diagnostics.push(wrong.help("set its processor with `cpu` in [engine], or choose another name"));
                continue;
            }
            if !LinkEnd::is_name(&key.name) {
                let wrong = Diagnostic::error(format!("{} is not a valid worker name", quoted(&key.name)));
                let help = "use letters, digits, `-`, `_` and `.`";
                self.diagnostics.push(wrong.at(key.place, "invalid name").help(help));
                workers.push((key, None));
                continue;
            }
            let owner = Owner { called: "`[workers.NAME]`", others: &[] };
            let read = |table: &Table| WorkerConfig::deserialize(table).map(drop);
            let is_clean = self.check(&schema, &mut table, key.place, owner, read).is_empty();
            let config = is_clean.then(|| WorkerConfig::deserialize(&table).ok()).flatten();
            let config = config.filter(|config| self.has_processor(config.cpu, &table));
            let config = config.filter(|config| self.has_node(config.numa, config.cpu, &table));
            let spec = config.map(|config| WorkerSpec { name: key.name.clone(), cpu: config.cpu, numa: config.numa });
            workers.push((key, spec));
        }
        workers
    }

    /// Reports workers that apps name and that have no table, and workers without apps.
    pub(super) fn check_workers(&mut self, workers: &[(Key, Option<WorkerSpec>)]) {
        let names = || workers.iter().map(|(key, _)| key.name.as_str());
        for (name, place) in std::mem::take(&mut self.named_workers) {
            if name != MAIN && !names().any(|known| known == name) && !self.is_partial {
                self.diagnostics.push(unknown_worker(&name, place, names()));
            }
        }
        for (key, _) in workers {
            if !self.made.iter().any(|app| app.worker == key.name) && !self.is_partial {
                let idle = Diagnostic::warning(format!("no app runs on the worker {}", quoted(&key.name)));
                let help = format!("write `worker = \"{}\"` in the table of an app, or remove the worker", key.name);
                self.diagnostics.push(idle.at(key.place, "nothing to do").help(help));
            }
        }
    }

    /// Whether the process may use the processor that a table names.
    pub(super) fn has_processor(&mut self, cpu: Option<usize>, table: &Table) -> bool {
        let (Some(cpu), Some(node)) = (cpu, table.get("cpu")) else { return true };
        let allowed = cpu::allowed();
        if allowed.contains(&cpu) {
            return true;
        }
        let wrong = Diagnostic::error(format!("there is no processor {cpu} for this process"));
        let wrong = wrong.at(node.place, "no such processor");
        self.diagnostics.push(wrong.help(format!("it may use {}", cpu::ranges(&allowed))));
        false
    }

    /// Whether the process may use the memory node that a table names, and it has processors. Warns if the processor is on another one.
    pub(super) fn has_node(&mut self, numa: Option<usize>, cpu: Option<usize>, table: &Table) -> bool {
        let (Some(number), Some(node)) = (numa, table.get("numa")) else { return true };
        let nodes: Vec<usize> = numa::nodes().iter().map(|node| node.number).collect();
        if !nodes.contains(&number) {
            let wrong = Diagnostic::error(format!("there is no memory node {number} for this process"));
            let help = match &*nodes {
                [] => "the kernel has no memory nodes: leave `numa` out".to_owned(),
                nodes => format!("it may use {}; nodes without processors do not count", cpu::ranges(nodes)),
            };
            self.diagnostics.push(wrong.at(node.place, "no such node").help(help));
            return false;
        }
        if let Some(cpu) = cpu
            && let Some(other) = numa::node_of(cpu)
            && other != number
        {
            let far = Diagnostic::warning(format!("processor {cpu} is on memory node {other}, not on node {number}"));
            let help = format!("write `numa = {other}`, or leave it out: then the node is that of the processor");
            self.diagnostics.push(far.at(node.place, "far from the processor").help(help));
        }
        true
    }
}
