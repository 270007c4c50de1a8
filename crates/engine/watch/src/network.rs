//! The watched network: its trait, and the calls of its apps.

use bellows_packet::Packet;

/// The view of the running network that traces and taps need.
pub trait Network {
    /// The position of the app of this name.
    fn app(&self, name: &str) -> Option<usize>;
    /// The number of a link, written `a.output -> b.input`.
    fn link(&self, link: &str) -> Option<u32>;
    /// The name of an app.
    fn app_name(&self, app: usize) -> &str;
    /// The name of the output that a link belongs to.
    fn output_name(&self, link: u32) -> &str;
    /// The name of one of an app's drop reasons.
    fn drop_reason(&self, app: usize, reason: u32) -> &str;
    /// The number of packets sent into a link.
    fn sent(&self, link: u32) -> u64;
    /// Visits the packets that wait in a link.
    fn with_packets(&self, link: u32, look: impl FnOnce(&mut [Packet]));
}

/// A call of an app.
pub struct Call<'a> {
    /// The app's position.
    pub app: usize,
    /// The numbers of the links of its outputs; for an open output, a number without a link.
    pub outputs: &'a [u32],
    /// Whether packets that it sends have entered the network in this call.
    pub brings_in: bool,
}

/// The default link type of a packet: Ethernet.
const ETHERNET: u32 = 1;

pub(crate) fn link_type(packet: &Packet) -> u32 {
    packet.meta().map_or(ETHERNET, |meta| meta.link_type)
}
