//! The figures of the last minutes, one set for each reading of the counters.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

/// The maximum number of readings that are kept: five minutes.
const MAX_READINGS: usize = 300;

/// The minimum number of readings that are kept, of a network of any size.
const MIN_READINGS: usize = 60;

/// The number of figures of all apps and links that are kept of a network, if [`MIN_READINGS`] allows: 12 MiB.
const MAX_FIGURES: usize = 3 << 20;

/// The figures of an app: packets a second, and clocks a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AppFigures {
    /// Packets received a second.
    pub received: f32,
    /// Packets sent a second.
    pub sent: f32,
    /// Packets dropped a second.
    pub dropped: f32,
    /// Clocks a packet; not a number if it is unknown.
    pub clocks: f32,
}

/// The figures of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkFigures {
    /// Packets a second.
    pub packets: f32,
    /// Bits a second.
    pub bits: f32,
    /// Packets dropped a second.
    pub dropped: f32,
    /// Packets in the link.
    pub waiting: f32,
}

/// The figures of a network at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Packets a second through the busiest link.
    pub packets: f32,
    /// Packets dropped a second.
    pub dropped: f32,
    /// The share of the time that the engine slept.
    pub asleep: f32,
    /// The apps, in the network's order.
    pub apps: Vec<AppFigures>,
    /// The links, in the network's order.
    pub links: Vec<LinkFigures>,
}

/// The last minutes of a network: a list for each figure.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "History of a network")]
pub struct NetworkHistory {
    /// Milliseconds since the Unix epoch.
    pub at_ms: Vec<u64>,
    /// Packets a second through the busiest link.
    #[schemars(with = "Vec<f64>")]
    pub packets: Vec<Option<f64>>,
    /// Packets dropped a second.
    #[schemars(with = "Vec<f64>")]
    pub dropped: Vec<Option<f64>>,
    /// The share of the time that the engine slept.
    #[schemars(with = "Vec<f64>")]
    pub asleep: Vec<Option<f64>>,
}

/// The last minutes of an app: a list for each figure.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "History of an app")]
pub struct AppHistory {
    /// Milliseconds since the Unix epoch.
    pub at_ms: Vec<u64>,
    /// Packets received a second.
    #[schemars(with = "Vec<f64>")]
    pub received: Vec<Option<f64>>,
    /// Packets sent a second.
    #[schemars(with = "Vec<f64>")]
    pub sent: Vec<Option<f64>>,
    /// Packets dropped a second.
    #[schemars(with = "Vec<f64>")]
    pub dropped: Vec<Option<f64>>,
    /// Clocks a packet; null if not known.
    pub clocks: Vec<Option<f64>>,
}

/// The last minutes of a link: a list for each figure.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "History of a link")]
pub struct LinkHistory {
    /// Milliseconds since the Unix epoch.
    pub at_ms: Vec<u64>,
    /// Packets a second.
    #[schemars(with = "Vec<f64>")]
    pub packets: Vec<Option<f64>>,
    /// Bits a second.
    #[schemars(with = "Vec<f64>")]
    pub bits: Vec<Option<f64>>,
    /// Packets dropped a second.
    #[schemars(with = "Vec<f64>")]
    pub dropped: Vec<Option<f64>>,
    /// Packets sent and not yet received.
    #[schemars(with = "Vec<f64>")]
    pub waiting: Vec<Option<f64>>,
}

/// The figures of the last minutes. Those of apps and links begin with the last change of the network's structure.
#[derive(Debug, Default)]
pub struct History {
    readings: VecDeque<Figures>,
    /// The number of readings since the apps and links are those of today.
    of_structure: usize,
}

/// A figure of a chart: `None` if it is unknown, and else not more exact than a chart shows.
fn figure(value: f32) -> Option<f64> {
    value.is_finite().then(|| rounded(value.into()))
}

/// A number with five significant digits.
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 4 - value.abs().log10().floor() as i32;
    // Powers of ten beyond these are not exact.
    match digits {
        0..=22 => (value * 10f64.powi(digits)).round() / 10f64.powi(digits),
        -22..0 => (value / 10f64.powi(-digits)).round() * 10f64.powi(-digits),
        _ => value,
    }
}

impl History {
    /// Begins the figures of apps and links anew: they are others from now on.
    pub fn begin_structure(&mut self) {
        self.of_structure = 0;
    }

