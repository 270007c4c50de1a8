//! Large private mappings on the best available pages: for the life of the process, or of a value.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{NonNull, null_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use crate::switches::ONLY_PACKETS_ON_HUGE_PAGES;

/// Size of huge pages on x86-64 and arm64 with 4 KiB base pages.
pub const HUGE_PAGE: usize = 2 << 20;

/// The kind of pages of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB pages from the system's reserve (`/proc/sys/vm/nr_hugepages`).
    HugeTlb,
    /// 2 MiB pages that the kernel assembles (transparent huge pages).
    Transparent,
    /// Plain pages.
    Plain,
}

impl fmt::Display for Pages {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Pages::HugeTlb => "hugetlb",
            Pages::Transparent => "thp",
            Pages::Plain => "4k",
        })
    }
}

/// A private, zeroed, readable and writable mapping, aligned to 2 MiB, that lives until the process ends.
///
/// Nothing ever unmaps it, so addresses inside stay valid on every thread forever.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    length: usize,
    hugetlb: bool,
}

// SAFETY: the mapping is never unmapped or moved; the type only hands out its address and length.
unsafe impl Send for Reservation {}
// SAFETY: as above: nothing of the value changes after construction.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Maps `length` bytes (rounded up to 2 MiB) for tables: on huge pages if the system has enough in reserve, else on
    /// ordinary memory with transparent huge pages requested. `BELLOWS_HUGE_PAGES=packets` forbids both.
    ///
    /// The kernel commits memory when it is first touched.
    ///
    /// # Errors
    /// `ENOMEM` if the address space, a resource limit or a container's limit does not allow it.
    pub fn new(length: usize) -> io::Result<Reservation> {
        Reservation::with(length, !ONLY_PACKETS_ON_HUGE_PAGES.is_set())
    }

    /// The same for packet buffers, which `BELLOWS_HUGE_PAGES` does not concern.
    ///
    /// # Errors
    /// As for [`Reservation::new`].
    pub fn for_packets(length: usize) -> io::Result<Reservation> {
        Reservation::with(length, true)
    }

    fn with(length: usize, wants_huge: bool) -> io::Result<Reservation> {
        let overflow = || io::Error::from(io::ErrorKind::OutOfMemory);
        let length = length.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or_else(overflow)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory that anyone uses.
        let hugetlb =
            || unsafe { mmap_anonymous(null_mut(), length, access, MapFlags::PRIVATE | MapFlags::HUGETLB) }.ok();
        if let Some(address) = wants_huge.then(hugetlb).flatten() {
            let start = NonNull::new(address.cast()).ok_or_else(overflow)?;
            return Ok(Reservation { start, length, hugetlb: true });
        }
        let padded = length.checked_add(HUGE_PAGE).ok_or_else(overflow)?;
        // SAFETY: as above.
        let address = unsafe { mmap_anonymous(null_mut(), padded, access, MapFlags::PRIVATE | MapFlags::NORESERVE)? }
            .cast::<u8>();
        let skip = address.align_offset(HUGE_PAGE);
        // SAFETY: skip < HUGE_PAGE, so both ends to cut off and the middle are inside the new mapping, which nobody
        // else knows. An end that cannot be unmapped only wastes address space.
        let start = unsafe {
            let start = address.add(skip);
            let _ = munmap(address.cast(), skip);
            let _ = munmap(start.add(length).cast(), HUGE_PAGE - skip);
            let advice = if wants_huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            let _ = madvise(start.cast(), length, advice);
            start
        };
        Ok(Reservation { start: NonNull::new(start).ok_or_else(overflow)?, length, hugetlb: false })
    }

    /// Excludes the memory from core dumps, because its contents are not the program's own. Has no effect on a kernel
    /// that does not support it.
    pub fn leave_out_of_core_dumps(&self) {
        // SAFETY: the advice affects only core dumps, not the contents of the mapping, which is never unmapped.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.length, Advice::LinuxDontDump) };
    }

    /// Asks for memory of this node, as long as it has any, for the pages of a part that are touched later. The part is
    /// a range of offsets from a page on; with huge pages from the system's reserve, from a huge page on.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not within the reservation, or there is no such node; `ENOSYS` on a kernel without
    /// memory nodes; `EPERM` if a container forbids it.
    pub fn prefer_node(&self, part: Range<usize>, node: usize) -> io::Result<()> {
        if part.start > part.end || part.end > self.length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        crate::numa::prefer(self.start.addr().get() + part.start, part.len(), node)
    }

    /// The size of the pages that a [node](Reservation::prefer_node) can be chosen for.
    pub fn page(&self) -> usize {
        if self.hugetlb { HUGE_PAGE } else { crate::code::page_size() }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes, a multiple of 2 MiB.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The kind of pages that the touched part really has, from `/proc/self/smaps`.
    pub fn pages(&self) -> Pages {
        if self.hugetlb {
            return Pages::HugeTlb;
        }
        let range = self.start.as_ptr() as usize..self.start.as_ptr() as usize + self.length;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut inside = false;
        for line in smaps.lines() {
            let first = line.split_ascii_whitespace().next().unwrap_or("");
            if let Some((from, _)) = first.split_once('-') {
                inside = usize::from_str_radix(from, 16).is_ok_and(|from| range.contains(&from));
            } else if inside && first == "AnonHugePages:" && !line.contains(" 0 kB") {
                return Pages::Transparent;
            }
        }
        Pages::Plain
    }
}

