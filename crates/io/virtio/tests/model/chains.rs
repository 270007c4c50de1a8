//! Layouts of packets, or of room for packets, in descriptors.

use bellows_virtio::Features;

use super::descriptor;
use super::flag::{NEXT, WRITE};
use super::guest::Guest;
use super::random::Random;

/// A part of a buffer, described by one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub address: u64,
    pub length: u32,
}

/// A chain of descriptors: some in the ring, and possibly some in an indirect table.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub direct: Vec<Piece>,
    pub table: Option<Table>,
    /// Whether the device writes.
    pub writable: bool,
}

/// A table of indirect descriptors in the guest's memory.
#[derive(Clone, Debug)]
pub struct Table {
    pub place: Piece,
    pub pieces: Vec<Piece>,
}

impl Chain {
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.direct.iter().chain(self.table.iter().flat_map(|table| &table.pieces))
    }

    /// Descriptors of the ring that it takes.
    pub fn descriptors(&self) -> usize {
        self.direct.len() + usize::from(self.table.is_some())
    }

    pub fn capacity(&self) -> usize {
        self.pieces().map(|piece| piece.length as usize).sum()
    }

    /// The guest addresses of `length` bytes from the start of the buffer, with the lengths of the pieces.
    pub fn places(&self, mut length: usize) -> impl Iterator<Item = (u64, usize)> {
        self.pieces().map_while(move |piece| {
            let here = length.min(piece.length as usize);
            let more = length > 0;
            length -= here;
            more.then_some((piece.address, here))
        })
    }

    /// Iterates over `bytes` and their addresses.
    pub fn scatter(&self, bytes: &[u8], mut work: impl FnMut(u64, &[u8])) {
        let mut rest = bytes;
        for (address, length) in self.places(bytes.len()) {
            let (here, behind) = rest.split_at(length);
            work(address, here);
            rest = behind;
        }
        assert!(rest.is_empty(), "the chain has no room for {} bytes", bytes.len());
    }

    /// Frees its memory.
    pub fn free(&self, guest: &mut Guest) {
        let table = self.table.as_ref().map(|table| &table.place);
        for piece in self.pieces().chain(table) {
            guest.free(piece.address);
        }
    }
}

/// The negotiated options about chains.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    features: Features,
    header: usize,
    size: usize,
    writable: bool,
}

impl Rules {
    pub fn new(features: Features, size: u16, writable: bool) -> Rules {
        Rules { features, header: header_length(features), size: size.into(), writable }
    }

    /// Whether the header may share a descriptor with data, or be split.
    fn any_layout(&self) -> bool {
        self.features.has_any(Features::ANY_LAYOUT | Features::VERSION_1)
    }

    /// A buffer of `length` bytes including the header in a random layout, with at most `most` descriptors of the ring.
    /// `None` if the memory is full, or the layout takes more descriptors than there are.
    pub fn chain(&self, guest: &mut Guest, length: usize, most: usize, random: &mut Random) -> Option<Chain> {
        let indirect = self.features.has(Features::INDIRECT_DESC) && random.one_in(2);
        // A chain is never longer than the ring, whether in a table or not.
        let longest = if indirect { self.size } else { most };
        let lengths = self.cut(length, longest, random)?;
        let mut chain = Chain { writable: self.writable, ..Chain::default() };
        let pieces = allocate_all(guest, &lengths, random)?;
        if !indirect {
            chain.direct = pieces;
            return Some(chain);
        }
        // Some descriptors of a split ring may precede the one with the table.
        let mixed = !self.features.has(Features::RING_PACKED) && random.one_in(4);
        let before = if mixed { random.between(0, (pieces.len() - 1).min(most - 1)) } else { 0 };
        let (direct, tabled) = pieces.split_at(before);
        chain.direct = direct.to_vec();
        let table = self.table(guest, tabled, random);
        if table.is_none() {
            chain.direct = pieces;
            chain.free(guest);
            return None;
        }
        chain.table = table;
        Some(chain)
    }

