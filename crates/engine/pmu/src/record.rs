//! Parses the records that the kernel writes while it samples.
//!
//! Each begins with its kind (32 bits), a set of flags and its length in bytes (16 bits each). A sample contains the
//! requested parts, in the order that `perf_event_open(2)` gives for `PERF_RECORD_SAMPLE`: here the instruction's
//! address, the registers (their kind, then their values), and the stack (its length, that many bytes, and how many of
//! them are valid).

/// One sample of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment<'a> {
    /// The instruction at which the thread was stopped.
    pub instruction: u64,
    /// Whether that is one of the kernel's.
    pub in_kernel: bool,
    /// The stack from the user-mode stack pointer on; empty if the kernel could not read it.
    pub stack: Stack<'a>,
}

/// A copy of the top of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stack<'a> {
    /// Address of the first byte.
    pub address: u64,
    bytes: &'a [u8],
}

impl<'a> Stack<'a> {
    /// The bytes from an address on.
    pub fn new(address: u64, bytes: &'a [u8]) -> Stack<'a> {
        Stack { address, bytes }
    }

    /// The aligned words from the top on, each with its address.
    pub fn words(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let skip = (self.address.wrapping_neg() % 8) as usize;
        let start = self.address.wrapping_add(skip as u64);
        let words = self.bytes.get(skip..).unwrap_or_default().chunks_exact(8);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        words.enumerate().map(move |(index, bytes)| (start.wrapping_add(index as u64 * 8), word(bytes)))
    }
}

/// The contents of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PerfRecord<'a> {
    Sample(Moment<'a>),
    /// This number of samples was lost.
    Lost(u64),
    /// An irrelevant or damaged record.
    Other,
}

const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

const MODE: u16 = 7;
const MODE_KERNEL: u16 = 1;

/// Reads records until the bytes end or are invalid.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = PerfRecord<'_>> {
    std::iter::from_fn(move || {
        let mut header = RecordReader(bytes);
        let (kind, bits, length) = (header.u32()?, header.u16()?, header.u16()?);
        let body = bytes.get(8..length.into())?;
        bytes = &bytes[length.into()..];
        Some(record(kind, bits, body).unwrap_or(PerfRecord::Other))
    })
}

fn record(kind: u32, bits: u16, body: &[u8]) -> Option<PerfRecord<'_>> {
    let mut body = RecordReader(body);
    match kind {
        SAMPLE => sample(bits, body).map(PerfRecord::Sample),
        LOST => {
            let _id = body.u64()?;
            body.u64().map(PerfRecord::Lost)
        }
        LOST_SAMPLES => body.u64().map(PerfRecord::Lost),
        _ => None,
    }
}

