//! A port's share of the large buffers: see [`accounts`](crate::accounts).

use crate::accounts::AccountNumber;
use crate::lock::lock;
use crate::pool;

/// A quota of large buffers, from [`LargeShare::new`] until it is dropped.
///
/// Its packets may outlive it: their buffers count until they are freed.
#[derive(Debug)]
pub struct LargeShare(AccountNumber);

impl LargeShare {
    /// Opens a quota.
    #[expect(clippy::new_without_default, reason = "it changes what others get")]
    pub fn new() -> LargeShare {
        LargeShare(lock(&pool::get().large_accounts).open())
    }

    /// The number of its quota.
    pub fn owner(&self) -> AccountNumber {
        self.0
    }

    /// Number of large buffers currently taken from this quota.
    pub fn in_use(&self) -> usize {
        lock(&pool::get().large_accounts).used(self.0) as usize
    }
}

impl Drop for LargeShare {
    fn drop(&mut self) {
        lock(&pool::get().large_accounts).close(self.0);
    }
}