    /// The lengths of a buffer's pieces.
    fn cut(&self, length: usize, most: usize, random: &mut Random) -> Option<Vec<usize>> {
        let header = self.header;
        let data = length - header;
        // Linux has always received into single mergeable buffers.
        let together = self.any_layout() || (self.writable && self.features.has(Features::MRG_RXBUF));
        let alone = most >= 2 && data > 0;
        let lengths = match random.between(0, 3) {
            0 if together => vec![length],
            1 if self.any_layout() => cut_anywhere(length, most, random),
            2 if alone => [vec![header], cut_anywhere(data, most - 1, random)].concat(),
            _ if alone => vec![header, data],
            _ if together => vec![length],
            _ => return None,
        };
        Some(lengths)
    }

    fn table(&self, guest: &mut Guest, pieces: &[Piece], random: &mut Random) -> Option<Table> {
        let packed = self.features.has(Features::RING_PACKED);
        // The table of a split ring may have entries that are in no chain.
        let unused = if packed { 0 } else { random.between(0, 2) };
        let length = 16 * (pieces.len() + unused);
        let address = guest.allocate(length + 15, random)?;
        // Tables have addresses that are multiples of 16. The allocation begins there.
        let aligned = address.next_multiple_of(16);
        guest.free(address);
        guest.claim(aligned, length as u64);
        let bytes = if packed { self.packed_table(pieces, random) } else { self.split_table(pieces, unused, random) };
        guest.write(aligned, &bytes);
        let place = Piece { address: aligned, length: length as u32 };
        Some(Table { place, pieces: pieces.to_vec() })
    }

    /// In order, with no flag but the one for writing (specification, 2.8.7).
    fn packed_table(&self, pieces: &[Piece], random: &mut Random) -> Vec<u8> {
        let flags = if self.writable { WRITE } else { 0 };
        pieces.iter().flat_map(|piece| descriptor(piece.address, piece.length, [random.word(), flags])).collect()
    }

    /// A chain that begins with the first entry and goes through the others in any order (specification, 2.7.5.3).
    fn split_table(&self, pieces: &[Piece], unused: usize, random: &mut Random) -> Vec<u8> {
        let mut places: Vec<usize> = (1..pieces.len() + unused).collect();
        random.shuffle(&mut places);
        places.insert(0, 0);
        let mut table = random.bytes(16 * (pieces.len() + unused));
        for (number, piece) in pieces.iter().enumerate() {
            let next = (number + 1 < pieces.len()).then(|| places[number + 1] as u16);
            let flags = if self.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let words = [flags, next.unwrap_or_else(|| random.word())];
            table[16 * places[number]..][..16].copy_from_slice(&descriptor(piece.address, piece.length, words));
        }
        table
    }
}

/// The length of the header (specification, 5.1.6): it includes the number of buffers with mergeable buffers, and since
/// version 1.
pub fn header_length(features: Features) -> usize {
    if features.has_any(Features::VERSION_1 | Features::MRG_RXBUF) { 12 } else { 10 }
}

/// Splits at random places into a random number of pieces.
fn cut_anywhere(length: usize, most: usize, random: &mut Random) -> Vec<usize> {
    let usual = if random.one_in(16) { 40 } else { 4 };
    let pieces = random.between(1, usual.min(most).min(length));
    let mut cuts: Vec<usize> = (1..pieces).map(|_| random.between(1, length - 1)).collect();
    cuts.extend([0, length]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// A buffer for each length; `None` if one of them is impossible.
fn allocate_all(guest: &mut Guest, lengths: &[usize], random: &mut Random) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    for &length in lengths {
        let Some(address) = guest.allocate(length, random) else {
            Chain { direct: pieces, ..Chain::default() }.free(guest);
            return None;
        };
        pieces.push(Piece { address, length: length as u32 });
    }
    Some(pieces)
}
