//! Calls generated code.

#![allow(unsafe_code)]

use std::mem::transmute;

use bellows_packet::Packet;

use super::Native;
use crate::plan::{DecisionMode, Plan};

/// A packet for the code: the address of its bytes, and their number, as in the handle of a packet.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Handle {
    pub data: *const u8,
    pub length: u64,
}

/// The packets of a call.
#[derive(Clone, Copy)]
pub(crate) enum Packets<'a> {
    Handles(&'a [Packet]),
    /// One packet that is not in a buffer of the pool; not longer than a handle can say.
    Slice(&'a [u8]),
    /// Such packets, as a vector. Allocates.
    Slices(&'a [&'a [u8]]),
}

fn handle(bytes: &[u8]) -> Handle {
    assert!(bytes.len() <= super::HANDLE_LENGTH_MASK as usize, "no handle can say this length");
    Handle { data: bytes.as_ptr(), length: bytes.len() as u64 }
}

/// Where the verdicts of a call go.
pub(crate) enum Verdicts<'a> {
    /// A bit for each packet.
    Bits(&'a mut [u64]),
    /// The number of a filter for each packet.
    Numbers(&'a mut [u16]),
    /// A bit for each filter, for each packet.
    Sets(&'a mut [u64]),
}

/// The generated function.
///
/// Safety: there are `count` handles, not 0, each with as many readable bytes as it says; there is room for as many
/// verdicts, in the form that the code was written for; and there are as many lengths on the wire if the code reads
/// them.
type Function = unsafe extern "sysv64" fn(handles: *const Handle, count: usize, verdicts: *mut u8, wire: *const u32);

/// Decides packets by the code of this plan.
///
/// # Panics
/// If there is no room for all verdicts, the verdicts have another form than the plan's, or lengths on the wire are
/// missing.
// Inlined, so that the forms of packets and verdicts are known.
#[inline(always)]
pub(crate) fn run(native: &Native, plan: &Plan, packets: Packets<'_>, verdicts: Verdicts<'_>, wire: &[u32]) {
    let (slice, slices);
    let (handles, count) = match packets {
        // A handle starts with the address, and then the length in the low bits of a word: checked in the parent module.
        Packets::Handles(packets) => (packets.as_ptr().cast::<Handle>(), packets.len()),
        Packets::Slice(bytes) => {
            slice = handle(bytes);
            (&raw const slice, 1)
        }
        Packets::Slices(all) => {
            slices = all.iter().map(|bytes| handle(bytes)).collect::<Vec<Handle>>();
            (slices.as_ptr(), slices.len())
        }
    };
    if count == 0 {
        return;
    }
    let (out, room) = match (verdicts, plan.mode, plan.filters) {
        // The last word may be one without a packet.
        (Verdicts::Bits(words), DecisionMode::First, 1) => {
            (words.as_mut_ptr().cast::<u8>(), (words.len() * 64).saturating_sub(1))
        }
        (Verdicts::Numbers(numbers), DecisionMode::First, 2..) => (numbers.as_mut_ptr().cast(), numbers.len()),
        (Verdicts::Sets(sets), DecisionMode::All, _) => (sets.as_mut_ptr().cast(), sets.len()),
        _ => panic!("verdicts in a form that this filter does not give"),
    };
    assert!(count <= room, "{count} packets, and room for {room} verdicts");
    assert!(!plan.reads_wire_length || wire.len() >= count, "lengths on the wire are missing");
    // SAFETY: the code is that of the plan, complete and sealed, and lives as long as `native`. The handles are those of
    // packets, or those made above, and say the truth about bytes that are borrowed until the call returns. The
    // assertions above checked the room for the verdicts and the lengths on the wire. The code reads packets only
    // behind tests of their length, and its tables, which `native` owns, only at indices that fit (property tests, also
    // with packets in front of a page that cannot be read). A prefetch takes its address from one of the handles, and has
    // no effect but on caches.
    unsafe {
        let function: Function = transmute(native.code().address());
        function(handles, count, out, wire.as_ptr());
    }
}
