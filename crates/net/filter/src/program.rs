//! Filters that are ready to run: as machine code where possible, else by the interpreter of plans.

use std::time::Duration;

use bellows_codemem::Symbol;
use bellows_packet::{CAPACITY, Packet};

use crate::code_line::CodeLine;
use crate::graph::Graph;
use crate::interpret::PacketView;
#[cfg(target_arch = "x86_64")]
use crate::native::{
    Native,
    call::{self, Packets, Verdicts},
};
use crate::plan::{DecisionMode, ExpressionPart, Plan, PlanError};

/// How filters are compiled.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramOptions {
    /// Leaves everything to the interpreter.
    pub interpret: bool,
    /// Puts code where `perf` looks it up in its map, which interrupts other threads once.
    pub for_perf: bool,
}

/// Words of bits for a whole vector, and one that the code may write behind.
const WORDS: usize = CAPACITY / 64 + 1;

/// Which packets of a vector match.
#[derive(Clone, Debug)]
pub struct Matches {
    words: [u64; WORDS],
    packets: usize,
}

impl Default for Matches {
    fn default() -> Matches {
        Matches { words: [0; WORDS], packets: 0 }
    }
}

impl Matches {
    /// Number of packets that were decided.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// A bit for each packet, the lowest one first; 0 behind the last packet.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.packets.div_ceil(64)]
    }

    /// Number of packets that match.
    pub fn count(&self) -> usize {
        self.words().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether a packet matches; false behind the last one.
    pub fn contains(&self, packet: usize) -> bool {
        self.words().get(packet / 64).is_some_and(|word| word >> (packet % 64) & 1 == 1)
    }

    /// The positions of the packets that match.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().iter().enumerate().flat_map(|(index, &word)| {
            let rest = |word: &u64| Some(word & (word - 1)).filter(|&rest| rest != 0);
            let words = std::iter::successors(Some(word).filter(|&word| word != 0), rest);
            words.map(move |word| index * 64 + word.trailing_zeros() as usize)
        })
    }

    fn clear(&mut self, packets: usize) {
        self.packets = packets;
        self.words[..packets.div_ceil(64)].fill(0);
    }

    fn set_all(&mut self, packets: usize) {
        self.packets = packets;
        self.words[..packets / 64].fill(u64::MAX);
        self.words[packets / 64] = (1 << (packets % 64)) - 1;
    }
}

/// One filter, or several that are decided in one pass.
pub struct Program {
    plan: Plan,
    #[cfg(target_arch = "x86_64")]
    native: Option<Native>,
    fallback: Option<String>,
}

impl Program {
    /// One filter.
    ///
    /// # Errors
    /// The graph is not [valid](Graph::check).
    pub fn new(graph: &Graph) -> Result<Program, PlanError> {
        Program::with(&[graph], DecisionMode::First, ProgramOptions::default())
    }

    /// Several filters in one pass: the first one that matches, or all of them.
    ///
    /// # Errors
    /// A graph is not [valid](Graph::check), or there are more than [`MAX_FILTERS`](crate::plan::MAX_FILTERS).
    pub fn with(graphs: &[&Graph], mode: DecisionMode, options: ProgramOptions) -> Result<Program, PlanError> {
        let plan = Plan::of(graphs, mode)?;
        Ok(Program::of_plan(plan, options))
    }

    /// The first filter that matches, behind a guard: see [`Plan::guarded`].
    pub(crate) fn guarded(graphs: &[&Graph], options: ProgramOptions) -> Result<Program, PlanError> {
        Ok(Program::of_plan(Plan::guarded(graphs)?, options))
    }

