//! The progress bar of a run over files.

use std::io::{IsTerminal, stderr, stdout};
use std::time::Instant;

use bellows_engine::Control;

use crate::report;
use crate::terminal;
use crate::text::{scaled, span};

/// A bar at the bottom of the terminal, removed when dropped.
pub struct Progress {
    shown: bool,
    started: Instant,
}

impl Progress {
    /// A bar that is shown only if a person is looking.
    pub fn on_terminal() -> Progress {
        Progress { shown: stdout().is_terminal() && stderr().is_terminal(), started: Instant::now() }
    }

    /// Shows the progress of a run's apps, if they know it.
    pub fn update(&mut self, control: &Control) {
        if !self.shown {
            return;
        }
        let counters = control.snapshot();
        if let Some((done, total)) = report::progress(&counters) {
            let share = done as f64 / total as f64;
            let seconds = self.started.elapsed().as_secs_f64();
            let packets = counters.links.iter().map(|link| link.packets).max().unwrap_or(0);
            let columns = terminal::size().map_or(80, |(columns, _)| columns);
            terminal::show_status(&line(share, seconds, packets, columns));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            terminal::clear_status();
        }
    }
}

/// The bar, and an estimate of the rest: ` 50 % ████████        1.20 M packets, 2.00 s left`.
fn line(share: f64, seconds: f64, packets: u64, columns: usize) -> String {
    let mut words = format!(" {} packets", scaled(packets as f64));
    if share > 0.02 {
        let left = std::time::Duration::from_secs_f64(seconds * (1.0 - share) / share);
        words += &format!(", {} left", span(left));
    }
    let width = columns.saturating_sub(words.chars().count() + 7).min(50);
    let full = (share * width as f64).round() as usize;
    format!("{:3.0} % {}{}{words}", 100.0 * share, "█".repeat(full), "·".repeat(width.saturating_sub(full)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fits_the_terminal() {
        assert_eq!(line(0.5, 3.0, 1_200_000, 50), " 50 % ████████······· 1.20 M packets, 3.00 s left");
        for columns in [0, 10, 40, 80, 200] {
            assert!(line(1.0, 1.0, 7, columns).chars().count() <= columns.max(28));
        }
    }
}
