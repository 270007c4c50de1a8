//! A change of a network that awaits its confirmation, as the network's process publishes it.

use std::time::Duration;

use bellows_observe::RuntimeDir;
use bellows_sys::clock;
use bellows_sys::text::{cut, one_line};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{foreign_json, span};

/// The file of a network's folder that has it.
pub const CONFIRMATION: &str = "confirmation";

/// The longest reason that is read, in bytes: another user may have written it.
const MAX_REASON: usize = 4 << 10;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// When the former network is put back, in nanoseconds since the Unix epoch.
    pub until_ns: u64,
    /// Why it could not be put back when the time was over.
    pub failure: Option<String>,
}

/// A change that awaits its confirmation.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Awaited confirmation")]
pub struct Confirmation {
    /// The time after which the former network is put back, rounded up.
    pub seconds_left: u64,
    /// Why it could not be put back when the time was over; null before that.
    pub failure: Option<String>,
}

impl Confirmation {
    /// That of the network in a folder, if its process awaits one.
    pub fn of(runtime_dir: &RuntimeDir) -> Option<Confirmation> {
        runtime_dir.process()?;
        let Published { until_ns, failure } = foreign_json(&runtime_dir.read(CONFIRMATION).ok()?).ok()?;
        let failure = failure.map(|failure| {
            let mut failure = one_line(&failure.replace('\n', " "));
            cut(&mut failure, MAX_REASON);
            failure
        });
        let seconds_left = until_ns.saturating_sub(clock::unix_ns()).div_ceil(1_000_000_000);
        Some(Confirmation { seconds_left, failure })
    }

    /// It in a sentence without a full stop, about the network of this name.
    pub fn sentence(&self, name: &str) -> String {
        let keeps = format!("`bellows confirm {name}` keeps the change");
        match &self.failure {
            Some(failure) => {
                format!("a change was not confirmed, and the former network could not be put back: {failure}; {keeps}")
            }
            None => {
                let left = match self.seconds_left {
                    few @ 0..100 => format!("{few} s"),
                    many => span(Duration::from_secs(many)),
                };
                format!("a change awaits its confirmation: the former network is put back in {left}; {keeps}")
            }
        }
    }
}
