//! Packets that come out of tunnels.

use bellows_common::nexts::{Next, UNUSUAL};
use bellows_common::too_big::TooBig;
use bellows_engine::{DropReason, Io};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};

use super::index::Index;
use super::received::{Refusal, take_out};
use super::session::{Expected, Session, TunnelColumns};
use super::{Protocol, Tunnel};

impl<P: Protocol> Tunnel<P> {
    /// Takes packets out of their tunnels. Hot.
    pub(super) fn deliver(&mut self, io: &Io<Self>, index: usize) {
        let Tunnel { sessions, index: by_header, paths, wires, next_vectors, columns, .. } = self;
        let outputs = &wires.outputs;
        let mut input = io.input(index);
        let packets = input.packets_mut();
        let numbers = next_vectors.nexts(packets.len());
        let ahead = io.prefetch();
        let are_plain = by_header.are_plain();
        let take_out_all = TakeOut { sessions, index: by_header, outputs, packets, ahead, numbers, columns };
        let are_usual = match are_plain {
            true => Simd::chosen().run(TakeOutOf::<true>(take_out_all)),
            false => Simd::chosen().run(TakeOutOf::<false>(take_out_all)),
        };
        if are_usual {
            // All are of the only session.
            drop(input);
            return io.forward(index, outputs[0].into());
        }
        next_vectors.send_all(io, index, input, |packet| match take_out::<P>(sessions, by_header, packet) {
            Ok(session) if outputs[session] == UNUSUAL => Next::Drop(Self::UNKNOWN_PORT),
            Ok(session) => Next::To(outputs[session].into()),
            Err(Refusal::OtherProtocol) => Next::Drop(match TooBig::read(packet.bytes()) {
                Some(error) if paths.learn::<P>(sessions, by_header, &error, io.now()) => {
                    paths.expires().into_iter().for_each(|at| io.wake_at(at));
                    Self::TOLD
                }
                Some(_) => Self::BAD_ERROR,
                None => Self::OTHER_PROTOCOL,
            }),
            Err(refusal) => Next::Drop(Self::reason(refusal)),
        });
    }

    /// The counter of a refusal.
    fn reason(refusal: Refusal) -> DropReason<Self> {
        match refusal {
            Refusal::Malformed => Self::MALFORMED,
            Refusal::Fragment => Self::FRAGMENT,
            Refusal::OtherProtocol => Self::OTHER_PROTOCOL,
            Refusal::BadHeader => Self::BAD_HEADER,
            Refusal::NoSession => Self::NO_SESSION,
            Refusal::BadCookie => Self::BAD_COOKIE,
            Refusal::BadFlags => Self::BAD_FLAGS,
            Refusal::OutOfOrder => Self::OUT_OF_ORDER,
            Refusal::BadChecksum => Self::BAD_CHECKSUM,
            Refusal::BadEcn => Self::BAD_ECN,
            Refusal::BadPayload => Self::BAD_PAYLOAD,
        }
    }
}

/// Takes usual packets out, and numbers them by the outputs of their sessions.
struct TakeOut<'a> {
    sessions: &'a [Session],
    index: &'a Index,
    outputs: &'a [u16],
    packets: &'a mut [Packet],
    ahead: usize,
    numbers: &'a mut [u16],
    columns: &'a mut TunnelColumns,
}

/// The same for sessions that may all be plain. The result says whether all packets are usual and of the only session; then
/// they have no numbers.
struct TakeOutOf<'a, const ARE_PLAIN: bool>(TakeOut<'a>);

impl<const ARE_PLAIN: bool> Loop for TakeOutOf<'_, ARE_PLAIN> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let TakeOutOf(all) = self;
        let (sessions, outputs, index) = (all.sessions, all.outputs, all.index);
        // What is known of one session is not looked for in every packet.
        if let ([session], [output]) = (sessions, outputs) {
            let expected = session.expected;
            if *output != UNUSUAL && expected.take_out_all(all.packets, all.ahead, all.columns) {
                return true;
            }
            all.each::<ARE_PLAIN>(|_| Some((&expected, *output)));
        } else {
            all.each::<ARE_PLAIN>(|frame| {
                let place = index.guess(frame);
                Some((&sessions.get(place)?.expected, *outputs.get(place)?))
            });
        }
        false
    }
}

impl TakeOut<'_> {
    /// Takes packets out one by one: `find` says what the header of one must be to be usual, and where it goes.
    #[inline(always)]
    fn each<'e, const ARE_PLAIN: bool>(self, find: impl Fn(&[u8]) -> Option<(&'e Expected, u16)>) {
        let TakeOut { packets, ahead, numbers, .. } = self;
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for (at, number) in numbers.iter_mut().enumerate().take(packets.len()) {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            let packet = &mut packets[at];
            *number = match find(packet.bytes()) {
                // Of a session without an output, the packet is dropped as it came.
                Some((expected, output)) if output != UNUSUAL && expected.is_start_of(packet.bytes()) => {
                    if expected.take_out::<ARE_PLAIN>(packet) { output } else { UNUSUAL }
                }
                _ => UNUSUAL,
            };
        }
    }
}
