//! The same copies with a blitter and with `memcpy`, for measurements.

use std::ops::Range;
use std::ptr;

use crate::Blitter;

/// A copy within one piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Offset of the first byte to read.
    pub from: usize,
    /// Offset of the first byte to write.
    pub to: usize,
    /// Maximum number of bytes.
    pub room: usize,
}

/// A move with its addresses. (Its layout differs from [`Copy`](crate::Copy): callers have the fields one by one, not
/// side by side in memory.)
#[derive(Clone, Copy)]
struct Job {
    length: usize,
    source: *const u8,
    destination: *mut u8,
}

/// Copies within one piece of memory, checked once and repeatable.
pub struct Plan<'m> {
    memory: &'m mut [u8],
    jobs: Vec<Job>,
    /// Maximum length of each.
    rooms: Vec<usize>,
}

/// A move outside the memory, or whose source and destination overlap, which `memcpy` does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible(pub Move);

impl<'m> Plan<'m> {
    /// Moves within some memory, each as long as its room.
    ///
    /// # Errors
    /// A move is outside the memory, or its source and destination overlap.
    pub fn new(memory: &'m mut [u8], moves: &[Move]) -> Result<Plan<'m>, Impossible> {
        let within = |start: usize, room| start.checked_add(room).is_some_and(|end| end <= memory.len());
        let possible = |one: &Move| {
            within(one.from, one.room) && within(one.to, one.room) && one.from.abs_diff(one.to) >= one.room
        };
        if let Some(&impossible) = moves.iter().find(|one| !possible(one)) {
            return Err(Impossible(impossible));
        }
        let start = memory.as_mut_ptr();
        let job = |&Move { from, to, room }: &Move| Job {
            length: room,
            source: start.wrapping_add(from),
            destination: start.wrapping_add(to),
        };
        let (jobs, rooms) = moves.iter().map(|one| (job(one), one.room)).unzip();
        Ok(Plan { memory, jobs, rooms })
    }

    /// Number of moves.
    pub fn moves(&self) -> usize {
        self.jobs.len()
    }

    /// Sets the lengths of the moves, each at most its room.
    pub fn set_lengths(&mut self, lengths: impl IntoIterator<Item = usize>) {
        for ((job, &room), length) in self.jobs.iter_mut().zip(&self.rooms).zip(lengths) {
            job.length = length.min(room);
        }
    }

    /// The bytes that some of the moves read and write.
    pub fn ranges(&self, moves: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let start = self.memory.as_ptr().addr();
        self.jobs[moves].iter().flat_map(move |job| {
            let places = [job.source.addr() - start, job.destination.addr() - start];
            places.map(|at| &self.memory[at..at + job.length])
        })
    }

    /// Does some of the moves, with a barrier after each `batch`.
    #[inline(never)]
    pub fn blit(&mut self, blitter: &mut Blitter, moves: Range<usize>, batch: usize) {
        for batch in self.jobs[moves].chunks(batch.max(1)) {
            for &Job { length, source, destination } in batch {
                // SAFETY: the move was checked to be inside the memory, which this value borrows; the barrier is below,
                // and nothing in between returns or panics.
                unsafe { blitter.copy(destination, source, length) };
            }
            blitter.barrier();
        }
    }

    /// As [`blit`](Plan::blit), with a barrier after each copy.
    #[inline(never)]
    pub fn blit_singly(&mut self, blitter: &mut Blitter, moves: Range<usize>) {
        for &Job { length, source, destination } in &self.jobs[moves] {
            // SAFETY: as above.
            unsafe { blitter.copy(destination, source, length) };
            blitter.barrier();
        }
    }

    /// Does some of the moves with one call of `memcpy` each.
    #[inline(never)]
    pub fn memcpy(&mut self, moves: Range<usize>) {
        for &Job { length, source, destination } in &self.jobs[moves] {
            // SAFETY: the move was checked to be inside the memory, which this value borrows, and not to overlap
            // itself.
            unsafe { ptr::copy_nonoverlapping(source, destination, length) };
        }
    }
}
