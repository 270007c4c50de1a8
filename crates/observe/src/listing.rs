//! A breath, explained: its calls in order with what is tested before each, and its machine code.

use serde::{Deserialize, Serialize};

/// One call of a breath.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// `pull` or `push`.
    pub entry: String,
    /// The app's name in the network.
    pub app: String,
    /// The function that is called: that which was made for the app's type.
    pub function: String,
    /// What is tested before the call, one of which must hold: the app's slots, or the links that it empties. Empty if the
    /// call is made in every breath.
    pub tests: Vec<String>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLine {
    /// Where it lies in the process's memory.
    pub address: u64,
    /// Its bytes, in hexadecimal.
    pub bytes: String,
    /// The instruction, as NASM writes it.
    pub text: String,
    /// What the stretch that begins here serves.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
}

/// How the breaths of a running network are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The schedule in use.
    pub schedule: String,
    /// Why that is not the schedule that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fallback_reason: Option<String>,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// How long assembling the code took, in nanoseconds; 0 without code.
    pub assembling_ns: u64,
    /// The machine code; empty without.
    pub code: Vec<CodeLine>,
}