/// Zeroed words on the best available pages, aligned to 2 MiB; given back when dropped.
#[derive(Debug)]
pub struct Words {
    memory: Reservation,
}

impl Words {
    /// Maps at least `count` words, rounded up to 2 MiB.
    ///
    /// # Errors
    /// As for [`Reservation::new`].
    pub fn new(count: usize) -> io::Result<Words> {
        let length = count.checked_mul(size_of::<u64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Words { memory: Reservation::new(length)? })
    }

    /// The kind of pages of the touched part.
    pub fn pages(&self) -> Pages {
        self.memory.pages()
    }

    /// The same memory as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and has this length; only this value knows it, and is borrowed
        // exclusively.
        unsafe { from_raw_parts_mut(self.memory.start().as_ptr(), self.memory.length()) }
    }
}

impl Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: the mapping is readable, zeroed at first, aligned to more than a word and a whole number of words
        // long; it lives as long as this value, which alone knows it and is borrowed.
        unsafe { from_raw_parts(self.memory.start().as_ptr().cast(), self.memory.length() / size_of::<u64>()) }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and the mapping is writable and this value borrowed exclusively.
        unsafe { from_raw_parts_mut(self.memory.start().as_ptr().cast(), self.memory.length() / size_of::<u64>()) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping was made for this value alone, and nothing can borrow it any more. If unmapping fails, it
        // leaks, which harms nothing.
        let _ = unsafe { munmap(self.memory.start().as_ptr().cast(), self.memory.length()) };
    }
}

/// Bytes that end in front of a page that cannot be accessed, for tests of code that must not read beyond them.
#[derive(Debug)]
pub struct Guarded {
    start: NonNull<u8>,
    page: usize,
}

impl Guarded {
    /// Maps a page, and one behind it that cannot be accessed.
    ///
    /// # Errors
    /// Those of `mmap(2)` and `mprotect(2)`.
    pub fn new() -> io::Result<Guarded> {
        let page = rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { mmap_anonymous(null_mut(), 2 * page, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let guarded = Guarded { start, page };
        // SAFETY: the second page of the mapping just made, which nothing refers to.
        unsafe { mprotect(start.as_ptr().add(page).cast(), page, MprotectFlags::empty()) }?;
        Ok(guarded)
    }

    /// Copies bytes to the end of the page, up to as many as fit.
    pub fn place(&mut self, bytes: &[u8]) -> &[u8] {
        let length = bytes.len().min(self.page);
        // SAFETY: the last bytes of the first page, which is readable and writable, initialised by the kernel, and
        // known to this value alone, which is borrowed.
        let place = unsafe { from_raw_parts_mut(self.start.as_ptr().add(self.page - length), length) };
        place.copy_from_slice(&bytes[..length]);
        place
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping was made for this value alone, and nothing can borrow it any more. If unmapping fails, it
        // leaks, which harms nothing.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), 2 * self.page) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_bytes_end_at_the_end_of_a_page() {
        let mut guarded = Guarded::new().unwrap();
        for length in [0, 1, 60, guarded.page] {
            let bytes = vec![7; length];
            let placed = guarded.place(&bytes);
            assert_eq!(placed, bytes);
            assert!(placed.as_ptr_range().end.addr().is_multiple_of(rustix::param::page_size()));
        }
    }

    #[test]
    fn a_reservation_is_aligned_zeroed_and_writable_to_its_end() {
        let memory = Reservation::new(3 * HUGE_PAGE + 1).unwrap();
        assert_eq!(memory.length(), 4 * HUGE_PAGE);
        assert_eq!(memory.start().as_ptr() as usize % HUGE_PAGE, 0);
        for offset in [0, HUGE_PAGE, memory.length() - 1] {
            // SAFETY: offset < length, and this test alone knows the mapping.
            unsafe {
                let byte = memory.start().as_ptr().add(offset);
                assert_eq!(*byte, 0);
                *byte = 7;
                assert_eq!(*byte, 7);
            }
        }
        assert!(["hugetlb", "thp", "4k"].contains(&memory.pages().to_string().as_str()));
    }

    /// Even where the kernel assembles huge pages for all mappings.
    #[test]
    fn a_reservation_that_wants_none_is_on_plain_pages() {
        let memory = Reservation::with(4 * HUGE_PAGE, false).unwrap();
        // SAFETY: the mapping was just made with this length, is writable, and only known here.
        unsafe { memory.start().write_bytes(1, memory.length()) };
        assert_eq!((memory.pages(), memory.start().as_ptr() as usize % HUGE_PAGE), (Pages::Plain, 0));
    }

    #[test]
    fn words_are_zeroed_and_writable_to_the_last() {
        for count in [1, HUGE_PAGE / 8, HUGE_PAGE / 8 + 1] {
            let mut words = Words::new(count).unwrap();
            assert_eq!(words.len(), count.next_multiple_of(HUGE_PAGE / 8));
            assert!(words.iter().all(|&word| word == 0));
            let last = words.len() - 1;
            words[last] = 7;
            assert_eq!((words[0], words[last]), (0, 7));
            assert_eq!(words.bytes_mut().len(), 8 * words.len());
            words.bytes_mut()[8] = 1;
            assert_eq!(words[1].to_ne_bytes()[0], 1);
        }
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(Words::new(usize::MAX / 4).is_err());
        assert!(Reservation::new(usize::MAX).is_err());
        assert!(Reservation::new(usize::MAX / 2).is_err());
    }
}
