//! A breath, explained: its calls in order with the test before each, and its machine code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One call of a breath.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Call of a breath")]
pub struct ListedCall {
    /// `pull` or `push`.
    #[schemars(extend("enum" = ["pull", "push"]))]
    pub entry: String,
    /// The app.
    pub app: String,
    /// The function, compiled for the app's type.
    pub function: String,
    /// The conditions before the call, one of which must hold: the app's slots (`slot 0`, …), or links that must hold
    /// packets (as written in the file); empty if the call is made in every breath.
    pub tests: Vec<String>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Instruction")]
pub struct CodeLine {
    /// Its address in the process's memory.
    pub address: u64,
    /// Its bytes, in hexadecimal.
    pub bytes: String,
    /// The instruction in NASM syntax; calls have the name of the function.
    pub text: String,
    /// At the start of a section of the code, its purpose: of a breath, such as `push sink [source.output ->
    /// sink.input]`, with `sampled` before it in the sampled body; of a filter, the part of the expression that it
    /// decides, `entry` or `verdict`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
}

/// Machine code that an app has generated: one piece without gaps.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Code of an app")]
pub struct AppCode {
    /// The app.
    pub app: String,
    /// A piece of machine code; an app may have several.
    pub code: Vec<CodeLine>,
}

/// The listing of a running network's breath.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Breath")]
pub struct Listing {
    /// The worker that takes these breaths: `main` is the first one.
    #[serde(default)]
    pub worker: String,
    /// The schedule in use: `nested`, `flat` or `native`.
    #[schemars(extend("enum" = ["nested", "flat", "native"]))]
    pub schedule: String,
    /// A sentence: why this is not the requested schedule; absent if it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fallback_reason: Option<String>,
    /// The calls of a breath, in order.
    pub calls: Vec<ListedCall>,
    /// Time to assemble the code; 0 without code.
    pub assembling_ns: u64,
    /// The machine code, instruction by instruction; empty unless the schedule is `native`.
    pub code: Vec<CodeLine>,
    /// Machine code that apps of all workers have generated, such as filters, if this is the first worker; absent if there
    /// is none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub app_code: Vec<AppCode>,
    /// The breaths of the other workers, if this is the first one; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub further: Vec<Listing>,
}
