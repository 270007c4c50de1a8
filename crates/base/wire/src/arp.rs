//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::view::{Error, expect, need, view};
use crate::{EtherType, MacAddr};

const HARDWARE_TYPE_ETHERNET: u16 = 1;

/// The operation of an ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// Asks for the Ethernet address of the target's IPv4 address.
    pub const REQUEST: Self = Self(1);
    /// Announces the sender's address.
    pub const REPLY: Self = Self(2);
}

crate::view::impl_field! {
    ArpOperation: 2, |bytes| ArpOperation(u16::from_be_bytes(bytes)), |operation: ArpOperation| operation.0.to_be_bytes();
}

view! {
    /// An ARP packet for Ethernet and IPv4 addresses; others are rejected.
    ArpPacket: "ARP", 28 bytes, ranges in field, checked by check {
        /// The link layer: 1 for Ethernet.
        hardware_type, set_hardware_type: u16 = HARDWARE_TYPE 0..2;
        /// The network layer.
        protocol_type, set_protocol_type: EtherType = PROTOCOL_TYPE 2..4;
        /// Length of a link layer address: 6.
        hardware_len, set_hardware_len: u8 = HARDWARE_LEN 4..5;
        /// Length of a network layer address: 4.
        protocol_len, set_protocol_len: u8 = PROTOCOL_LEN 5..6;
        /// Request or reply.
        operation, set_operation: ArpOperation = OPERATION 6..8;
        /// The sender's Ethernet address.
        sender_mac, set_sender_mac: MacAddr = SENDER_MAC 8..14;
        /// The sender's IPv4 address.
        sender_ip, set_sender_ip: Ipv4Addr = SENDER_IP 14..18;
        /// The target's Ethernet address; meaningless in a request.
        target_mac, set_target_mac: MacAddr = TARGET_MAC 18..24;
        /// The target's IPv4 address.
        target_ip, set_target_ip: Ipv4Addr = TARGET_IP 24..28;
    }
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    let view = ArpPacket(bytes);
    let (hardware, EtherType(protocol)) = (view.hardware_type(), view.protocol_type());
    expect(hardware == HARDWARE_TYPE_ETHERNET, "ARP", "hardware type", hardware, "1 (Ethernet)")?;
    expect(protocol == EtherType::IPV4.0, "ARP", "protocol type", protocol, "2048 (IPv4)")?;
    expect(view.hardware_len() == 6, "ARP", "hardware address length", view.hardware_len(), "6")?;
    expect(view.protocol_len() == 4, "ARP", "protocol address length", view.protocol_len(), "4")
}

/// The fields of an ARP packet, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpHeader {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// The sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address.
    pub target_mac: MacAddr,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl ArpHeader {
    /// Writes the packet's 28 bytes.
    ///
    /// # Errors
    /// If there are fewer bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Error> {
        need("ARP", bytes, field::HEADER_LEN)?;
        let mut view = ArpPacket(bytes);
        view.set_hardware_type(HARDWARE_TYPE_ETHERNET);
        view.set_protocol_type(EtherType::IPV4);
        view.set_hardware_len(6);
        view.set_protocol_len(4);
        view.set_operation(self.operation);
        view.set_sender_mac(self.sender_mac);
        view.set_sender_ip(self.sender_ip);
        view.set_target_mac(self.target_mac);
        view.set_target_ip(self.target_ip);
        Ok(())
    }
}
