//! Numbers of 16 bits for those of routes, which are the contents of nodes.

use std::collections::HashMap;

use crate::cells::Cells;

/// The code of slots whose number is found another way: longer prefixes, or no code.
pub(crate) const ESCAPE: u16 = u16::MAX;

/// Entries below this one are found without hashing.
const SMALL: u32 = 1 << 16;

/// The codes in use. A code is not used again for another number: a reader may have it in hand.
#[derive(Default)]
pub(crate) struct Codes {
    small: Vec<Option<u16>>,
    large: HashMap<u32, u16>,
    /// How many there are. That of no route is always there.
    count: u16,
    /// How often there was no code.
    missed: usize,
}

impl Codes {
    /// The code of an entry in the dictionary at this place, or [`ESCAPE`] if there are too many.
    pub fn of(&mut self, cells: &Cells, dictionary: usize, entry: u32) -> u16 {
        if entry == 0 {
            return 0;
        }
        let known = if entry < SMALL {
            self.small.get(entry as usize).copied().flatten()
        } else {
            self.large.get(&entry).copied()
        };
        if let Some(code) = known {
            return code;
        }
        if self.count + 1 == ESCAPE {
            self.missed += 1;
            return ESCAPE;
        }
        self.count += 1;
        cells.store(dictionary + self.count as usize, entry.wrapping_sub(1));
        if entry < SMALL {
            let length = self.small.len().max(entry as usize + 1);
            self.small.resize(length, None);
            self.small[entry as usize] = Some(self.count);
        } else {
            self.large.insert(entry, self.count);
        }
        self.count
    }

    /// How often there was no code since the table was made.
    pub fn missed(&self) -> usize {
        self.missed
    }
}
