//! How much monitors read of the networks of other users.
//!
//! Root sees the networks of all users, and the files of other users have what these users like. What a monitor keeps of
//! them is limited, so that no user can make it slow or large for all.

/// The maximum bytes that a monitor keeps of all networks of another user, and of one of them alone. The counters of
/// some 8,000 apps fit.
pub const MAX_BYTES: usize = 32 << 20;

/// The bytes that may still be kept of one user's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance(usize);

impl Allowance {
    /// That of a user of whom nothing is kept yet: another one (`is_foreign`) or this one, who has no limit.
    pub fn new(is_foreign: bool) -> Allowance {
        Allowance(if is_foreign { MAX_BYTES } else { usize::MAX })
    }

    /// Takes bytes for something that is kept as a whole. Returns whether as many were left; if not, none are taken.
    pub fn take(&mut self, bytes: usize) -> bool {
        let rest = self.0.checked_sub(bytes);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes bytes of something that is kept already, or all that are left.
    pub fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// The bytes that are left.
    pub fn left(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_another_user_is_limited() {
        let mut allowance = Allowance::new(true);
        assert!(allowance.take(MAX_BYTES - 10) && !allowance.take(11), "eleven are too many");
        assert!(allowance.take(9) && allowance.left() == 1);
        allowance.spend(2);
        assert!(allowance.left() == 0 && allowance.take(0) && !allowance.take(1));
    }

    #[test]
    fn what_is_kept_of_this_user_is_not_limited() {
        let mut allowance = Allowance::new(false);
        assert!(allowance.take(MAX_BYTES) && allowance.take(MAX_BYTES));
        assert!(allowance.left() > MAX_BYTES);
    }
}
