//! A breath, explained: its calls in order with the test before each, and its machine code.

use serde::{Deserialize, Serialize};

/// One call of a breath.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedCall {
    /// `pull` or `push`.
    pub entry: String,
    /// The app's name in the network.
    pub app: String,
    /// The called function: the instance for the app's type.
    pub function: String,
    /// The tests before the call, one of which must hold: the app's slots, or the links that it empties. Empty if the
    /// call is made in every breath.
    pub tests: Vec<String>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLine {
    /// Its address in the process's memory.
    pub address: u64,
    /// Its bytes, in hexadecimal.
    pub bytes: String,
    /// The instruction in NASM's syntax.
    pub text: String,
    /// The purpose of the stretch that begins here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
}

/// Machine code that an app has generated: one piece without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppCode {
    /// The app's name in the network.
    pub app: String,
    /// The instructions.
    pub code: Vec<CodeLine>,
}

/// The listing of a running network's breath.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The worker that takes these breaths.
    #[serde(default)]
    pub worker: String,
    /// The schedule in use.
    pub schedule: String,
    /// The fallback reason: why this is not the requested schedule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fallback_reason: Option<String>,
    /// The calls, in order.
    pub calls: Vec<ListedCall>,
    /// The time taken to assemble the code, in nanoseconds; 0 without code.
    pub assembling_ns: u64,
    /// The machine code; empty without.
    pub code: Vec<CodeLine>,
    /// In the listing of the first worker: the machine code that apps of all workers have generated, such as filters.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub app_code: Vec<AppCode>,
    /// In the listing of the first worker: those of the others.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub further: Vec<Listing>,
}