    /// Adds the figures of a reading.
    pub fn add(&mut self, figures: Figures) {
        let size = 4 * (figures.apps.len() + figures.links.len()).max(1);
        let most = (MAX_FIGURES / size).clamp(MIN_READINGS, MAX_READINGS);
        self.readings.push_back(figures);
        self.of_structure += 1;
        while self.readings.len() > most {
            self.readings.pop_front();
        }
        self.of_structure = self.of_structure.min(self.readings.len());
    }

    /// The number of readings.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.readings.len()
    }

    /// The last reading.
    #[cfg(test)]
    pub fn last(&self) -> Option<&Figures> {
        self.readings.back()
    }

    fn series<'a>(readings: impl Iterator<Item = &'a Figures>, of: impl Fn(&Figures) -> f32) -> Vec<Option<f64>> {
        readings.map(|figures| figure(of(figures))).collect()
    }

    /// The figures of the whole network, one list for each.
    pub fn of_network(&self) -> NetworkHistory {
        let all = || self.readings.iter();
        NetworkHistory {
            at_ms: all().map(|figures| figures.at_ms).collect(),
            packets: History::series(all(), |figures| figures.packets),
            dropped: History::series(all(), |figures| figures.dropped),
            asleep: History::series(all(), |figures| figures.asleep),
        }
    }

    /// The readings with the apps and links of today.
    fn recent(&self) -> impl Iterator<Item = &Figures> {
        self.readings.iter().skip(self.readings.len() - self.of_structure)
    }

    /// The figures of the app at this position, one list for each.
    pub fn of_app(&self, index: usize) -> AppHistory {
        let app = |figures: &Figures| figures.apps.get(index).copied().unwrap_or_default();
        AppHistory {
            at_ms: self.recent().map(|figures| figures.at_ms).collect(),
            received: History::series(self.recent(), |figures| app(figures).received),
            sent: History::series(self.recent(), |figures| app(figures).sent),
            dropped: History::series(self.recent(), |figures| app(figures).dropped),
            clocks: History::series(self.recent(), |figures| app(figures).clocks),
        }
    }

    /// The figures of the link at this position, one list for each.
    pub fn of_link(&self, index: usize) -> LinkHistory {
        let link = |figures: &Figures| figures.links.get(index).copied().unwrap_or_default();
        LinkHistory {
            at_ms: self.recent().map(|figures| figures.at_ms).collect(),
            packets: History::series(self.recent(), |figures| link(figures).packets),
            bits: History::series(self.recent(), |figures| link(figures).bits),
            dropped: History::series(self.recent(), |figures| link(figures).dropped),
            waiting: History::series(self.recent(), |figures| link(figures).waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figures(at_ms: u64, apps: usize) -> Figures {
        let app = AppFigures { received: at_ms as f32, clocks: f32::NAN, ..AppFigures::default() };
        Figures { at_ms, packets: 2.0 * at_ms as f32, apps: vec![app; apps], ..Figures::default() }
    }

    #[test]
    fn old_readings_are_forgotten() {
        let mut history = History::default();
        (0..500).for_each(|at| history.add(figures(at, 2)));
        assert_eq!(history.len(), MAX_READINGS);
        let network = history.of_network();
        assert_eq!((network.at_ms[0], network.packets[299]), (200, Some(998.0)));
        let app = history.of_app(1);
        assert_eq!((app.received[0], app.clocks[0]), (Some(200.0), None));
        let mut large = History::default();
        (0..500).for_each(|at| large.add(figures(at, 20_000)));
        assert_eq!(large.len(), MIN_READINGS);
    }

    #[test]
    fn figures_of_apps_begin_with_their_structure() {
        let mut history = History::default();
        (0..10).for_each(|at| history.add(figures(at, 2)));
        history.begin_structure();
        (10..15).for_each(|at| history.add(figures(at, 3)));
        assert_eq!(history.of_app(2).at_ms, [10, 11, 12, 13, 14]);
        assert_eq!(history.of_network().at_ms.len(), 15);
        assert_eq!(history.of_link(7).packets, [Some(0.0); 5]);
    }

    #[test]
    fn numbers_have_five_digits() {
        let given = [0.0, 123_456.0, 0.000_123_456_7, 99_999.6, -1.234_567, f64::NAN, f64::INFINITY];
        let shown = [0.0, 123_460.0, 0.000_123_46, 100_000.0, -1.2346, 0.0, 0.0];
        assert_eq!(given.map(rounded), shown);
    }

    proptest! {
        #[test]
        fn rounding_changes_little(value in any::<f64>()) {
            let rounded = rounded(value);
            prop_assert!(rounded.is_finite());
            if value.is_normal() {
                prop_assert!((rounded / value - 1.0).abs() < 1e-4, "{value} {rounded}");
            }
        }
    }
}
