//! What a table knows of an address: the parts of an entry's two words.

/// The number of a port in a table.
pub(crate) type PortNumber = u16;

/// Ports have numbers below this.
pub(crate) const PORTS: usize = 1 << PORT_BITS;

/// VLANs have numbers below this.
pub(super) const VLANS: usize = 1 << 12;

/// Ages are counted modulo this.
pub(super) const AGES: u32 = 1 << AGE_BITS;

/// Moves are counted up to this.
pub(super) const MAX_MOVES: u32 = (1 << MOVE_BITS) - 1;

/// The parts of a value, from the lowest bit on.
const PORT_BITS: u32 = 12;
const AGE_BITS: u32 = 6;
const STATIC: u64 = 1 << (PORT_BITS + AGE_BITS);
const HELD: u64 = STATIC << 1;
const MOVES_SHIFT: u32 = PORT_BITS + AGE_BITS + 2;
const MOVE_BITS: u32 = 7;
const SINCE_SHIFT: u32 = MOVES_SHIFT + MOVE_BITS;
const CHECK_SHIFT: u32 = SINCE_SHIFT + u16::BITS;
const CHECK_MASK: u64 = (1 << 20) - 1;
const PRESENT: u64 = 1 << 63;

const PORT_MASK: u64 = PORTS as u64 - 1;
const AGE_MASK: u64 = AGES as u64 - 1;
/// The parts that say which key a value is of.
const BELONGS: u64 = PRESENT | CHECK_MASK << CHECK_SHIFT;
/// The parts that a source which is seen again has in common with its entry.
const SAME: u64 = BELONGS | PORT_MASK | AGE_MASK << PORT_BITS;
const MAC_BITS: u32 = 48;

/// An address in a VLAN: the bytes of the MAC address as a little-endian number, with the VLAN (0 for none) above them.
/// 0 is no key, because the address of all zeros is that of no station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    #[inline(always)]
    pub(crate) fn new(mac: u64, vlan: u16) -> Key {
        Key(mac | u64::from(vlan) << MAC_BITS)
    }

    /// The MAC address.
    pub(crate) fn mac(self) -> [u8; 6] {
        let [mac @ .., _, _] = self.0.to_le_bytes();
        mac
    }

    /// The VLAN, 0 for none.
    pub(crate) fn vlan(self) -> u16 {
        (self.0 >> MAC_BITS) as u16
    }

    /// The key of a station. Frames with other sources are not learned. Hot.
    #[inline(always)]
    pub(crate) fn is_station(self) -> bool {
        const MAC: u64 = (1 << MAC_BITS) - 1;
        self.0 & 1 == 0 && self.0 & MAC != 0
    }
}

/// A key with its hash in a table, which chooses its lines by the highest bits, and the check of its value by the lowest.
/// Each table has a secret, so nobody outside knows which addresses share lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed {
    pub(crate) key: Key,
    pub(crate) hash: u64,
}

/// The second word of an entry as it is in the table: 0 for none. It has a check of the key, so that a thread that reads
/// the two words at different times does not take the value of one key for that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value(pub(super) u64);

impl Value {
    /// The value of a key whose source is seen at a port. Hot.
    #[inline(always)]
    pub(super) fn seen(hash: u64, port: PortNumber, age: u32) -> Value {
        Value(PRESENT | (hash & CHECK_MASK) << CHECK_SHIFT | u64::from(age) << PORT_BITS | u64::from(port))
    }

    /// Whether the value is one of a key with this hash. Hot.
    #[inline(always)]
    pub(super) fn is_of(self, hash: u64) -> bool {
        (self.0 ^ Value::seen(hash, 0, 0).0) & BELONGS == 0
    }

    /// The port, whatever the key. Hot.
    #[inline(always)]
    pub(super) fn any_port(self) -> PortNumber {
        (self.0 & PORT_MASK) as PortNumber
    }

    /// The port, if the value is one of a key with this hash. Hot.
    #[inline(always)]
    pub(super) fn port(self, hash: u64) -> Option<PortNumber> {
        self.is_of(hash).then_some(self.any_port())
    }

    /// Whether nothing changes when a source is seen: it is at the same port, and its age is the same or does not
    /// matter. Hot.
    #[inline(always)]
    pub(super) fn stays(self, seen: Value) -> bool {
        let differences = self.0 ^ seen.0;
        (differences & SAME == 0) | ((self.0 & STATIC != 0) & (differences & (BELONGS | PORT_MASK) == 0))
    }

    /// The parts of the value of a key.
    pub(super) fn entry(self, Hashed { key, hash }: Hashed) -> Option<Entry> {
        let port = self.port(hash)?;
        Some(Entry {
            key,
            port,
            age: (self.0 >> PORT_BITS & AGE_MASK) as u32,
            is_static: self.0 & STATIC != 0,
            is_held: self.0 & HELD != 0,
            moves: (self.0 >> MOVES_SHIFT) as u32 & MAX_MOVES,
            since: (self.0 >> SINCE_SHIFT) as u16,
        })
    }
}

/// The parts of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) port: PortNumber,
    /// The step in which it was last seen, modulo [`AGES`].
    pub(crate) age: u32,
    /// The network file has it: it neither moves nor ages.
    pub(crate) is_static: bool,
    /// It has moved too often, and stays for a time.
    pub(crate) is_held: bool,
    /// The moves since [`Entry::since`].
    pub(crate) moves: u32,
    /// When it first moved, or since when it is held, in [units](super::moves::units).
    pub(crate) since: u16,
}

impl Entry {
    /// The value in a table where the key has this hash.
    pub(super) fn value(self, hash: u64) -> Value {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let moves = u64::from(self.moves.min(MAX_MOVES)) << MOVES_SHIFT | u64::from(self.since) << SINCE_SHIFT;
        let flags = flag(self.is_static, STATIC) | flag(self.is_held, HELD);
        Value(Value::seen(hash, self.port, self.age % AGES).0 | flags | moves)
    }
}
