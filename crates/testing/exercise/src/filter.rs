//! Filters made of arbitrary bytes: the interpreter of graphs, that of plans, and machine code must agree on them.

use bellows_filter::Program;
use bellows_filter::graph::{
    Block, BlockEnd, ComparisonOperator, Graph, Operand, Operation, Register, Step, Value, Width,
};
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::plan::DecisionMode;
use bellows_filter::program::ProgramOptions;
use bellows_sys::memory::Guarded;

/// Packets in a vector: some groups, in which packets differ, and a rest.
const VECTOR: usize = 8 * 12 + 3;

/// Checks that all agree on some filters, alone, in one pass, and on every length of the packet. Its bytes end at a
/// page that cannot be read.
pub fn agree(graphs: &[Graph], packet: &[u8]) {
    let [mut guarded, mut whole] = [(); 2].map(|()| Guarded::new().expect("a page in front of another one"));
    let graphs: Vec<&Graph> = graphs.iter().collect();
    let program =
        |graphs: &[&Graph], mode| Program::with(graphs, mode, ProgramOptions::default()).expect("valid graphs");
    let one = program(&graphs[..1], DecisionMode::First);
    let [first, all] = [DecisionMode::First, DecisionMode::All].map(|mode| program(&graphs, mode));
    for program in [&one, &first, &all] {
        assert!(program.fallback().is_none() || !cfg!(target_arch = "x86_64"), "{:?}", program.fallback());
    }
    let wire_length = packet.len() as u32;
    let whole = PacketView { bytes: whole.place(packet), wire_length };
    let whole_verdicts = [&one, &first, &all].map(|program| program.plan().run(whole).all);
    for (length, wire_length) in (0..=packet.len()).map(|length| (length, wire_length)).chain([(packet.len(), 1_500)]) {
        let view = PacketView { bytes: guarded.place(&packet[..length]), wire_length };
        let expected: Vec<bool> = graphs.iter().map(|graph| matches(graph, view)).collect();
        let position = expected.iter().position(|&matches| matches).map(|position| position as u32);
        let bits = expected.iter().rev().fold(0, |bits, &matches| bits << 1 | u64::from(matches));
        let code = [one.decide(view).first.map_or(0, |_| 1), first.decide(view).all, all.decide(view).all];
        let plan = [&one, &first, &all].map(|program| program.plan().run(view));
        let expected_sets = [u64::from(expected[0]), position.map_or(0, |position| 1 << position), bits];
        assert_eq!(plan.map(|verdict| verdict.all), expected_sets, "plan, {view:?}, {graphs:#?}");
        assert_eq!(code, expected_sets, "code, {view:?}, {graphs:#?}");
        // Alone among whole packets at each place of a group, together with others, and in what is no whole group.
        for (program, (of_view, of_whole)) in
            [&one, &first, &all].into_iter().zip(expected_sets.into_iter().zip(whole_verdicts))
        {
            let is_view = |place: usize| place / 8 == place % 8 || (8 * 8..8 * 10).contains(&place) || place % 5 == 4;
            let vector: Vec<PacketView<'_>> =
                (0..VECTOR).map(|place| if is_view(place) { view } else { whole }).collect();
            let verdicts = program.decide_together(&vector);
            let expected = (0..VECTOR).map(|place| if is_view(place) { of_view } else { of_whole });
            assert!(
                verdicts.iter().map(|verdict| verdict.all).eq(expected),
                "vector, {view:?}, {whole:?}, {graphs:#?}"
            );
        }
    }
}

/// As [`agree`], with filters and a packet made of arbitrary bytes.
pub fn agree_on(filters: &[&[u8]], packet: &[u8]) {
    let graphs: Vec<Graph> = filters.iter().map(|bytes| Choices::new(bytes).graph()).collect();
    let mut packet = Choices::new(packet).packet();
    // A loop without progress takes all its rounds at every length.
    if graphs.iter().flat_map(|graph| &graph.blocks).any(|block| matches!(block.end, BlockEnd::Again(_))) {
        packet.truncate(2);
    }
    if !graphs.is_empty() {
        agree(&graphs, &packet);
    }
}

/// Choices that bytes make. When they are used up, the first choice is taken.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

/// Numbers that matter to the headers of packets, and to arithmetic.
const NUMBERS: [u32; 20] =
    [0, 1, 2, 4, 5, 6, 8, 14, 17, 31, 32, 80, 0x0f, 0xff, 0x0800, 0x1fff, 0xff00, 0xffff, 0x8000_0000, 0xffff_ffff];

