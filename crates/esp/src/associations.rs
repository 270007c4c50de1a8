//! The security associations of many tunnels, and the replacement of their keys without losing a packet.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::inbound::{Inbound, OpenError, Opened};
use crate::outbound::Outbound;
use crate::spi::Spi;

/// The associations of one tunnel: one that sends and one that receives. An identity is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(u64);

/// The associations of all tunnels: those that receive by SPI, those that send by tunnel.
///
/// New keys are made before old ones are broken. [`begin_rekey`](Associations::begin_rekey) adds an association that
/// receives with the new keys. When the peer has it, too, [`finish_rekey`](Associations::finish_rekey) sends with the
/// new keys. The old association that receives stays for a grace, for packets under way, until
/// [`remove_old`](Associations::remove_old). Keys are zeroed when their association is removed.
///
/// Times are nanoseconds since any fixed moment.
#[derive(Debug)]
pub struct Associations {
    grace: u64,
    inbound: HashMap<Spi, Receiver, BuildHasherDefault<Mix>>,
    pairs: HashMap<PairId, Pair, BuildHasherDefault<Mix>>,
    next_id: u64,
    /// The earliest time at which an old association is removed.
    next_removal: u64,
}

#[derive(Debug)]
struct Receiver {
    association: Inbound,
    pair: PairId,
    /// When it is removed, if it is an old one.
    removal: Option<u64>,
}

#[derive(Debug)]
struct Pair {
    outbound: Outbound,
    /// The association that the peer uses.
    current: Spi,
    /// The one that it will use.
    next: Option<Spi>,
}

impl Associations {
    /// No associations yet. Old ones stay for `grace` nanoseconds after the keys were replaced.
    pub fn new(grace: u64) -> Associations {
        Associations {
            grace,
            inbound: HashMap::default(),
            pairs: HashMap::default(),
            next_id: 0,
            next_removal: u64::MAX,
        }
    }

    /// Adds a tunnel.
    pub fn add(&mut self, inbound: Inbound, outbound: Outbound) -> Result<PairId, AssociationError> {
        let pair = PairId(self.next_id);
        let current = self.receive(pair, inbound)?;
        self.next_id += 1;
        self.pairs.insert(pair, Pair { outbound, current, next: None });
        Ok(pair)
    }

    /// Receives with new keys, too.
    pub fn begin_rekey(&mut self, pair: PairId, inbound: Inbound) -> Result<(), AssociationError> {
        if self.pair(pair)?.next.is_some() {
            return Err(AssociationError::RekeyBegun);
        }
        let next = self.receive(pair, inbound)?;
        self.pair(pair)?.next = Some(next);
        Ok(())
    }

    /// Sends with new keys from now on, and removes the old association that receives after the grace.
    pub fn finish_rekey(&mut self, pair: PairId, outbound: Outbound, now: u64) -> Result<(), AssociationError> {
        let removal = now.saturating_add(self.grace);
        let pair = self.pair(pair)?;
        let next = pair.next.take().ok_or(AssociationError::RekeyNotBegun)?;
        pair.outbound = outbound;
        let old = std::mem::replace(&mut pair.current, next);
        if let Some(receiver) = self.inbound.get_mut(&old) {
            receiver.removal = Some(removal);
            self.next_removal = self.next_removal.min(removal);
        }
        Ok(())
    }

    /// Gives up new keys that the peer does not take.
    pub fn abandon_rekey(&mut self, pair: PairId) -> Result<(), AssociationError> {
        let next = self.pair(pair)?.next.take().ok_or(AssociationError::RekeyNotBegun)?;
        self.inbound.remove(&next);
        Ok(())
    }

    /// Removes old associations whose grace is over, and returns their number. Cheap if there are none.
    pub fn remove_old(&mut self, now: u64) -> usize {
        if now < self.next_removal {
            return 0;
        }
        let before = self.inbound.len();
        self.inbound.retain(|_, receiver| receiver.removal.is_none_or(|removal| removal > now));
        self.next_removal = self.inbound.values().filter_map(|receiver| receiver.removal).min().unwrap_or(u64::MAX);
        before - self.inbound.len()
    }

    /// Removes a tunnel with all its associations.
    pub fn remove(&mut self, pair: PairId) -> Result<(), AssociationError> {
        self.pairs.remove(&pair).ok_or(AssociationError::UnknownPair)?;
        self.inbound.retain(|_, receiver| receiver.pair != pair);
        Ok(())
    }

    /// The association that receives packets of this SPI, and its tunnel. Hot.
    #[inline]
    pub fn inbound(&mut self, spi: Spi) -> Option<(&mut Inbound, PairId)> {
        self.inbound.get_mut(&spi).map(|receiver| (&mut receiver.association, receiver.pair))
    }

    /// The association that sends the packets of a tunnel. Hot.
    #[inline]
    pub fn outbound(&mut self, pair: PairId) -> Option<&mut Outbound> {
        self.pairs.get_mut(&pair).map(|pair| &mut pair.outbound)
    }

    /// Opens an ESP packet with the association of its SPI, and returns its tunnel. See [`Inbound::open`]. Hot.
    #[inline]
    pub fn open(&mut self, esp: &mut [u8]) -> Result<(PairId, Opened), OpenError> {
        let number = Spi::peek(esp).ok_or(OpenError::TooShort)?;
        let spi = Spi::new(number).map_err(|_| OpenError::UnknownSpi)?;
        let (inbound, pair) = self.inbound(spi).ok_or(OpenError::UnknownSpi)?;
        inbound.open(esp).map(|opened| (pair, opened))
    }

    /// The number of tunnels.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// The number of associations that receive, new and old.
    pub fn receivers(&self) -> usize {
        self.inbound.len()
    }

    fn receive(&mut self, pair: PairId, association: Inbound) -> Result<Spi, AssociationError> {
        let spi = association.spi();
        if self.inbound.contains_key(&spi) {
            return Err(AssociationError::DuplicateSpi(spi));
        }
        self.inbound.insert(spi, Receiver { association, pair, removal: None });
        Ok(spi)
    }

    fn pair(&mut self, pair: PairId) -> Result<&mut Pair, AssociationError> {
        self.pairs.get_mut(&pair).ok_or(AssociationError::UnknownPair)
    }
}

/// Why associations are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssociationError {
    /// Another association receives with this SPI.
    #[error("SPI {0} is in use; choose another one for the association that receives")]
    DuplicateSpi(Spi),
    /// No tunnel has this identity.
    #[error("no such pair of associations; it was removed")]
    UnknownPair,
    /// The keys are being replaced already.
    #[error("the keys are being replaced already; finish or abandon that first")]
    RekeyBegun,
    /// There are no new keys.
    #[error("there is no association that receives with new keys; begin with it")]
    RekeyNotBegun,
}

/// A hash of one word. The keys are our own choice, so no stranger can make them collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        // The table uses the lowest and the highest bits.
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
