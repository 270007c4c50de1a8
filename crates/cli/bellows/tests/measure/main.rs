//! Measurements by the command, briefly. `cargo xtask test` runs this program alone.

mod advice;
mod bench;
mod breathsim;
mod campaigns;

#[path = "../support/mod.rs"]
mod support;

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use support::Sandbox;

/// Tests that depend on the caches, or on both processors, write; all others, which fill them, read.
static CACHES: RwLock<()> = RwLock::new(());

/// A sandbox for a test beside which others may run.
struct Shared {
    sandbox: Sandbox,
    _beside_others: RwLockReadGuard<'static, ()>,
}

impl Shared {
    fn new() -> Shared {
        Shared { sandbox: Sandbox::new(), _beside_others: CACHES.read().unwrap_or_else(PoisonError::into_inner) }
    }

    fn launched_by(self, words: &[&str]) -> Shared {
        Shared { sandbox: self.sandbox.launched_by(words), ..self }
    }
}

impl Deref for Shared {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}
