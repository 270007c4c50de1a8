//! The security associations of many tunnels, and the replacement of their keys without losing a packet.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::inbound::{Inbound, OpenError, Opened};
use crate::outbound::Outbound;
use crate::spi::Spi;

/// The associations of one tunnel: one that sends and one that receives. An identity is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(u64);

impl PairId {
    /// How many identities came before it.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The associations of all tunnels: those that receive by SPI, those that send by tunnel.
///
/// New keys are made before old ones are broken. [`replace_inbound`](Associations::replace_inbound) adds an association
/// that receives with new keys; the old one stays for a grace, for packets under way and until the peer sends with the
/// new keys. [`replace_outbound`](Associations::replace_outbound) sends with new keys at once. So two ends lose no packet
/// if both replace the keys with which they receive before either replaces those with which it sends. Keys are zeroed
/// when their association is removed.
///
/// Times are nanoseconds since any fixed moment.
#[derive(Debug)]
pub struct Associations {
    grace: u64,
    inbound: HashMap<Spi, Receiver, BuildHasherDefault<Mix>>,
    pairs: HashMap<PairId, AssociationPair, BuildHasherDefault<Mix>>,
    next_id: u64,
    /// The earliest time at which an old association is removed; 0 if one has not been given a time yet.
    next_removal: u64,
}

#[derive(Debug)]
struct Receiver {
    association: Inbound,
    pair: PairId,
    age: Age,
}

/// Whether an association that receives is the latest one of its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Current,
    /// It has been replaced. When it is removed, once that is known.
    Old(Option<u64>),
}

#[derive(Debug)]
struct AssociationPair {
    outbound: Outbound,
    /// The latest association that receives.
    current: Spi,
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

    /// Changes the grace of associations that will be replaced, in nanoseconds.
    pub fn set_grace(&mut self, grace: u64) {
        self.grace = grace;
    }

    /// Adds a tunnel.
    ///
    /// # Errors
    /// If another association receives with the same SPI.
    pub fn add(&mut self, inbound: Inbound, outbound: Outbound) -> Result<PairId, AssociationError> {
        let pair = PairId(self.next_id);
        let current = self.receive(pair, inbound)?;
        self.next_id += 1;
        self.pairs.insert(pair, AssociationPair { outbound, current });
        Ok(pair)
    }

    /// Receives with other keys, too. The old association is removed when the grace is over, which begins with the next
    /// call of [`remove_old`](Associations::remove_old). One with the SPI of the current association takes its place
    /// at once.
    ///
    /// # Errors
    /// If there is no such tunnel, or another association receives with this SPI.
    pub fn replace_inbound(&mut self, pair: PairId, inbound: Inbound) -> Result<(), AssociationError> {
        let current = self.pair(pair)?.current;
        if inbound.spi() == current {
            self.inbound.remove(&current);
        }
        let next = self.receive(pair, inbound)?;
        self.pair(pair)?.current = next;
        if let Some(receiver) = self.inbound.get_mut(&current).filter(|_| current != next) {
            receiver.age = Age::Old(None);
            self.next_removal = 0;
        }
        Ok(())
    }

    /// Sends with other keys from now on. Returns the old association.
    ///
    /// # Errors
    /// If there is no such tunnel.
    pub fn replace_outbound(&mut self, pair: PairId, outbound: Outbound) -> Result<Outbound, AssociationError> {
        Ok(std::mem::replace(&mut self.pair(pair)?.outbound, outbound))
    }

    /// Removes old associations whose grace is over, and returns their number. Cheap if there are none.
    pub fn remove_old(&mut self, now: u64) -> usize {
        if now < self.next_removal {
            return 0;
        }
        let before = self.inbound.len();
        let end = now.saturating_add(self.grace);
        let mut next = u64::MAX;
        self.inbound.retain(|_, receiver| {
            let Age::Old(removal) = &mut receiver.age else { return true };
            let removal = *removal.get_or_insert(end);
            next = next.min(if removal > now { removal } else { u64::MAX });
            removal > now
        });
        self.next_removal = next;
        before - self.inbound.len()
    }

    /// Removes a tunnel with all its associations. Returns the one that sent.
    ///
    /// # Errors
    /// If there is no such tunnel.
    pub fn remove(&mut self, pair: PairId) -> Result<Outbound, AssociationError> {
        let removed = self.pairs.remove(&pair).ok_or(AssociationError::UnknownPair)?;
        self.inbound.retain(|_, receiver| receiver.pair != pair);
        Ok(removed.outbound)
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

    /// The latest association of a tunnel that receives.
    pub fn current_inbound(&mut self, pair: PairId) -> Option<&mut Inbound> {
        let current = self.pairs.get(&pair)?.current;
        self.inbound(current).map(|(inbound, _)| inbound)
    }

    /// The tunnel of which an association receives with this SPI, also an old one.
    pub fn owner(&self, spi: Spi) -> Option<PairId> {
        self.inbound.get(&spi).map(|receiver| receiver.pair)
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

    /// The tunnels of the associations that were replaced and still receive: each as often as it has some.
    pub fn old_receivers(&self) -> impl Iterator<Item = PairId> {
        self.inbound.values().filter(|receiver| receiver.age != Age::Current).map(|receiver| receiver.pair)
    }

    fn receive(&mut self, pair: PairId, association: Inbound) -> Result<Spi, AssociationError> {
        let spi = association.spi();
        if self.inbound.contains_key(&spi) {
            return Err(AssociationError::DuplicateSpi(spi));
        }
        self.inbound.insert(spi, Receiver { association, pair, age: Age::Current });
        Ok(spi)
    }

    fn pair(&mut self, pair: PairId) -> Result<&mut AssociationPair, AssociationError> {
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