fn sample(bits: u16, mut body: RecordReader<'_>) -> Option<Moment<'_>> {
    let instruction = body.u64()?;
    let mut sample = Moment { instruction, in_kernel: bits & MODE == MODE_KERNEL, stack: Stack::default() };
    let has_registers = body.u64()? != 0;
    let address = if has_registers { body.u64()? } else { 0 };
    if has_registers {
        let _instruction_in_user_mode = body.u64()?;
    }
    let length = usize::try_from(body.u64()?).ok()?;
    if length > 0 {
        let stack = body.bytes(length)?;
        let valid = usize::try_from(body.u64()?).ok()?;
        sample.stack = Stack::new(address, stack.get(..valid)?);
    }
    Some(sample)
}

/// Reads numbers from the front of a slice.
struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2).and_then(|bytes| Some(u16::from_ne_bytes(bytes.try_into().ok()?)))
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)))
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8).and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Records as the kernel writes them: `valid` bytes of the stack were copied, the others only take space.
    #[derive(Clone, Debug)]
    enum Written {
        Moment { instruction: u64, kernel: bool, registers: Option<(u64, u64)>, stack: Vec<u8>, valid: usize },
        Lost(u64),
        Foreign { kind: u32, body: Vec<u8> },
    }

    fn written() -> impl Strategy<Value = Written> {
        let sample =
            (any::<u64>(), any::<bool>(), any::<Option<(u64, u64)>>(), vec(any::<[u8; 8]>(), 0..20), any::<u16>());
        prop_oneof![
            4 => sample.prop_map(|(instruction, kernel, registers, words, valid)| {
                let stack = words.concat();
                let valid = usize::from(valid) % (stack.len() + 1);
                Written::Moment { instruction, kernel, registers, stack, valid }
            }),
            1 => any::<u64>().prop_map(Written::Lost),
            1 => (20u32.., vec(any::<u8>(), 0..50)).prop_map(|(kind, body)| Written::Foreign { kind, body }),
        ]
    }

    fn write(record: &Written, bytes: &mut Vec<u8>) {
        let (kind, bits, body) = match record {
            Written::Moment { instruction, kernel, registers, stack, valid } => {
                let mut words = vec![*instruction];
                match registers {
                    None => words.push(0),
                    Some((stack, instruction)) => words.extend([2, *stack, *instruction]),
                }
                words.push(stack.len() as u64);
                let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                if !stack.is_empty() {
                    body.extend(stack);
                    body.extend((*valid as u64).to_ne_bytes());
                }
                (SAMPLE, if *kernel { 1u16 } else { 2 }, body)
            }
            Written::Lost(count) => (LOST, 0, [7u64.to_ne_bytes(), count.to_ne_bytes()].concat()),
            Written::Foreign { kind, body } => (*kind, 0, body.clone()),
        };
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(bits.to_ne_bytes());
        bytes.extend((8 + body.len() as u16).to_ne_bytes());
        bytes.extend(body);
    }

    fn expected(record: &Written) -> PerfRecord<'_> {
        match record {
            Written::Moment { instruction, kernel, registers, stack, valid } => PerfRecord::Sample(Moment {
                instruction: *instruction,
                in_kernel: *kernel,
                stack: match stack.is_empty() {
                    true => Stack::default(),
                    false => Stack::new(registers.map_or(0, |(stack, _)| stack), &stack[..*valid]),
                },
            }),
            Written::Lost(count) => PerfRecord::Lost(*count),
            Written::Foreign { .. } => PerfRecord::Other,
        }
    }

    proptest! {
        #[test]
        fn records_of_the_kernel_are_parsed(list in vec(written(), 0..10)) {
            let mut bytes = Vec::new();
            list.iter().for_each(|record| write(record, &mut bytes));
            let read: Vec<PerfRecord> = records(&bytes).collect();
            prop_assert_eq!(read, list.iter().map(expected).collect::<Vec<_>>());
        }

        /// Damage makes records wrong or missing, and reading ends; the records before it are unchanged.
        #[test]
        fn damage_only_affects_the_records_after_it(
            list in vec(written(), 1..6), at: prop::sample::Index, change in 1u8.., cut: prop::sample::Index
        ) {
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for record in &list {
                write(record, &mut bytes);
                ends.push(bytes.len());
            }
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            bytes.truncate(cut.index(bytes.len() + 1));
            let whole = ends.iter().filter(|end| **end <= at.min(bytes.len())).count();
            let read: Vec<PerfRecord> = records(&bytes).collect();
            prop_assert!(read.len() >= whole && read.len() <= bytes.len() / 8);
            for (read, written) in read.iter().zip(&list[..whole]) {
                prop_assert_eq!(read, &expected(written));
            }
        }

        #[test]
        fn nonsense_is_read_to_its_end(bytes in vec(any::<u8>(), 0..300)) {
            prop_assert!(records(&bytes).count() <= bytes.len() / 8);
        }

        #[test]
        fn the_words_of_a_stack_are_those_at_multiples_of_eight(address: u64, bytes in vec(any::<u8>(), 0..60)) {
            for (at, word) in Stack::new(address, &bytes).words() {
                prop_assert_eq!(at % 8, 0);
                let offset = at.wrapping_sub(address) as usize;
                prop_assert_eq!(&bytes[offset..offset + 8], &word.to_ne_bytes());
            }
            let skipped = (address.wrapping_neg() % 8) as usize;
            prop_assert_eq!(Stack::new(address, &bytes).words().count(), bytes.len().saturating_sub(skipped) / 8);
        }
    }
}
