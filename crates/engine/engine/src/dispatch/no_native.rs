//! Stand-in for the native schedule on machines without code generation.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bellows_codemem::Symbol;
use bellows_observe::listing::CodeLine;

use super::{CodeSection, Layout, Step};
use crate::runtime::links::LinkTable;
use crate::runtime::state::ThreadState;

/// The code of one configuration: there is none.
pub(crate) enum Native {}

impl Native {
    pub(crate) fn assemble(_: &Layout<'_>, _: &[Step], _: &[Step], _: bool) -> Result<Native, String> {
        Err(format!("native code is generated for x86-64 only; this machine is {}", std::env::consts::ARCH))
    }

    pub(crate) unsafe fn take(&self, _: &ThreadState, _: &LinkTable, _: &AtomicU32, _: u64) -> u64 {
        match *self {}
    }

    pub(crate) unsafe fn take_sampled(&self, _: &ThreadState, _: &LinkTable) {
        match *self {}
    }

    pub(crate) fn symbols(&self, _: impl Fn(CodeSection) -> String) -> Vec<Symbol> {
        match *self {}
    }

    pub(crate) fn listing(
        &self,
        _: impl Fn(CodeSection) -> String,
        _: impl Fn(usize) -> Option<String>,
    ) -> Vec<CodeLine> {
        match *self {}
    }

    pub(crate) fn assembling(&self) -> Duration {
        match *self {}
    }
}
