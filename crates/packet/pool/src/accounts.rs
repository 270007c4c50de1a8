//! Quotas that limit the use of large buffers.
//!
//! Large buffers are scarce, and one port whose packets nobody takes would soon have them all. So each port has its own
//! share: half of the buffers are set aside in equal parts, one for each share and one for everybody without a share,
//! and the other half is first come, first served. A buffer remembers the quota it was charged to, copies of a
//! packet are charged to the quota of the original, and freeing a buffer credits its quota.

/// The number of a quota. 0 stands for everybody without one.
pub type AccountNumber = u16;

/// The quota of everybody without their own.
pub const ANYONE: AccountNumber = 0;

/// All quotas, and the quota of each buffer.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// By buffer number.
    owners: Vec<AccountNumber>,
    accounts: Vec<Quota>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Quota {
    used: u32,
    open: bool,
}

impl Quotas {
    pub(crate) fn new(buffers: usize) -> Quotas {
        Quotas { owners: vec![ANYONE; buffers], accounts: vec![Quota { used: 0, open: true }] }
    }

    /// Opens a quota, or reuses one that was closed and has no buffers left. Beyond 65,536, everybody shares quota
    /// 0.
    pub(crate) fn open(&mut self) -> AccountNumber {
        let is_over = |account: &Quota| !account.open && account.used == 0;
        let owner = self.accounts.iter().position(is_over).unwrap_or(self.accounts.len());
        let Ok(owner) = AccountNumber::try_from(owner) else { return ANYONE };
        if usize::from(owner) == self.accounts.len() {
            self.accounts.push(Quota::default());
        }
        self.accounts[usize::from(owner)].open = true;
        owner
    }

    pub(crate) fn close(&mut self, owner: AccountNumber) {
        self.accounts[usize::from(owner)].open = owner == ANYONE;
    }

    /// Number of buffers set aside for each quota.
    fn reserve(&self) -> u32 {
        let open = self.accounts.iter().filter(|account| account.open).count();
        (self.owners.len() / (2 * open.max(1))) as u32
    }

    /// Whether one more buffer may be taken from this quota.
    pub(crate) fn allows(&self, owner: AccountNumber) -> bool {
        let reserve = self.reserve();
        if self.accounts[usize::from(owner)].used < reserve {
            return true;
        }
        let taken = self.taken();
        // Buffers set aside for the others and not yet taken. This quota has used up its own.
        let aside: u32 = self
            .accounts
            .iter()
            .filter(|account| account.open)
            .map(|account| reserve.saturating_sub(account.used))
            .sum();
        taken + aside < self.owners.len() as u32
    }

    pub(crate) fn took(&mut self, buffer: usize, owner: AccountNumber) {
        self.owners[buffer] = owner;
        self.accounts[usize::from(owner)].used += 1;
    }

    pub(crate) fn gave_back(&mut self, buffer: usize) {
        self.accounts[usize::from(self.owners[buffer])].used -= 1;
    }

    /// Number of buffers taken from all quotas.
    pub(crate) fn taken(&self) -> u32 {
        self.accounts.iter().map(|account| account.used).sum()
    }

    /// Number of buffers taken from a quota.
    pub(crate) fn used(&self, owner: AccountNumber) -> u32 {
        self.accounts[usize::from(owner)].used
    }

    pub(crate) fn owner(&self, buffer: usize) -> AccountNumber {
        self.owners[buffer]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Open,
        Close(usize),
        Take(usize),
        Free(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => Just(Step::Open),
            1 => (0_usize..8).prop_map(Step::Close),
            12 => (0_usize..8).prop_map(Step::Take),
            8 => any::<usize>().prop_map(Step::Free),
        ]
    }

    proptest! {
        /// A new quota gets the buffers set aside for it, whatever the others do, as long as there are enough.
        #[test]
        fn reserved_buffers_are_available(steps in prop::collection::vec(step(), 0..400), buffers in 1_usize..60) {
            let mut accounts = Quotas::new(buffers);
            let mut open = vec![ANYONE];
            let mut free: Vec<usize> = (0..buffers).collect();
            let mut taken: Vec<(usize, AccountNumber)> = Vec::new();
            for step in steps {
                match step {
                    Step::Open => {
                        let owner = accounts.open();
                        prop_assert!(!open.contains(&owner) && taken.iter().all(|(_, other)| *other != owner));
                        open.push(owner);
                    }
                    Step::Close(which) if open.len() > 1 => accounts.close(open.remove(1 + which % (open.len() - 1))),
                    Step::Take(which) => {
                        let owner = open[which % open.len()];
                        let used = |owner: AccountNumber| taken.iter().filter(|(_, other)| *other == owner).count();
                        let reserve = buffers / (2 * open.len());
                        let aside: usize = open.iter().map(|&other| reserve.saturating_sub(used(other))).sum();
                        let allowed = used(owner) < reserve || taken.len() + aside < buffers;
                        prop_assert_eq!(accounts.allows(owner), allowed);
                        if allowed && let Some(buffer) = free.pop() {
                            accounts.took(buffer, owner);
                            taken.push((buffer, owner));
                        }
                    }
                    Step::Free(which) if !taken.is_empty() => {
                        let (buffer, owner) = taken.swap_remove(which % taken.len());
                        prop_assert_eq!(accounts.owner(buffer), owner);
                        accounts.gave_back(buffer);
                        free.push(buffer);
                    }
                    Step::Close(_) | Step::Free(_) => {}
                }
            }
        }
    }

    #[test]
    fn a_greedy_quota_leaves_the_others_their_share() {
        let mut accounts = Quotas::new(512);
        let (greedy, other) = (accounts.open(), accounts.open());
        let mut buffer = 0;
        let mut take_all = |accounts: &mut Quotas, owner| {
            let first = buffer;
            while buffer < 512 && accounts.allows(owner) {
                accounts.took(buffer, owner);
                buffer += 1;
            }
            buffer - first
        };
        assert_eq!(take_all(&mut accounts, greedy), 512 - 2 * 85);
        assert_eq!(take_all(&mut accounts, other), 85);
        assert_eq!(take_all(&mut accounts, ANYONE), 85);
    }
}
