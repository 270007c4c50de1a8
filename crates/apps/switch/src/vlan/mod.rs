//! VLANs (IEEE 802.1Q): the apps that tag frames, and the header that they share with bridges.

pub(crate) mod header;
pub mod mux;
pub mod tag;
pub mod untag;
