//! The XDP program that gives frames to sockets, assembled for a filter.

use std::ops::RangeInclusive;

use super::assembler::{
    Assembler, Condition, Instruction, JumpTooFar, Label, Operation, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Register,
    Width,
};
use super::filter::{Filter, IpVersion, MAX_EXTENSIONS, Match, PortDirection, PortProtocol, ethertype};

/// `XDP_PASS`: the kernel keeps the frame.
pub(super) const XDP_PASS: u16 = 2;

/// `BPF_FUNC_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// Offsets in the program's argument, `struct xdp_md`.
mod context {
    pub const DATA: i16 = 0;
    pub const DATA_END: i16 = 4;
    pub const RX_QUEUE_INDEX: i16 = 16;
}

/// The program's argument, from the start to the end of a program that reads frames.
const CONTEXT: Register = R6;
/// The next byte of the frame.
const POSITION: Register = R2;
/// The end of the frame, or of its first buffer.
const END: Register = R3;
/// What the program has read of a frame. [`ABSENT`] if the frame has no such field.
const SOURCE_PORT: Register = R4;
const DESTINATION_PORT: Register = R5;
const ETHERTYPE: Register = R7;
const PROTOCOL: Register = R8;
const DESTINATION: Register = R9;
/// Intermediate results.
const SCRATCH: Register = R0;

/// Sign-extended, more than any field can have.
const ABSENT: i32 = -1;

const ETHERNET_LENGTH: i16 = 14;
const VLAN_TAGS: usize = 2;
const VLAN_LENGTH: i16 = 4;
const VLAN_ETHERTYPES: [u16; 2] = [0x8100, 0x88a8];
const IPV4_LENGTH: i16 = 20;
const IPV6_LENGTH: i16 = 40;
/// The smallest extension header, and the size of a fragment header.
const EXTENSION_LENGTH: i16 = 8;
/// Hop-by-hop options, routing, destination options, mobility (RFC 8200, RFC 6275).
const EXTENSIONS: [i32; 4] = [0, 43, 60, 135];
const FRAGMENT: i32 = 44;
const AUTHENTICATION: i32 = 51;
const PORTS_LENGTH: i16 = 4;

/// The deepest header that the program has to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Nothing,
    Ethernet,
    Ip,
    Ports,
}

fn depth(wanted: &Match) -> Depth {
    match wanted {
        Match::All => Depth::Nothing,
        Match::EtherType(_) | Match::Destination(_) => Depth::Ethernet,
        Match::Protocol { .. } => Depth::Ip,
        Match::Port { .. } => Depth::Ports,
    }
}

/// Writes the end of a program that gives the frame to the socket of its receive queue in a map, or to the kernel if
/// there is none.
pub(super) fn redirect_to(map: i32) -> impl Fn(&mut Assembler, Register) {
    move |assembler, context| {
        assembler.load(Width::Word, R2, context, context::RX_QUEUE_INDEX);
        assembler.load_map(R1, map);
        assembler.compute(Operation::Move, R3, XDP_PASS.into());
        assembler.call(REDIRECT_MAP);
        assembler.exit();
    }
}

/// Assembles the program for a filter. `redirect` writes the end of the program for frames that match, with the
/// register that has the program's argument.
///
/// # Errors
/// The filter has too many matches.
pub(super) fn assemble(
    filter: &Filter,
    redirect: impl Fn(&mut Assembler, Register),
) -> Result<Vec<Instruction>, JumpTooFar> {
    let mut assembler = Assembler::default();
    // The verifier rejects instructions that cannot be reached, so no match follows one that always holds.
    if filter.redirect.is_empty() || filter.pass.contains(&Match::All) {
        pass(&mut assembler);
        return assembler.finish();
    }
    let redirected: &[Match] = if filter.redirect.contains(&Match::All) { &[Match::All] } else { &filter.redirect };
    if filter.pass.is_empty() && redirected == [Match::All] {
        redirect(&mut assembler, R1);
        return assembler.finish();
    }
    assembler.compute_with(Operation::Move, CONTEXT, R1);
    let matches = || filter.pass.iter().chain(redirected);
    let reads_destination = matches().any(|wanted| matches!(wanted, Match::Destination(_)));
    let depth = matches().map(depth).max().unwrap_or(Depth::Nothing);
    FieldReader { assembler: &mut assembler, depth, reads_destination }.read();
    let [to_kernel, to_socket] = [(); 2].map(|()| assembler.label());
    filter.pass.iter().for_each(|wanted| jump_on_match(&mut assembler, wanted, to_kernel));
    redirected.iter().for_each(|wanted| jump_on_match(&mut assembler, wanted, to_socket));
    assembler.place(to_kernel);
    pass(&mut assembler);
    assembler.place(to_socket);
    redirect(&mut assembler, CONTEXT);
    assembler.finish()
}

/// Writes the end of the program for frames that the kernel keeps.
fn pass(assembler: &mut Assembler) {
    assembler.compute(Operation::Move, R0, XDP_PASS.into());
    assembler.exit();
}

