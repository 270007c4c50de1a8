//! Apps, links and workers, and the cost of a placement.

/// One part in this many: the excess over the minimum load that counts as equal to it.
pub const TOLERANCE: u64 = 100;

/// An app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct App {
    /// The clocks that it takes, in a time that is the same for all apps and links.
    pub clocks: u64,
    /// The worker that it must stay on.
    pub fixed: Option<usize>,
}

/// A link from an app to another. Which end sends does not matter for the result, only which clocks are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The position of the app that sends.
    pub from: usize,
    /// The position of the app that receives.
    pub to: usize,
    /// The packets that pass.
    pub packets: u64,
    /// The clocks that these packets take from the sender's worker if they cross.
    pub send_clocks: u64,
    /// The clocks that these packets take from the receiver's worker if they cross.
    pub receive_clocks: u64,
}

impl Link {
    /// The app at the other end.
    pub(crate) fn other(&self, app: usize) -> usize {
        if self.from == app { self.to } else { self.from }
    }

    /// The clocks at an app's end, and at the other one.
    pub(crate) fn clocks(&self, app: usize) -> (u64, u64) {
        match self.from == app {
            true => (self.send_clocks, self.receive_clocks),
            false => (self.receive_clocks, self.send_clocks),
        }
    }
}

/// Apps to be placed on workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The apps.
    pub apps: Vec<App>,
    /// The links between them.
    pub links: Vec<Link>,
    /// The number of workers; some may remain without apps.
    pub workers: usize,
}

/// The cost of a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The load of the busiest worker, in clocks.
    pub load: u64,
    /// The packets that cross.
    pub crossing: u64,
}

impl Cost {
    /// The order of costs if loads up to a limit count as equal.
    pub(crate) fn below(self, limit: u64) -> (u64, u64, u64) {
        (self.load.max(limit), self.crossing, self.load)
    }
}

/// The highest load that counts as equal to a minimum.
pub(crate) fn limit(minimum: u64) -> u64 {
    minimum.saturating_add(minimum / TOLERANCE)
}

impl Problem {
    pub(crate) fn check(&self) {
        assert!(self.workers > 0, "no workers");
        assert!(self.apps.iter().all(|app| app.fixed.is_none_or(|worker| worker < self.workers)), "no such worker");
        assert!(self.links.iter().all(|link| link.from.max(link.to) < self.apps.len()), "no such app");
    }

    /// The load of each worker.
    pub fn loads(&self, workers: &[usize]) -> Vec<u64> {
        let mut loads = vec![0_u64; self.workers];
        let mut add = |worker: usize, clocks| loads[worker] = loads[worker].saturating_add(clocks);
        for (app, &worker) in self.apps.iter().zip(workers) {
            add(worker, app.clocks);
        }
        for link in self.crossings(workers) {
            add(workers[link.from], link.send_clocks);
            add(workers[link.to], link.receive_clocks);
        }
        loads
    }

    /// The links that cross.
    pub fn crossings<'p>(&'p self, workers: &'p [usize]) -> impl Iterator<Item = &'p Link> {
        self.links.iter().filter(|link| workers[link.from] != workers[link.to])
    }

    /// The cost of a placement.
    pub fn cost(&self, workers: &[usize]) -> Cost {
        let load = self.loads(workers).into_iter().max().unwrap_or(0);
        Cost { load, crossing: self.crossings(workers).map(|link| link.packets).fold(0, u64::saturating_add) }
    }

    /// Whether each fixed app is where it must be.
    pub(crate) fn respects_fixed(&self, workers: &[usize]) -> bool {
        self.apps.iter().zip(workers).all(|(app, &worker)| app.fixed.is_none_or(|fixed| fixed == worker))
    }

    /// The links of each app.
    pub(crate) fn links_of_apps(&self) -> Vec<Vec<Link>> {
        let mut of = vec![Vec::new(); self.apps.len()];
        for link in self.links.iter().filter(|link| link.from != link.to) {
            of[link.from].push(*link);
            of[link.to].push(*link);
        }
        of
    }

    /// The same without idle apps, and the position of each remaining app. A fixed app remains.
    pub(crate) fn without_idle(&self) -> (Problem, Vec<usize>) {
        let mut is_busy: Vec<bool> = self.apps.iter().map(|app| app.fixed.is_some()).collect();
        let mut is_linked = vec![false; self.apps.len()];
        for link in &self.links {
            for end in [link.from, link.to] {
                is_linked[end] = true;
                is_busy[end] |= link.packets > 0;
            }
        }
        // Without links there are no neighbours to follow.
        let keeps = |&app: &usize| is_busy[app] || (!is_linked[app] && self.apps[app].clocks > 0);
        let apps: Vec<usize> = (0..self.apps.len()).filter(keeps).collect();
        let mut position = vec![usize::MAX; self.apps.len()];
        apps.iter().enumerate().for_each(|(at, &app)| position[app] = at);
        let renamed = self.links.iter().map(|link| Link { from: position[link.from], to: position[link.to], ..*link });
        let links = renamed.filter(|link| link.packets > 0 && link.from != link.to).collect();
        let kept = apps.iter().map(|&app| self.apps[app]).collect();
        (Problem { apps: kept, links, workers: self.workers }, apps)
    }

    /// Adds the idle apps to a placement of the others: each joins the worker on which most of its placed neighbours
    /// are. Apps without placed neighbours join the worker with the least load.
    pub(crate) fn with_idle(&self, apps: &[usize], found: &[usize]) -> Vec<usize> {
        let mut placed = vec![None; self.apps.len()];
        apps.iter().zip(found).for_each(|(&app, &worker)| placed[app] = Some(worker));
        let links = self.links_of_apps();
        let mut waiting: Vec<usize> = (0..self.apps.len()).filter(|&app| placed[app].is_none()).collect();
        while !waiting.is_empty() {
            let next: Vec<(usize, usize)> =
                waiting.iter().filter_map(|&app| Some((app, self.neighbour(app, &links, &placed)?))).collect();
            let next = if next.is_empty() { vec![(waiting[0], self.least(&placed))] } else { next };
            next.into_iter().for_each(|(app, worker)| placed[app] = Some(worker));
            waiting.retain(|&app| placed[app].is_none());
        }
        placed.into_iter().flatten().collect()
    }

    /// The worker on which most placed neighbours of an app are.
    fn neighbour(&self, app: usize, links: &[Vec<Link>], placed: &[Option<usize>]) -> Option<usize> {
        let mut counts = vec![0; self.workers];
        links[app].iter().filter_map(|link| placed[link.other(app)]).for_each(|worker| counts[worker] += 1);
        let most = (0..self.workers).rev().max_by_key(|&worker| counts[worker])?;
        (counts[most] > 0).then_some(most)
    }

    /// The worker with the least load among apps placed so far.
    fn least(&self, placed: &[Option<usize>]) -> usize {
        let mut loads = vec![0_u64; self.workers];
        for (app, worker) in self.apps.iter().zip(placed) {
            if let Some(worker) = *worker {
                loads[worker] = loads[worker].saturating_add(app.clocks);
            }
        }
        (0..self.workers).min_by_key(|&worker| loads[worker]).unwrap_or(0)
    }
}