impl<'a> Choices<'a> {
    /// Choices of these bytes.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { bytes }
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        byte
    }

    /// A number below `count`, at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn number(&mut self) -> u32 {
        match self.below(4) {
            0 => self.of(&NUMBERS),
            1 => u32::from(self.byte()),
            2 => u32::from(self.byte()) << 8 | u32::from(self.byte()),
            _ => self.of(&[0, 1, 2, 3]),
        }
    }

    fn register(&mut self, registers: usize) -> Register {
        Register(self.below(registers) as u16)
    }

    fn operand(&mut self, registers: usize) -> Operand {
        match self.below(2) {
            0 => Operand::Register(self.register(registers)),
            _ => Operand::Constant(self.number()),
        }
    }

    fn value(&mut self, registers: usize) -> Value {
        use Operation::{Add, And, Divide, Multiply, Or, Remainder, ShiftLeft, ShiftRight, Subtract, Xor};
        const OPERATIONS: [Operation; 13] =
            [And, Add, ShiftLeft, And, Add, Subtract, Multiply, Divide, Remainder, Or, Xor, ShiftRight, ShiftLeft];
        match self.below(8) {
            0..=2 => {
                let width = self.of(&[Width::Byte, Width::Half, Width::Word]);
                Value::Load { width, base: None, offset: self.below(48) as u32 }
            }
            3 => {
                let width = self.of(&[Width::Byte, Width::Half, Width::Word]);
                let offset = if self.below(16) == 15 { self.number() } else { self.below(20) as u32 };
                Value::Load { width, base: Some(self.register(registers)), offset }
            }
            4 => match self.below(4) {
                0 => Value::Length,
                _ => Value::Copy(self.operand(registers)),
            },
            _ => Value::Binary {
                operation: self.of(&OPERATIONS),
                left: self.operand(registers),
                right: self.operand(registers),
            },
        }
    }

    /// A valid graph. Loops are rare.
    pub fn graph(&mut self) -> Graph {
        let registers = 1 + self.below(5);
        let count = 2 + self.below(20);
        // Few words are loaded often, so that tests depend on each other.
        let common: Vec<Value> = (0..3).map(|_| self.value(registers)).collect();
        let block = |index: usize| {
            let step = |choices: &mut Self| Step {
                target: choices.register(registers),
                value: if choices.below(2) == 0 { choices.of(&common) } else { choices.value(registers) },
            };
            let steps = (0..self.below(4)).map(|_| step(self)).collect();
            Block { steps, end: self.end(index, count, registers), part: index..index + 1 }
        };
        Graph { blocks: (0..count).map(block).collect(), registers }
    }

    fn end(&mut self, index: usize, count: usize, registers: usize) -> BlockEnd {
        const COMPARISONS: [ComparisonOperator; 5] = [
            ComparisonOperator::Equal,
            ComparisonOperator::Equal,
            ComparisonOperator::Greater,
            ComparisonOperator::GreaterOrEqual,
            ComparisonOperator::AnyBit,
        ];
        if index + 1 == count {
            return BlockEnd::Accept;
        }
        let later = |choices: &mut Self| match choices.below(4) {
            0 => count - 1,
            1 => index + 1,
            _ => index + 1 + choices.below(count - index - 1),
        };
        match self.below(32) {
            0..=24 => BlockEnd::Branch {
                comparison: self.of(&COMPARISONS),
                left: Operand::Register(self.register(registers)),
                right: if self.below(8) == 7 { self.operand(registers) } else { Operand::Constant(self.number()) },
                yes: later(self),
                no: later(self),
            },
            25 | 26 => BlockEnd::Goto(later(self)),
            27 => BlockEnd::Again(self.below(index + 1)),
            28 => BlockEnd::Accept,
            _ => BlockEnd::Reject,
        }
    }

    /// Bytes of a packet: many small ones, so that they are also offsets.
    pub fn packet(&mut self) -> Vec<u8> {
        let length = self.below(90);
        let small = |choices: &mut Self| match choices.below(4) {
            0 => choices.byte(),
            1 => choices.of(&[0, 6, 8, 17, 80]),
            _ => choices.byte() & 0x1f,
        };
        (0..length).map(|_| small(self)).collect()
    }
}
