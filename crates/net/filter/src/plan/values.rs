//! Values that a filter computes, each once, and the sets that they are tested against.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::graph::{ComparisonOperator, Operation, Width};

/// A hash for small keys that no stranger chooses for long: a filter's text is bounded, and so are its collisions.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// The index of a value.
pub(crate) type ValueId = u32;

/// A number that depends on the packet alone, or on variables. To compute it never fails: what could is tested before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Constant(u32),
    /// Bytes of the packet. They are inside: a test of the room came before.
    Load {
        width: Width,
        base: Option<ValueId>,
        offset: u32,
    },
    /// The length on the wire.
    WireLength,
    /// Number of captured bytes from the base on, or from the start; 0 if the base is outside.
    Room(Option<ValueId>),
    Binary {
        operation: Operation,
        left: ValueId,
        right: ValueId,
    },
    /// A variable: what paths that meet compute differently.
    Variable(u32),
}

/// All values of a plan. Equal ones have equal numbers.
#[derive(Default)]
pub(crate) struct Values {
    kinds: Vec<Value>,
    /// The maximum of each.
    max: Vec<u32>,
    /// The number of values that each is made of, counted as often as they are used.
    sizes: Vec<u32>,
    index: FastMap<Value, ValueId>,
}

/// The bits of all numbers up to this one.
fn bits_up_to(max: u32) -> u32 {
    u32::MAX.checked_shr(max.leading_zeros()).unwrap_or(0)
}

/// What a load needs.
pub(crate) enum Loaded {
    /// It is never inside.
    Never,
    /// The value, and the room that it needs, in bytes.
    Value { value: ValueId, room: ValueId, need: u32 },
}

/// A test: its outcome, or what to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Always(bool),
    /// Holds if the condition is `expected`.
    If {
        condition: Condition,
        expected: bool,
    },
}

/// A condition that costs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Condition {
    /// The value is in the set.
    Member(ValueId, SetId),
    /// The values compare so.
    Compare(ComparisonOperator, ValueId, ValueId),
    /// The words are in the set of tuples.
    Tuple(TupleId),
}

impl Values {
    pub(crate) fn get(&self, value: ValueId) -> Value {
        self.kinds[value as usize]
    }

    pub(crate) fn max(&self, value: ValueId) -> u32 {
        self.max[value as usize]
    }