/// Writes the instructions that read the fields of a frame.
struct FieldReader<'a> {
    assembler: &'a mut Assembler,
    depth: Depth,
    reads_destination: bool,
}

impl FieldReader<'_> {
    fn read(&mut self) {
        let done = self.assembler.label();
        let fields = [
            (ETHERTYPE, Depth::Ethernet),
            (DESTINATION, Depth::Ethernet),
            (PROTOCOL, Depth::Ip),
            (SOURCE_PORT, Depth::Ports),
            (DESTINATION_PORT, Depth::Ports),
        ];
        for (field, _) in fields.into_iter().filter(|(_, depth)| *depth <= self.depth) {
            self.assembler.compute(Operation::Move, field, ABSENT);
        }
        self.assembler.load(Width::Word, POSITION, CONTEXT, context::DATA);
        self.assembler.load(Width::Word, END, CONTEXT, context::DATA_END);
        self.read_ethernet(done);
        if self.depth >= Depth::Ip {
            self.read_ip(done);
        }
        self.assembler.place(done);
    }

    /// Jumps unless the frame has `length` more bytes; the verifier then allows to read them.
    fn need(&mut self, length: i16, otherwise: Label) {
        self.assembler.compute_with(Operation::Move, SCRATCH, POSITION);
        self.assembler.compute(Operation::Add, SCRATCH, length.into());
        self.assembler.jump_if_register(SCRATCH, Condition::Above, END, otherwise);
    }

    fn skip(&mut self, length: i16) {
        self.assembler.compute(Operation::Add, POSITION, length.into());
    }

    /// Reads the destination and the EtherType behind VLAN tags, and skips the header.
    fn read_ethernet(&mut self, done: Label) {
        self.need(ETHERNET_LENGTH, done);
        if self.reads_destination {
            self.assembler.load_network(Width::Word, DESTINATION, POSITION, 0);
            self.assembler.compute(Operation::ShiftLeft, DESTINATION, 16);
            self.assembler.load_network(Width::Half, SCRATCH, POSITION, 4);
            self.assembler.compute_with(Operation::Or, DESTINATION, SCRATCH);
        }
        // Not into the field, which a tag that is cut off leaves absent.
        self.assembler.load_network(Width::Half, R1, POSITION, 12);
        self.skip(ETHERNET_LENGTH);
        let untagged = self.assembler.label();
        for _ in 0..VLAN_TAGS {
            let tagged = self.assembler.label();
            for tag in VLAN_ETHERTYPES {
                self.assembler.jump_if(R1, Condition::Equal, tag.into(), tagged);
            }
            self.assembler.jump(untagged);
            self.assembler.place(tagged);
            self.need(VLAN_LENGTH, done);
            self.assembler.load_network(Width::Half, R1, POSITION, 2);
            self.skip(VLAN_LENGTH);
        }
        self.assembler.place(untagged);
        self.assembler.compute_with(Operation::Move, ETHERTYPE, R1);
    }

    /// Reads the protocol and the ports.
    fn read_ip(&mut self, done: Label) {
        let [v4, v6, ports] = [(); 3].map(|()| self.assembler.label());
        self.assembler.jump_if(ETHERTYPE, Condition::Equal, ethertype::IPV4.into(), v4);
        self.assembler.jump_if(ETHERTYPE, Condition::Equal, ethertype::IPV6.into(), v6);
        self.assembler.jump(done);
        self.assembler.place(v4);
        self.read_ipv4(done);
        self.assembler.jump(ports);
        self.assembler.place(v6);
        self.read_ipv6(ports, done);
        self.assembler.place(ports);
        if self.depth >= Depth::Ports {
            self.read_ports(done);
        }
    }

    /// Reads the protocol; skips the header if ports may follow.
    fn read_ipv4(&mut self, done: Label) {
        const FRAGMENT_OFFSET: i32 = 0x1fff;
        const WORDS: i32 = 0x0f;
        self.need(IPV4_LENGTH, done);
        self.assembler.load(Width::Byte, PROTOCOL, POSITION, 9);
        if self.depth < Depth::Ports {
            return;
        }
        self.assembler.load_network(Width::Half, SCRATCH, POSITION, 6);
        self.assembler.compute(Operation::And, SCRATCH, FRAGMENT_OFFSET);
        self.assembler.jump_if(SCRATCH, Condition::NotEqual, 0, done);
        self.assembler.load(Width::Byte, SCRATCH, POSITION, 0);
        self.assembler.compute(Operation::And, SCRATCH, WORDS);
        self.assembler.compute(Operation::ShiftLeft, SCRATCH, 2);
        self.assembler.jump_if(SCRATCH, Condition::Below, IPV4_LENGTH.into(), done);
        self.assembler.compute_with(Operation::Add, POSITION, SCRATCH);
    }

    /// Reads the protocol after the extension headers, and skips them.
    fn read_ipv6(&mut self, ports: Label, done: Label) {
        self.need(IPV6_LENGTH, done);
        self.assembler.load(Width::Byte, PROTOCOL, POSITION, 6);
        self.skip(IPV6_LENGTH);
        for _ in 0..MAX_EXTENSIONS {
            let [extension, authentication, fragment, advance, next] = [(); 5].map(|()| self.assembler.label());
            for number in EXTENSIONS {
                self.assembler.jump_if(PROTOCOL, Condition::Equal, number, extension);
            }
            self.assembler.jump_if(PROTOCOL, Condition::Equal, FRAGMENT, fragment);
            self.assembler.jump_if(PROTOCOL, Condition::Equal, AUTHENTICATION, authentication);
            self.assembler.jump(ports);
            self.assembler.place(fragment);
            self.skip_fragment_header(done);
            self.assembler.jump(next);
            // RFC 4302: the length is in words of 4 bytes, less 2.
            self.assembler.place(authentication);
            self.load_extension_length(2, 2, done);
            self.assembler.jump(advance);
            // RFC 8200: the length is in words of 8 bytes, less 1.
            self.assembler.place(extension);
            self.load_extension_length(1, 3, done);
            self.assembler.place(advance);
            self.assembler.load(Width::Byte, PROTOCOL, POSITION, 0);
            self.assembler.compute_with(Operation::Add, POSITION, SCRATCH);
            self.assembler.place(next);
        }
    }

    /// Reads the protocol of a fragment, and skips the header if it is the first.
    fn skip_fragment_header(&mut self, done: Label) {
        const FRAGMENT_OFFSET: i32 = 0xfff8;
        self.need(EXTENSION_LENGTH, done);
        self.assembler.load(Width::Byte, PROTOCOL, POSITION, 0);
        self.assembler.load_network(Width::Half, SCRATCH, POSITION, 2);
        self.assembler.compute(Operation::And, SCRATCH, FRAGMENT_OFFSET);
        self.assembler.jump_if(SCRATCH, Condition::NotEqual, 0, done);
        self.skip(EXTENSION_LENGTH);
    }

    /// Computes the length of an extension header in bytes from its second byte, which is `less` too small and counts
    /// words of `1 << shift` bytes.
    fn load_extension_length(&mut self, less: i32, shift: i32, done: Label) {
        self.need(EXTENSION_LENGTH, done);
        self.assembler.load(Width::Byte, SCRATCH, POSITION, 1);
        self.assembler.compute(Operation::Add, SCRATCH, less);
        self.assembler.compute(Operation::ShiftLeft, SCRATCH, shift);
    }

    fn read_ports(&mut self, done: Label) {
        let present = self.assembler.label();
        for protocol in PortProtocol::ALL {
            self.assembler.jump_if(PROTOCOL, Condition::Equal, protocol.number().into(), present);
        }
        self.assembler.jump(done);
        self.assembler.place(present);
        self.need(PORTS_LENGTH, done);
        self.assembler.load_network(Width::Half, SOURCE_PORT, POSITION, 0);
        self.assembler.load_network(Width::Half, DESTINATION_PORT, POSITION, 2);
    }
}

