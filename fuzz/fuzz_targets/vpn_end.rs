//! An end of a VPN whose other end says and sends anything: frames pass while the last control message was young and right.

#![no_main]

use bellows_exercise::vpn::{VpnEnd, VpnEvent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|events: Vec<(u8, Vec<u8>)>| {
    let mut end = VpnEnd::new();
    for (kind, bytes) in events {
        end.check(&match kind % 5 {
            0 => VpnEvent::Pause(bytes.iter().fold(0, |all, &byte| all << 8 | u16::from(byte))),
            1 => VpnEvent::Control(bytes),
            2 => VpnEvent::FromTunnel(bytes),
            3 => VpnEvent::FromCircuit(bytes),
            _ => VpnEvent::FromWire(bytes),
        });
    }
});
