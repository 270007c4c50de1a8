//! ESP (RFC 4303) over byte buffers.
//!
//! An [`Outbound`] seals packets, an [`Inbound`] opens them. Both work in place, on the bytes that they are given, and
//! know neither the protocol around ESP nor the one inside: the caller decides between transport and tunnel mode, and
//! writes the headers in front. [`Associations`] holds the security associations of many tunnels and replaces their
//! keys without losing a packet. [`udp`] is the encapsulation for paths that translate addresses.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod algorithm;
mod associations;
mod cipher;
mod inbound;
mod keys;
mod layout;
mod lifetime;
mod outbound;
mod progress;
mod sequence;
mod spi;
pub mod udp;
mod window;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use associations::{AssociationError, Associations, PairId};
pub use cipher::Cipher;
pub use inbound::{Inbound, InboundSettings, OpenError, Opened, SettingsError};
pub use keys::{Fingerprint, KeyError, Keys, SecretPart as KeyPart};
pub use layout::{HEADER, ICV, MAX_TRAILER, NEXT_HEADER_DUMMY, sealed_length, trailer_length};
pub use lifetime::{Amount, Lifetime, Limit};
pub use outbound::{Outbound, OutboundSettings, SealError};
pub use progress::KeyProgress;
pub use spi::{Spi, SpiError};
pub use window::{MAX_WINDOW, MIN_WINDOW};