    pub(crate) fn size(&self, value: ValueId) -> u32 {
        self.sizes[value as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn constant(&mut self, number: u32) -> ValueId {
        self.intern(Value::Constant(number))
    }

    pub(crate) fn intern(&mut self, kind: Value) -> ValueId {
        if let Some(&value) = self.index.get(&kind) {
            return value;
        }
        let value = self.kinds.len() as ValueId;
        let max = self.max_of(kind);
        self.kinds.push(kind);
        self.max.push(max);
        let of = |value: ValueId| self.sizes[value as usize];
        let size = match kind {
            Value::Load { base: Some(base), .. } | Value::Room(Some(base)) => of(base),
            Value::Binary { left, right, .. } => of(left).saturating_add(of(right)),
            _ => 0,
        };
        self.sizes.push(size.saturating_add(1));
        self.index.insert(kind, value);
        value
    }

    fn max_of(&self, kind: Value) -> u32 {
        let Value::Binary { operation, left, right } = kind else {
            return match kind {
                Value::Constant(number) => number,
                Value::Load { width: Width::Byte, .. } => 0xff,
                Value::Load { width: Width::Half, .. } => 0xffff,
                _ => u32::MAX,
            };
        };
        let (first, second) = (self.max(left), self.max(right));
        let amount = self.number(right);
        match operation {
            Operation::Add => first.saturating_add(second),
            Operation::Multiply => first.saturating_mul(second),
            Operation::And => first.min(second),
            Operation::Or | Operation::Xor => bits_up_to(first | second),
            Operation::Divide => first,
            Operation::Remainder => first.min(second.saturating_sub(1)),
            Operation::ShiftRight => first >> amount.filter(|&bits| bits < 32).unwrap_or(0),
            Operation::ShiftLeft => match amount {
                Some(bits) if bits < first.leading_zeros() => first << bits,
                _ => u32::MAX,
            },
            Operation::Subtract => u32::MAX,
        }
    }

    /// Sets the maximum of a variable, before anything is made of it.
    pub(crate) fn set_max(&mut self, variable: ValueId, max: u32) {
        self.max[variable as usize] = max;
    }

    /// The number that it always is, if it is constant.
    pub(crate) fn number(&self, value: ValueId) -> Option<u32> {
        match self.get(value) {
            Value::Constant(number) => Some(number),
            _ => None,
        }
    }

    /// The result of an operation. If it divides, a test that the divisor is not 0 comes before.
    pub(crate) fn binary(&mut self, operation: Operation, left: ValueId, right: ValueId) -> ValueId {
        use Operation::{Add, And, Divide, Multiply, Or, ShiftLeft, ShiftRight, Subtract, Xor};
        let (mut operation, mut left, mut right) = (operation, left, right);
        if let (Some(first), Some(second)) = (self.number(left), self.number(right)) {
            return self.constant(operation.apply(first, second).unwrap_or(0));
        }
        if matches!(operation, Add | Multiply | And | Or | Xor) && self.number(left).is_some() {
            (left, right) = (right, left);
        }
        if operation == Subtract
            && let Some(number) = self.number(right)
        {
            operation = Add;
            right = self.constant(number.wrapping_neg());
        }
        let Some(number) = self.number(right) else {
            return match operation {
                Subtract | Xor if left == right => self.constant(0),
                And | Or if left == right => left,
                _ => self.intern(Value::Binary { operation, left, right }),
            };
        };
        let same = match operation {
            Add | Or | Xor | ShiftLeft | ShiftRight => number == 0,
            Multiply | Divide => number == 1,
            And => bits_up_to(self.max(left)) & !number == 0,
            _ => false,
        };
        if same {
            return left;
        }
        let vanishes = match operation {
            Multiply | And => number == 0,
            ShiftLeft | ShiftRight => number >= 32,
            _ => false,
        };
        if vanishes {
            return self.constant(0);
        }
        let power = number.is_power_of_two().then_some(number.trailing_zeros());
        match (operation, power) {
            (Multiply, Some(bits)) => (operation, right) = (ShiftLeft, self.constant(bits)),
            (Divide, Some(bits)) => (operation, right) = (ShiftRight, self.constant(bits)),
            (Operation::Remainder, Some(_)) => (operation, right) = (And, self.constant(number - 1)),
            _ => {}
        }
        if operation != self.operation_of(left).unwrap_or(Subtract) {
            return self.intern(Value::Binary { operation, left, right });
        }
        // The same operation with two numbers, one after the other.
        if let (Value::Binary { left: inner, right: first, .. }, Some(second)) = (self.get(left), self.number(right))
            && let Some(first) = self.number(first)
            && let Some(joined) = match operation {
                Add => Some(first.wrapping_add(second)),
                And => Some(first & second),
                Or => Some(first | second),
                Xor => Some(first ^ second),
                _ => None,
            }
        {
            let joined = self.constant(joined);
            return self.binary(operation, inner, joined);
        }
        self.intern(Value::Binary { operation, left, right })
    }

    fn operation_of(&self, value: ValueId) -> Option<Operation> {
        match self.get(value) {
            Value::Binary { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Bytes of the packet.
    pub(crate) fn load(&mut self, width: Width, base: Option<ValueId>, offset: u32) -> Loaded {
        let (mut base, mut offset) = (base, u64::from(offset));
        while let Some(value) = base {
            match self.get(value) {
                Value::Constant(number) => {
                    offset += u64::from(number);
                    base = None;
                }
                Value::Binary { operation: Operation::Add, left, right } => {
                    let Some(number) = self.number(right) else { break };
                    if self.max(left).checked_add(number).is_none() {
                        break;
                    }
                    offset += u64::from(number);
                    base = Some(left);
                }
                _ => break,
            }
        }
        let Ok(need) = u32::try_from(offset + u64::from(width.bytes())) else { return Loaded::Never };
        let value = self.intern(Value::Load { width, base, offset: need - width.bytes() });
        Loaded::Value { value, room: self.intern(Value::Room(base)), need }
    }

    /// A comparison of two values.
    pub(crate) fn compare(
        &mut self,
        sets: &mut Sets,
        comparison: ComparisonOperator,
        left: ValueId,
        right: ValueId,
    ) -> Test {
        match (self.number(left), self.number(right)) {
            (Some(first), Some(second)) => Test::Always(comparison.holds(first, second)),
            (Some(first), None) => match comparison {
                ComparisonOperator::Equal | ComparisonOperator::AnyBit => {
                    self.compare_with(sets, comparison, right, first)
                }
                ComparisonOperator::Greater => {
                    self.compare_with(sets, ComparisonOperator::GreaterOrEqual, right, first).negated()
                }
                ComparisonOperator::GreaterOrEqual => {
                    self.compare_with(sets, ComparisonOperator::Greater, right, first).negated()
                }
            },
            (None, Some(second)) => self.compare_with(sets, comparison, left, second),
            (None, None) if left == right => match comparison {
                ComparisonOperator::Equal | ComparisonOperator::GreaterOrEqual => Test::Always(true),
                ComparisonOperator::Greater => Test::Always(false),
                ComparisonOperator::AnyBit => self.compare_with(sets, ComparisonOperator::AnyBit, left, u32::MAX),
            },
            (None, None) => {
                let (left, right) = match comparison {
                    ComparisonOperator::Equal | ComparisonOperator::AnyBit => (left.min(right), left.max(right)),
                    _ => (left, right),
                };
                Test::If { condition: Condition::Compare(comparison, left, right), expected: true }
            }
        }
    }

    fn compare_with(&mut self, sets: &mut Sets, comparison: ComparisonOperator, value: ValueId, number: u32) -> Test {
        match comparison {
            ComparisonOperator::Equal => self.equal(sets, value, number),
            ComparisonOperator::Greater => match number.checked_add(1) {
                Some(low) => self.between(sets, value, low, u32::MAX),
                None => Test::Always(false),
            },
            ComparisonOperator::GreaterOrEqual => self.between(sets, value, number, u32::MAX),
            ComparisonOperator::AnyBit => {
                let all = bits_up_to(self.max(value));
                let (tested, unseen) = (number & all, all & !number);
                if tested == 0 {
                    Test::Always(false)
                } else if unseen & unseen.wrapping_add(1) == 0 {
                    // Only low bits are not tested: the others are 0 up to this number.
                    self.between(sets, value, 0, unseen).negated()
                } else {
                    let tested = self.constant(tested);
                    let masked = self.binary(Operation::And, value, tested);
                    self.equal(sets, masked, 0).negated()
                }
            }
        }
    }

    fn equal(&mut self, sets: &mut Sets, value: ValueId, number: u32) -> Test {
        if let Value::Binary { operation, left, right } = self.get(value)
            && let Some(operand) = self.number(right)
        {
            let all = bits_up_to(self.max(left));
            match operation {
                Operation::And => {
                    let unseen = all & !operand;
                    if number & !operand != 0 {
                        return Test::Always(false);
                    }
                    if unseen & unseen.wrapping_add(1) == 0 {
                        return self.between(sets, left, number, number | unseen);
                    }
                }
                Operation::ShiftRight => {
                    let unseen = bits_up_to((1 << operand) - 1);
                    if number.leading_zeros() < operand {
                        return Test::Always(false);
                    }
                    return self.between(sets, left, number << operand, number << operand | unseen);
                }
                _ => {}
            }
        }
        self.between(sets, value, number, number)
    }

    /// Whether the value is between these numbers, both included.
    pub(crate) fn between(&mut self, sets: &mut Sets, value: ValueId, low: u32, high: u32) -> Test {
        let max = self.max(value);
        if let Some(number) = self.number(value) {
            return Test::Always((low..=high).contains(&number));
        }
        if low > max {
            return Test::Always(false);
        }
        let high = if high >= max { u32::MAX } else { high };
        match (low, high) {
            (0, u32::MAX) => Test::Always(true),
            // "Not 0" is asked as "0".
            (1, u32::MAX) if !matches!(self.get(value), Value::Room(_)) => {
                Test::If { condition: Condition::Member(value, sets.interval(0, 0)), expected: false }
            }
            _ => Test::If { condition: Condition::Member(value, sets.interval(low, high)), expected: true },
        }
    }
}

impl Test {
    pub(crate) fn negated(self) -> Test {
        match self {
            Test::Always(holds) => Test::Always(!holds),
            Test::If { condition, expected } => Test::If { condition, expected: !expected },
        }
    }
}

/// The index of a set of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SetId(pub u32);

/// The index of a set of tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TupleId(pub u32);

/// Numbers from the first to the second one, both included.
pub(crate) type Interval = (u32, u32);

/// The words of a tuple, and the bits of each that matter.
pub(crate) type Signature = Box<[(ValueId, u32)]>;

#[derive(Clone, PartialEq, Eq, Hash)]
enum SetForm {
    /// One interval, as most sets have.
    Interval([Interval; 1]),
    /// None or several, sorted, with gaps between.
    Intervals(Box<[Interval]>),
    /// A set that grows by one: unions of long lists are made in the end, not in each step.
    Union(SetId, SetId),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum TupleForm {
    One(u32, Box<[u32]>),
    Union(TupleId, TupleId),
}

/// All sets of a plan. Equal forms have equal numbers.
#[derive(Default)]
pub(crate) struct Sets {
    forms: Vec<SetForm>,
    index: FastMap<SetForm, SetId>,
    /// Sets of tuples, with their signatures, and the first set of which each is a union.
    tuples: Vec<(TupleForm, u32, u32)>,
    /// First words of all tuples of unions that start with a set.
    first_words: FastMap<(u32, u32), ()>,
    tuple_index: FastMap<TupleForm, TupleId>,
    signatures: Vec<Signature>,
    signature_index: FastMap<Signature, u32>,
}

impl Sets {
    fn intern(&mut self, form: SetForm) -> SetId {
        let forms = &mut self.forms;
        *self.index.entry(form).or_insert_with_key(|form| {
            forms.push(form.clone());
            SetId(forms.len() as u32 - 1)
        })
    }

    pub(crate) fn interval(&mut self, low: u32, high: u32) -> SetId {
        self.intern(SetForm::Interval([(low, high)]))
    }

    pub(crate) fn intervals(&mut self, intervals: Vec<Interval>) -> SetId {
        match normal(intervals)[..] {
            [interval] => self.intern(SetForm::Interval([interval])),
            ref intervals => self.intern(SetForm::Intervals(intervals.into())),
        }
    }

    /// The intervals of a set that is no union of others.
    pub(crate) fn simple(&self, set: SetId) -> Option<&[Interval]> {
        match &self.forms[set.0 as usize] {
            SetForm::Interval(interval) => Some(interval),
            SetForm::Intervals(intervals) => Some(intervals),
            SetForm::Union(..) => None,
        }
    }

    /// The only interval of a set.
    pub(crate) fn single(&self, set: SetId) -> Option<Interval> {
        match self.simple(set)? {
            [interval] => Some(*interval),
            _ => None,
        }
    }

    pub(crate) fn union(&mut self, first: SetId, second: SetId) -> SetId {
        if first == second {
            return first;
        }
        match (self.simple(first), self.simple(second)) {
            (Some(one), Some(other)) if one.len() + other.len() <= 4 => {
                let all = one.iter().chain(other).copied().collect();
                self.intervals(all)
            }
            _ => self.intern(SetForm::Union(first, second)),
        }
    }

    /// The intervals of a set: sorted, with gaps between.
    pub(crate) fn all(&self, set: SetId) -> Vec<Interval> {
        let (mut todo, mut intervals) = (vec![set], Vec::new());
        while let Some(set) = todo.pop() {
            match &self.forms[set.0 as usize] {
                SetForm::Interval(more) => intervals.extend_from_slice(more),
                SetForm::Intervals(more) => intervals.extend_from_slice(more),
                SetForm::Union(first, second) => todo.extend([*first, *second]),
            }
        }
        normal(intervals)
    }

    pub(crate) fn tuple(&mut self, signature: Signature, words: Box<[u32]>) -> TupleId {
        let signatures = &mut self.signatures;
        let signature = *self.signature_index.entry(signature).or_insert_with_key(|signature| {
            signatures.push(signature.clone());
            signatures.len() as u32 - 1
        });
        self.intern_tuple(TupleForm::One(signature, words), signature)
    }

    fn intern_tuple(&mut self, form: TupleForm, signature: u32) -> TupleId {
        if let Some(&known) = self.tuple_index.get(&form) {
            return known;
        }
        let number = self.tuples.len() as u32;
        let (root, words) = match &form {
            TupleForm::One(_, words) => (number, vec![words[0]]),
            TupleForm::Union(first, second) => {
                let words = self.all_tuples(*second).iter().map(|words| words[0]).collect();
                (self.tuples[first.0 as usize].2, words)
            }
        };
        self.first_words.extend(words.into_iter().map(|word| ((root, word), ())));
        self.tuples.push((form.clone(), signature, root));
        self.tuple_index.insert(form, TupleId(number));
        TupleId(number)
    }

    /// Whether it is known that no tuple starts with this word.
    pub(crate) fn lacks_first_word(&self, tuple: TupleId, word: u32) -> bool {
        !self.first_words.contains_key(&(self.tuples[tuple.0 as usize].2, word))
    }

    /// The union of two sets of tuples, if they have the same words.
    pub(crate) fn union_of_tuples(&mut self, first: TupleId, second: TupleId) -> Option<TupleId> {
        let signature = self.tuples[first.0 as usize].1;
        (signature == self.tuples[second.0 as usize].1).then(|| {
            if first == second { first } else { self.intern_tuple(TupleForm::Union(first, second), signature) }
        })
    }

    pub(crate) fn signature(&self, tuple: TupleId) -> &[(ValueId, u32)] {
        &self.signatures[self.tuples[tuple.0 as usize].1 as usize]
    }

    /// The words of a set with one tuple.
    pub(crate) fn one_tuple(&self, tuple: TupleId) -> Option<&[u32]> {
        match &self.tuples[tuple.0 as usize].0 {
            TupleForm::One(_, words) => Some(words),
            TupleForm::Union(..) => None,
        }
    }

    /// All tuples of a set, sorted.
    pub(crate) fn all_tuples(&self, tuple: TupleId) -> Vec<Box<[u32]>> {
        let (mut todo, mut tuples) = (vec![tuple], Vec::new());
        while let Some(tuple) = todo.pop() {
            match &self.tuples[tuple.0 as usize].0 {
                TupleForm::One(_, words) => tuples.push(words.clone()),
                TupleForm::Union(first, second) => todo.extend([*first, *second]),
            }
        }
        tuples.sort_unstable();
        tuples.dedup();
        tuples
    }
}

/// Sorted, with gaps between.
fn normal(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut normal: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (low, high) in intervals {
        match normal.last_mut() {
            Some(last) if low <= last.1 || low - 1 == last.1 => last.1 = last.1.max(high),
            _ => normal.push((low, high)),
        }
    }
    normal
}

/// What is in both.
pub(crate) fn intersection(first: &[Interval], second: &[Interval]) -> Vec<Interval> {
    let common = |one: &Interval, other: &Interval| {
        let (low, high) = (one.0.max(other.0), one.1.min(other.1));
        (low <= high).then_some((low, high))
    };
    first.iter().flat_map(|one| second.iter().filter_map(|other| common(one, other))).collect()
}

/// What is in none of them.
pub(crate) fn complement(intervals: &[Interval]) -> Vec<Interval> {
    let mut gaps = Vec::with_capacity(intervals.len() + 1);
    let mut from = Some(0);
    for &(low, high) in intervals {
        if let Some(from) = from
            && from < low
        {
            gaps.push((from, low - 1));
        }
        from = high.checked_add(1);
    }
    gaps.extend(from.map(|from| (from, u32::MAX)));
    gaps
}
