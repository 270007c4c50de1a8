//! What is watched: a network that runs, and the calls of its apps.

use bellows_packet::Packet;

/// What those who watch packets know of the network that runs.
pub trait Network {
    /// The position of the app of this name.
    fn app(&self, name: &str) -> Option<usize>;
    /// The number of a link, written `a.output -> b.input`.
    fn link(&self, link: &str) -> Option<u32>;
    /// The name of an app.
    fn app_name(&self, app: usize) -> &str;
    /// The name of the output that leads to a link.
    fn output_name(&self, link: u32) -> &str;
    /// The name of one of the reasons for which an app drops packets.
    fn drop_reason(&self, app: usize, reason: u32) -> &str;
    /// How many packets a link has been sent.
    fn sent(&self, link: u32) -> u64;
    /// Looks at the packets that wait in a link.
    fn with_packets(&self, link: u32, look: impl FnOnce(&mut [Packet]));
}

/// A call of an app.
pub struct Call<'a> {
    /// The app's position.
    pub app: usize,
    /// The numbers of the links behind its outputs; a number without a link if one is open.
    pub outputs: &'a [u32],
    /// Whether packets that it sends have come into the network in this call.
    pub brings_in: bool,
}

/// The link type of a packet that does not say what it is: Ethernet.
const ETHERNET: u32 = 1;

pub(crate) fn link_type(packet: &Packet) -> u32 {
    packet.meta().map_or(ETHERNET, |meta| meta.link_type)
}
