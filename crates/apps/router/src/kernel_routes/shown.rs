//! What other threads see of the routes that are followed.

use std::sync::{Mutex, PoisonError};

use bellows_config::ByName;
use bellows_engine::Status;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::set::{RouteSet, Standing};
use crate::vrf::NumbersByFamily;

/// The status of a follower.
pub(super) struct Shown {
    table: String,
    numbers: Mutex<Numbers>,
}

#[derive(Clone, Debug, Default)]
struct Numbers {
    followed: [usize; 2],
    /// By [`Standing::REASONS`].
    ignored: [usize; Standing::REASONS.len()],
    beyond_limit: u64,
    neighbours: usize,
    refused_neighbours: usize,
    readings: u64,
    inconsistent: u64,
    losses: u64,
    error: Option<String>,
}

impl Shown {
    /// The status of a table that nothing is known of yet.
    pub(super) fn new(table: String) -> Shown {
        Shown { table, numbers: Mutex::default() }
    }

    fn update(&self, update: impl FnOnce(&mut Numbers)) {
        update(&mut self.numbers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes what has become of routes.
    pub(super) fn set_routes(&self, set: &RouteSet, neighbours: usize, refused_neighbours: usize) {
        let ignored = Standing::REASONS.map(|(standing, _)| set.count(standing).iter().sum());
        let (followed, beyond_limit) = (set.count(Standing::Followed), set.beyond_limit());
        self.update(|now| {
            *now = Numbers { followed, ignored, beyond_limit, neighbours, refused_neighbours, ..std::mem::take(now) };
        });
    }

    /// The table was read, and stayed as it was meanwhile or not.
    pub(super) fn has_read(&self, is_consistent: bool) {
        self.update(|now| {
            now.readings += 1;
            now.inconsistent += u64::from(!is_consistent);
            now.error = None;
        });
    }

    /// Changes were lost.
    pub(super) fn has_lost(&self) {
        self.update(|now| now.losses += 1);
    }

    /// Something does not work.
    pub(super) fn fails(&self, error: &str) {
        self.update(|now| {
            if now.error.as_deref() != Some(error) {
                tracing::warn!("the kernel's routes of the table {}: {error}", self.table);
                now.error = Some(error.to_owned());
            }
        });
    }
}

impl Status for Shown {
    fn status(&self) -> Value {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reasons = Standing::REASONS.iter().zip(numbers.ignored).filter(|(_, count)| *count > 0);
        let reasons = reasons.map(|((_, name), count)| (*name, count as u64));
        let others = [("limit", numbers.beyond_limit), ("neighbours", numbers.refused_neighbours as u64)];
        let [ipv4, ipv6] = numbers.followed;
        json!(KernelRoutesStatus {
            table: &self.table,
            followed: NumbersByFamily { ipv4, ipv6 },
            ignored: reasons.chain(others.into_iter().filter(|(_, count)| *count > 0)).collect(),
            neighbours: numbers.neighbours,
            readings: numbers.readings,
            inconsistent_readings: numbers.inconsistent,
            losses: numbers.losses,
            error: numbers.error,
        })
    }
}

/// The status of a follower of the kernel's routes.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `kernel-routes`")]
pub(super) struct KernelRoutesStatus<'a> {
    /// The table's name, or its number if it has none.
    table: &'a str,
    /// The numbers of prefixes and metrics whose routes are followed.
    followed: NumbersByFamily,
    /// The numbers of those that are not followed, by [reason](router-host.md#routes-of-the-kernel).
    ignored: ByName<u64>,
    /// The number of neighbours that the kernel's administrator has set.
    neighbours: usize,
    /// How often the table was read.
    readings: u64,
    /// How often it changed meanwhile.
    inconsistent_readings: u64,
    /// How often the kernel dropped changes because there were too many.
    losses: u64,
    /// A sentence: what does not work; null if all does.
    error: Option<String>,
}