/// Writes the instructions that jump if the fields match.
fn jump_on_match(assembler: &mut Assembler, wanted: &Match, target: Label) {
    let no = assembler.label();
    match wanted {
        Match::All => assembler.jump(target),
        Match::EtherType(number) => assembler.jump_if(ETHERTYPE, Condition::Equal, (*number).into(), target),
        Match::Destination([a, b, c, d, e, f]) => {
            assembler.load_number(SCRATCH, u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]));
            assembler.jump_if_register(DESTINATION, Condition::Equal, SCRATCH, target);
        }
        Match::Protocol { version, number } => {
            if let Some(version) = version.map(IpVersion::ethertype) {
                assembler.jump_if(ETHERTYPE, Condition::NotEqual, version.into(), no);
            }
            assembler.jump_if(PROTOCOL, Condition::Equal, (*number).into(), target);
        }
        Match::Port { protocol, direction, ports } => {
            if let Some(protocol) = protocol {
                assembler.jump_if(PROTOCOL, Condition::NotEqual, protocol.number().into(), no);
            }
            for (port, of) in [(SOURCE_PORT, PortDirection::Source), (DESTINATION_PORT, PortDirection::Destination)] {
                if direction.is_none_or(|direction| direction == of) {
                    jump_if_inside(assembler, port, ports, target);
                }
            }
        }
    }
    assembler.place(no);
}

/// Writes the instructions that jump if a port is in a range.
///
/// They compare a multiple of the port. Otherwise the verifier would deduce bounds of the port itself from each
/// comparison, and check all that follows for each combination of bounds of both ports: its time would grow with the
/// square of the number of matches.
fn jump_if_inside(assembler: &mut Assembler, port: Register, ports: &RangeInclusive<u16>, target: Label) {
    let [first, last] = [*ports.start(), *ports.end()].map(i32::from);
    assembler.compute_with(Operation::Move, SCRATCH, port);
    assembler.compute(Operation::ShiftLeft, SCRATCH, 1);
    assembler.compute(Operation::Add, SCRATCH, -2 * first);
    assembler.jump_if(SCRATCH, Condition::BelowOrEqual, 2 * (last - first), target);
}
