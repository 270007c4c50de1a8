//! A port's share of the large buffers: see [`accounts`](crate::accounts).

use crate::accounts::AccountNumber;
use crate::pool::{self, lock};

/// An account on which large buffers are taken, from [`LargeShare::new`] until it is dropped.
///
/// Packets outlive it: their buffers count for as long as they live.
#[derive(Debug)]
pub struct LargeShare(AccountNumber);

impl LargeShare {
    /// Opens an account.
    #[expect(clippy::new_without_default, reason = "it changes what others get")]
    pub fn new() -> LargeShare {
        LargeShare(lock(&pool::get().large_accounts).open())
    }

    /// The number of its account.
    pub fn owner(&self) -> AccountNumber {
        self.0
    }

    /// How many large buffers are taken on this account now.
    pub fn in_use(&self) -> usize {
        lock(&pool::get().large_accounts).used(self.0) as usize
    }
}

impl Drop for LargeShare {
    fn drop(&mut self) {
        lock(&pool::get().large_accounts).close(self.0);
    }
}