    #[cfg(target_arch = "x86_64")]
    fn of_plan(plan: Plan, options: ProgramOptions) -> Program {
        if options.interpret {
            return Program { plan, native: None, fallback: Some("the interpreter was asked for".to_owned()) };
        }
        match Native::assemble(&plan, options.for_perf) {
            Ok(native) => Program { plan, native: Some(native), fallback: None },
            Err(reason) => Program { plan, native: None, fallback: Some(reason) },
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_plan(plan: Plan, _: ProgramOptions) -> Program {
        Program { plan, fallback: Some("the machine is not an x86-64".to_owned()) }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Why the interpreter runs instead of machine code, if it does.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Decides which packets match, for a program of one filter. Hot.
    ///
    /// # Panics
    /// If there are more than [`CAPACITY`] packets, or several filters.
    pub fn matches(&self, packets: &[Packet], matches: &mut Matches) {
        assert!(packets.len() <= CAPACITY, "{} packets, and a vector has up to {CAPACITY}", packets.len());
        if let Some(verdict) = self.plan.constant() {
            return match verdict.first {
                Some(_) => matches.set_all(packets.len()),
                None => matches.clear(packets.len()),
            };
        }
        #[cfg(target_arch = "x86_64")]
        if let (Some(native), false) = (&self.native, self.plan.reads_wire_length()) {
            matches.packets = packets.len();
            return call::run(native, &self.plan, Packets::Handles(packets), Verdicts::Bits(&mut matches.words), &[]);
        }
        self.matches_by_wire_length(packets, matches);
    }

    /// As [`Program::matches`], with the lengths on the wire, for which there is room in this frame, or by the
    /// interpreter.
    #[inline(never)]
    fn matches_by_wire_length(&self, packets: &[Packet], matches: &mut Matches) {
        self.with_wire_lengths(packets, |lengths| {
            #[cfg(target_arch = "x86_64")]
            if let Some(native) = &self.native {
                matches.packets = packets.len();
                let verdicts = Verdicts::Bits(&mut matches.words);
                return call::run(native, &self.plan, Packets::Handles(packets), verdicts, lengths);
            }
            matches.clear(packets.len());
            for (index, packet) in packets.iter().enumerate() {
                let matching = u64::from(self.plan.run(view(packet, lengths, index)).first.is_some());
                matches.words[index / 64] |= matching << (index % 64);
            }
        });
    }

    /// The number of the first filter that matches each packet, or the number of filters where none does; for a
    /// program of several filters. Hot.
    ///
    /// # Panics
    /// If there are more than [`CAPACITY`] packets or fewer numbers than packets, or the program is for
    /// [`DecisionMode::All`] or one filter.
    pub fn first(&self, packets: &[Packet], numbers: &mut [u16]) {
        let numbers = &mut numbers[..packets.len()];
        let number = |first: Option<u32>| first.map_or(self.plan.filters, |first| first as usize) as u16;
        if let Some(verdict) = self.plan.constant() {
            return numbers.fill(number(verdict.first));
        }
        self.with_wire_lengths(packets, |lengths| {
            #[cfg(target_arch = "x86_64")]
            if let Some(native) = &self.native {
                return call::run(native, &self.plan, Packets::Handles(packets), Verdicts::Numbers(numbers), lengths);
            }
            for (index, (packet, to)) in packets.iter().zip(numbers).enumerate() {
                *to = number(self.plan.run(view(packet, lengths, index)).first);
            }
        });
    }

    /// For each packet a bit for each filter that matches, for a program for [`DecisionMode::All`]. Hot.
    ///
    /// # Panics
    /// If there are more than [`CAPACITY`] packets or fewer sets than packets, or the program is for
    /// [`DecisionMode::First`].
    pub fn all(&self, packets: &[Packet], sets: &mut [u64]) {
        let sets = &mut sets[..packets.len()];
        self.with_wire_lengths(packets, |lengths| {
            #[cfg(target_arch = "x86_64")]
            if let Some(native) = &self.native {
                return call::run(native, &self.plan, Packets::Handles(packets), Verdicts::Sets(sets), lengths);
            }
            for (index, (packet, to)) in packets.iter().zip(sets).enumerate() {
                *to = self.plan.run(view(packet, lengths, index)).all;
            }
        });
    }

    /// Decides one packet that need not be in a buffer of the pool: the first filter that matches, and for
    /// [`DecisionMode::All`] whether one does, by its lowest position.
    pub fn decide(&self, packet: PacketView<'_>) -> crate::plan::Verdict {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native
            && packet.bytes.len() <= bellows_packet::handle::LENGTH_MASK as usize
        {
            let (bytes, wire) = (Packets::Slice(packet.bytes), &[packet.wire_length]);
            let (mut sets, mut numbers) = ([0], [0]);
            let first = match (self.plan.mode, self.plan.filters) {
                (DecisionMode::All, _) => {
                    call::run(native, &self.plan, bytes, Verdicts::Sets(&mut sets), wire);
                    return crate::plan::Verdict { first: None, all: sets[0] };
                }
                (DecisionMode::First, 1) => {
                    call::run(native, &self.plan, bytes, Verdicts::Bits(&mut sets), wire);
                    (sets[0] == 1).then_some(0)
                }
                (DecisionMode::First, filters) => {
                    call::run(native, &self.plan, bytes, Verdicts::Numbers(&mut numbers), wire);
                    Some(u32::from(numbers[0])).filter(|&number| (number as usize) < filters)
                }
            };
            return crate::plan::Verdict { first, all: first.map_or(0, |first| 1 << first) };
        }
        self.plan.run(packet)
    }

    /// As [`Program::decide`] for packets that are decided together, in the way of a vector: for tests, since it
    /// allocates.
    ///
    /// # Panics
    /// If there are more than [`CAPACITY`] packets.
    pub fn decide_together(&self, packets: &[PacketView<'_>]) -> Vec<crate::plan::Verdict> {
        assert!(packets.len() <= CAPACITY, "{} packets, and a vector has up to {CAPACITY}", packets.len());
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native
            && packets.iter().all(|packet| packet.bytes.len() <= bellows_packet::handle::LENGTH_MASK as usize)
        {
            let wire: Vec<u32> = packets.iter().map(|packet| packet.wire_length).collect();
            let slices: Vec<&[u8]> = packets.iter().map(|packet| packet.bytes).collect();
            let run = |verdicts| call::run(native, &self.plan, Packets::Slices(&slices), verdicts, &wire);
            let of_first =
                |first: Option<u32>| crate::plan::Verdict { first, all: first.map_or(0, |first| 1 << first) };
            return match (self.plan.mode, self.plan.filters) {
                (DecisionMode::All, _) => {
                    let mut sets = vec![0; packets.len()];
                    run(Verdicts::Sets(&mut sets));
                    sets.into_iter().map(|all| crate::plan::Verdict { first: None, all }).collect()
                }
                (DecisionMode::First, 1) => {
                    // What was there before must not count.
                    let mut matches = Matches { words: [u64::MAX; WORDS], packets: packets.len() };
                    run(Verdicts::Bits(&mut matches.words));
                    (0..packets.len()).map(|packet| of_first(matches.contains(packet).then_some(0))).collect()
                }
                (DecisionMode::First, filters) => {
                    let mut numbers = vec![0; packets.len()];
                    run(Verdicts::Numbers(&mut numbers));
                    let known = |number: u16| Some(u32::from(number)).filter(|&number| (number as usize) < filters);
                    numbers.into_iter().map(|number| of_first(known(number))).collect()
                }
            };
        }
        packets.iter().map(|&packet| self.plan.run(packet)).collect()
    }

    /// Calls `run` with the lengths on the wire, or with none if the filters do not ask.
    #[inline]
    fn with_wire_lengths(&self, packets: &[Packet], run: impl FnOnce(&[u32])) {
        if self.plan.reads_wire_length() { run(&wire_lengths(packets)[..packets.len()]) } else { run(&[]) }
    }

    /// The machine code, instruction by instruction; empty without. `name` names parts of the expressions.
    pub fn listing(&self, name: impl Fn(&ExpressionPart) -> String) -> Vec<CodeLine> {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native {
            return native.listing(name);
        }
        let _ = name;
        Vec::new()
    }

    /// The sections of the machine code, for `perf`, with names from `name`.
    pub fn symbols(&self, name: impl Fn(&ExpressionPart) -> String) -> Vec<Symbol> {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native {
            return native.symbols(name);
        }
        let _ = name;
        Vec::new()
    }

    /// Bytes of machine code and of the tables that it reads.
    pub fn size(&self) -> (usize, usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native {
            return (native.code().bytes().len(), native.table_bytes());
        }
        (0, 0)
    }

    /// How long assembling took.
    pub fn assembling(&self) -> Duration {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = &self.native {
            return native.assembling();
        }
        Duration::ZERO
    }
}

/// The lengths on the wire of a vector of packets.
#[inline(never)]
fn wire_lengths(packets: &[Packet]) -> [u32; CAPACITY] {
    let mut lengths = [0; CAPACITY];
    for (length, packet) in lengths.iter_mut().zip(packets) {
        // Headers that were added after the capture count.
        let original = packet.meta().map_or(0, |meta| meta.original_length);
        *length = original.max(packet.len() as u32);
    }
    lengths
}

fn view<'a>(packet: &'a Packet, lengths: &[u32], index: usize) -> PacketView<'a> {
    let bytes = packet.bytes();
    PacketView { bytes, wire_length: lengths.get(index).copied().unwrap_or(bytes.len() as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Block, BlockEnd, ComparisonOperator, Operand, Register, Step, Value, Width};

    /// Packets whose first byte is this number.
    fn first_byte(number: u32) -> Graph {
        let load = Value::Load { width: Width::Byte, base: None, offset: 0 };
        let steps = vec![Step { target: Register(0), value: load }];
        let end = BlockEnd::Branch {
            comparison: ComparisonOperator::Equal,
            left: Operand::Register(Register(0)),
            right: Operand::Constant(number),
            yes: 1,
            no: 2,
        };
        let block = |steps, end| Block { steps, end, part: 0..4 };
        let blocks = vec![block(steps, end), block(vec![], BlockEnd::Accept), block(vec![], BlockEnd::Reject)];
        Graph { blocks, registers: 1 }
    }

    #[test]
    fn vectors_of_every_length_are_decided() {
        bellows_packet::pool::ensure().unwrap();
        let packets: Vec<Packet> = (0..200u8).map(|index| Packet::from_bytes(&[index % 3]).unwrap()).collect();
        let graphs = [first_byte(1), first_byte(2)];
        let both: Vec<&Graph> = graphs.iter().collect();
        for interpret in [false, true] {
            let options = ProgramOptions { interpret, ..ProgramOptions::default() };
            let one = Program::with(&both[..1], DecisionMode::First, options).unwrap();
            let [first, all] =
                [DecisionMode::First, DecisionMode::All].map(|mode| Program::with(&both, mode, options).unwrap());
            let mut matches = Matches::default();
            for count in [0, 1, 63, 64, 65, 128, 129, 200] {
                let packets = &packets[..count];
                one.matches(packets, &mut matches);
                let expected: Vec<usize> = (0..count).filter(|index| index % 3 == 1).collect();
                assert_eq!(matches.positions().collect::<Vec<_>>(), expected);
                assert_eq!((matches.count(), matches.packets()), (expected.len(), count));
                assert!((0..count + 70).all(|index| matches.contains(index) == expected.contains(&index)));
                let mut numbers = [7; 200];
                first.first(packets, &mut numbers);
                let expected = |index: usize| if index < count { [2, 0, 1][index % 3] } else { 7 };
                assert!((0..200).all(|index| numbers[index] == expected(index)));
                let mut sets = [7; 200];
                all.all(packets, &mut sets);
                let expected = |index: usize| if index < count { [0, 1, 2][index % 3] } else { 7 };
                assert!((0..200).all(|index| sets[index] == expected(index)));
            }
        }
    }

    #[test]
    fn the_listing_and_the_symbols_name_parts() {
        let program = Program::new(&first_byte(1)).unwrap();
        if program.fallback().is_some() {
            return;
        }
        let name = |part: &ExpressionPart| format!("bytes {}..{}", part.text.start, part.text.end);
        let labels: Vec<String> = program.listing(name).into_iter().filter_map(|line| line.label).collect();
        assert_eq!(labels.first().map(String::as_str), Some("entry"));
        assert!(labels.contains(&"bytes 0..4".to_owned()) && labels.contains(&"verdict".to_owned()), "{labels:?}");
        let symbols = program.symbols(name);
        assert_eq!(symbols.iter().map(|symbol| symbol.size).sum::<usize>(), program.size().0);
    }

    #[test]
    fn programs_go_to_other_threads() {
        fn can_move<T: Send + Sync>() {}
        can_move::<Program>();
    }
}
