//! The store of associations: keys are replaced without losing a packet, and zeroed when they are removed.

mod support;

use bellows_esp::{
    Algorithm, AssociationError, Associations, Inbound, InboundSettings, Keys, OpenError, Outbound, OutboundSettings,
    Spi,
};
use support::seal;

const GRACE: u64 = 1_000;

fn material(seed: u8) -> Keys {
    Keys::from_bytes(Algorithm::Aes128Gcm, &[seed; 20]).unwrap()
}

fn receiver(number: u32, seed: u8) -> Inbound {
    Inbound::new(Spi::new(number).unwrap(), &material(seed), InboundSettings::default()).unwrap()
}

fn sender(number: u32, seed: u8) -> Outbound {
    Outbound::new(Spi::new(number).unwrap(), &material(seed), OutboundSettings::default())
}

#[test]
fn keys_are_replaced_without_losing_a_packet() {
    let mut associations = Associations::new(GRACE);
    // The peer sends with `old` and later with `new`.
    let (mut old, mut new) = (sender(300, 1), sender(301, 2));
    let pair = associations.add(receiver(300, 1), sender(900, 11)).unwrap();
    assert_eq!(associations.open(&mut seal(&mut old, b"a", 4)).unwrap().0, pair);
    assert_eq!(associations.open(&mut seal(&mut new, b"b", 4)), Err(OpenError::UnknownSpi));

    associations.replace_inbound(pair, receiver(301, 2)).unwrap();
    assert_eq!(associations.outbound(pair).unwrap().spi().get(), 900);
    for sender in [&mut old, &mut new] {
        assert_eq!(associations.open(&mut seal(sender, b"c", 4)).unwrap().0, pair);
    }

    let replaced = associations.replace_outbound(pair, sender(901, 12)).unwrap();
    assert_eq!((replaced.spi().get(), associations.outbound(pair).unwrap().spi().get()), (900, 901));
    // The grace begins with the first call that passes a time.
    assert_eq!(associations.remove_old(5_000), 0);
    assert_eq!(associations.remove_old(5_000 + GRACE - 1), 0);
    for sender in [&mut old, &mut new] {
        assert_eq!(associations.open(&mut seal(sender, b"d", 4)).unwrap().0, pair);
    }

    assert_eq!(associations.remove_old(5_000 + GRACE), 1);
    assert_eq!(associations.remove_old(u64::MAX), 0);
    assert_eq!(associations.open(&mut seal(&mut old, b"e", 4)), Err(OpenError::UnknownSpi));
    associations.open(&mut seal(&mut new, b"e", 4)).unwrap();
    assert_eq!((associations.pairs(), associations.receivers()), (1, 1));
}

#[test]
fn keys_may_be_replaced_again_within_the_grace() {
    let mut associations = Associations::new(GRACE);
    let pair = associations.add(receiver(300, 1), sender(900, 11)).unwrap();
    for (index, now) in [(1, 100), (2, 600)] {
        associations.replace_inbound(pair, receiver(300 + index, 1 + index as u8)).unwrap();
        assert_eq!(associations.remove_old(now), 0);
    }
    assert_eq!(associations.receivers(), 3);
    assert_eq!(associations.remove_old(1_100), 1);
    assert_eq!(associations.remove_old(1_599), 0);
    assert_eq!(associations.remove_old(1_600), 1);
    assert!(associations.inbound(Spi::new(302).unwrap()).is_some());
}

#[test]
fn changes_that_are_refused_change_nothing() {
    let mut associations = Associations::new(GRACE);
    let pair = associations.add(receiver(300, 1), sender(900, 11)).unwrap();
    let other = associations.add(receiver(400, 1), sender(900, 11)).unwrap();
    let taken = AssociationError::DuplicateSpi(Spi::new(400).unwrap());
    assert_eq!(associations.add(receiver(400, 1), sender(900, 11)), Err(taken));
    assert_eq!(associations.replace_inbound(pair, receiver(400, 1)), Err(taken));
    assert_eq!((associations.pairs(), associations.receivers()), (2, 2));
    let spi = |number| Spi::new(number).unwrap();
    assert_eq!((associations.owner(spi(400)), associations.owner(spi(401))), (Some(other), None));

    associations.replace_inbound(pair, receiver(301, 1)).unwrap();
    assert_eq!(associations.current_inbound(pair).unwrap().spi(), spi(301));
    // The old one is there still, and its index with it.
    let taken = AssociationError::DuplicateSpi(spi(300));
    assert_eq!(associations.replace_inbound(pair, receiver(300, 1)), Err(taken));
    assert_eq!(associations.owner(spi(300)), Some(pair));

    assert_eq!(associations.remove(pair).unwrap().spi(), spi(900));
    assert_eq!((associations.pairs(), associations.receivers()), (1, 1));
    assert_eq!(associations.remove(pair).err(), Some(AssociationError::UnknownPair));
    assert_eq!(associations.replace_inbound(pair, receiver(500, 1)), Err(AssociationError::UnknownPair));
    assert!(associations.outbound(pair).is_none() && associations.current_inbound(pair).is_none());
    // The identity is not used again.
    assert_ne!(associations.add(receiver(300, 1), sender(900, 11)), Ok(pair));
    assert_eq!(associations.inbound(spi(400)).unwrap().1, other);
}

#[test]
fn an_association_with_the_same_index_takes_the_place_of_the_current_one() {
    let mut associations = Associations::new(GRACE);
    let pair = associations.add(receiver(300, 1), sender(900, 11)).unwrap();
    associations.replace_inbound(pair, receiver(300, 2)).unwrap();
    assert_eq!((associations.receivers(), associations.remove_old(u64::MAX)), (1, 0));
    associations.open(&mut seal(&mut sender(300, 2), b"a", 4)).unwrap();
    assert_eq!(associations.open(&mut seal(&mut sender(300, 1), b"a", 4)), Err(OpenError::Replayed));
    assert_eq!(associations.open(&mut seal(&mut sender(300, 1), b"a", 4)), Err(OpenError::Replayed));
}

#[test]
fn packets_of_no_association_are_refused() {
    let mut associations = Associations::new(GRACE);
    assert_eq!(associations.open(&mut []), Err(OpenError::TooShort));
    assert_eq!(associations.open(&mut [0, 0, 0, 9, 0]), Err(OpenError::UnknownSpi));
    assert_eq!(associations.open(&mut [1; 60]), Err(OpenError::UnknownSpi));
}

#[test]
fn many_tunnels_are_told_apart() {
    let mut associations = Associations::new(GRACE);
    let pairs: Vec<_> =
        (0..1_000).map(|index| associations.add(receiver(1_000 + index * 256, 1), sender(500, 1)).unwrap()).collect();
    for (index, pair) in pairs.iter().enumerate() {
        let mut peer = sender(1_000 + index as u32 * 256, 1);
        assert_eq!(associations.open(&mut seal(&mut peer, b"x", 4)).unwrap().0, *pair);
    }
}
