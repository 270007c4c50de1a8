//! Mappings of files that are shared with other processes.
//!
//! Another process can truncate a shared file at any time. Threads then find zeros in the hole, and the mapping is
//! [broken](SharedMapping::is_broken).

mod guard;
mod peer;

use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use bellows_sys::code::page_size;
use guard::Guard;
use peer::Charge;
pub use peer::{CheckedFile, MAX_ALL_SPACE, MAX_PEER_SPACE, PeerMemory};

/// A part of a file, mapped as readable, writable and shared. Unmapped when dropped.
///
/// Its contents may change at any time, so there are no references into it, only a pointer. A part of the file that is
/// gone is replaced by zeros when it is accessed.
#[derive(Debug)]
pub struct SharedMapping {
    /// The mapping, which starts with the page that contains the start of the part.
    start: NonNull<u8>,
    mapped: usize,
    /// Offset of the part in the mapping.
    skip: usize,
    guard: Guard,
    /// Its charge on a peer's share of the address space.
    _charge: Option<Charge>,
}

// SAFETY: the mapping lives as long as the value, which only hands out its address.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `length` bytes of a memory file, from `offset`. They are excluded from core dumps.
    ///
    /// # Errors
    /// Those of `mmap(2)` and of [`PeerMemory::check`]; `InvalidInput` for a length of 0 or beyond the address space.
    pub fn new(file: &File, offset: u64, length: u64) -> io::Result<SharedMapping> {
        PeerMemory::default().check(file)?.map(offset, length)
    }

    /// Maps a file whose mappings have this page size. `charge` gets the number of bytes of address space.
    fn of(
        file: &File,
        page: usize,
        offset: u64,
        length: u64,
        charge: impl FnOnce(u64) -> io::Result<Option<Charge>>,
    ) -> io::Result<SharedMapping> {
        let skip = offset % page as u64;
        let mapped = usize::try_from(length).ok().filter(|length| *length > 0);
        let mapped = mapped.and_then(|length| length.checked_add(skip as usize));
        let mapped = mapped.and_then(|length| length.checked_next_multiple_of(page));
        let mapped = mapped.filter(|length| isize::try_from(*length).is_ok()).ok_or(io::ErrorKind::InvalidInput)?;
        let charge = charge(mapped as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone uses.
        let start = unsafe { mmap(null_mut(), mapped, access, MapFlags::SHARED, file, offset - skip)? };
        // SAFETY: only excludes the new mapping from core dumps.
        let _ = unsafe { madvise(start, mapped, Advice::LinuxDontDump) };
        let unmap = |error| {
            // SAFETY: the mapping was made above and nobody has seen it.
            let _ = unsafe { munmap(start, mapped) };
            error
        };
        let guard = Guard::new(start as usize, mapped, page).map_err(unmap)?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMapping { start, mapped, skip: skip as usize, guard, _charge: charge })
    }

    /// The first byte of the part.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: skip is less than a page, and the mapping longer than skip.
        unsafe { self.start.add(self.skip) }
    }

    /// Writes a zero, so that the page of this byte exists afterwards.
    ///
    /// # Panics
    /// If the byte is outside the mapping.
    #[inline]
    pub fn touch(&self, offset: usize) {
        assert!(offset < self.mapped - self.skip, "the mapping has {} bytes", self.mapped - self.skip);
        // SAFETY: the byte is in the mapping, which is writable and lives as long as the value. The store is atomic,
        // and nobody has a reference into the mapping.
        unsafe { AtomicU8::from_ptr(self.start().as_ptr().add(offset)) }.store(0, Relaxed);
    }

    /// Maps the pages that are already in memory, so that no thread takes a page fault for them later; other pages stay
    /// unmapped. `present`: the known number of bytes that have pages. Ends when those have been found, or after
    /// `limit`. For threads that may take their time.
    ///
    /// A kernel that cannot do it (before Linux 5.14) changes nothing: pages are mapped at the first access.
    pub fn bring_in(&self, mut present: u64, limit: Duration) {
        const CHUNK: usize = 16 << 20;
        let page = page_size();
        let end = Instant::now() + limit;
        // Pages that were reserved but not written exist as well, but the kernel does not count them.
        let whole = present >= self.mapped as u64;
        let mut found = vec![1_u8; CHUNK.min(self.mapped) / page];
        for at in (0..self.mapped).step_by(CHUNK) {
            let length = CHUNK.min(self.mapped - at);
            // SAFETY: the chunk is in the mapping, whose length is a whole number of pages, and there is a byte for
            // each of its pages.
            let mut ask = || unsafe { libc::mincore(self.start.as_ptr().add(at).cast(), length, found.as_mut_ptr()) };
            if present == 0 || Instant::now() > end || !whole && ask() != 0 {
                return;
            }
            let mut first = at;
            for run in found[..length / page].chunk_by(|one, other| one & 1 == other & 1) {
                let length = run.len() * page;
                // SAFETY: the run is in the mapping. Its pages are made writable, as the mapping is, and keep their
                // contents; a page that has gone meanwhile is an error.
                let populate =
                    || unsafe { madvise(self.start.as_ptr().add(first).cast(), length, Advice::LinuxPopulateWrite) };
                if run[0] & 1 == 1 {
                    if populate().is_err() {
                        return;
                    }
                    present = present.saturating_sub(length as u64);
                }
                first += length;
            }
        }
    }

    /// Creates all pages now, so that other processes find them, and accesses here cause no page fault.
    ///
    /// A kernel that cannot do it (before Linux 5.14) creates them at the first access.
    pub fn make(&self) {
        // SAFETY: the mapping is ours, and keeps its contents.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.mapped, Advice::LinuxPopulateWrite) };
    }

    /// Whether the file was truncated, so that a part of the mapping is no longer shared. Known once that part was
    /// accessed.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.guard.is_broken()
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // First, so that a new mapping at the same address is the only one in the table.
        self.guard.release();
        // SAFETY: new() made the mapping, and nobody has a pointer into it any more, which its owner guarantees by
        // dropping it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

/// Number of holes that this process has met in all its mappings. As long as this number does not change, no mapping
/// [becomes broken](SharedMapping::is_broken).
#[inline]
pub fn holes() -> u32 {
    guard::holes()
}

/// Prepares what the first mapping of the process needs, for a thread that may not do that later: the handler of
/// SIGBUS.
///
/// # Errors
/// Those of `sigaction(2)`.
pub fn prepare() -> io::Result<()> {
    guard::prepare()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    fn plain_file(pages: u64) -> File {
        crate::memfd::create(pages * page_size() as u64).unwrap()
    }

    fn read(mapping: &SharedMapping, offset: usize) -> u8 {
        // SAFETY: the tests stay inside their mappings.
        unsafe { mapping.start().as_ptr().add(offset).read_volatile() }
    }

    fn write(mapping: &SharedMapping, offset: usize, value: u8) {
        // SAFETY: as above.
        unsafe { mapping.start().as_ptr().add(offset).write_volatile(value) }
    }

    #[test]
    fn a_mapping_shows_its_part_of_the_file_and_writes_to_it() {
        let mut file = plain_file(3);
        file.write_all(&[7; 5000]).unwrap();
        file.write_all(&[9; 3000]).unwrap();
        let mapping = SharedMapping::new(&file, 4999, 2).unwrap();
        assert_eq!((read(&mapping, 0), read(&mapping, 1)), (7, 9));
        write(&mapping, 1, 11);
        let other = SharedMapping::new(&file, 0, 3 * page_size() as u64).unwrap();
        assert_eq!(read(&other, 5000), 11);
        assert!(!mapping.is_broken() && !other.is_broken());
    }

    #[test]
    fn a_page_that_is_touched_is_there() {
        let page = page_size();
        let file = plain_file(3);
        let mapping = SharedMapping::new(&file, page as u64, 2 * page as u64).unwrap();
        let blocks = || file.metadata().unwrap().blocks() as usize * 512 / page;
        assert_eq!(blocks(), 0);
        mapping.touch(0);
        write(&mapping, 2 * page - 1, 7);
        assert_eq!(blocks(), 2);
        mapping.touch(2 * page - 1);
        assert_eq!((blocks(), read(&mapping, 2 * page - 1)), (2, 0));
        assert!(std::panic::catch_unwind(|| mapping.touch(2 * page)).is_err());
    }

    /// Page faults are those of this thread.
    #[test]
    fn only_pages_in_memory_are_mapped_in() {
        const PAGES: usize = 64;
        let page = page_size();
        let file = plain_file(PAGES as u64);
        let theirs = SharedMapping::new(&file, 0, (PAGES * page) as u64).unwrap();
        (0..PAGES).step_by(2).for_each(|index| write(&theirs, index * page, 7));
        let ours = SharedMapping::new(&file, 0, (PAGES * page) as u64).unwrap();
        let some = (PAGES / 2 * page) as u64;
        let blocks = || file.metadata().unwrap().blocks() as usize * 512 / page;
        assert_eq!(blocks(), PAGES / 2);
        ours.bring_in(some, Duration::from_secs(10));
        assert_eq!(blocks(), PAGES / 2);
        let faults = || bellows_sys::cpu::thread_faults().minor;
        let before = faults();
        (0..PAGES).step_by(2).for_each(|index| write(&ours, index * page + 1, 9));
        let taken = faults() - before;
        // Other threads may have evicted pages from the page tables meanwhile.
        assert!(taken < PAGES as u64 / 8, "{taken} faults for pages that were there");
        assert_eq!((read(&ours, 0), read(&ours, 1)), (7, 9));
        file.set_len(page as u64).unwrap();
        ours.bring_in(some, Duration::from_secs(10));
        assert!(!ours.is_broken());

        let other = plain_file(PAGES as u64);
        SharedMapping::new(&other, 0, (PAGES * page) as u64).unwrap().make();
        assert_eq!(other.metadata().unwrap().blocks() as usize * 512 / page, PAGES);
    }

    #[test]
    fn nothing_impossible_is_mapped() {
        let file = plain_file(1);
        for (offset, length) in [(0, 0), (0, u64::MAX), (1, u64::MAX), (0, 1 << 63), (u64::MAX - 10, 5)] {
            assert!(SharedMapping::new(&file, offset, length).is_err(), "{offset} {length}");
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(SharedMapping::new(&File::from(std::os::fd::OwnedFd::from(reader)), 0, 4096).is_err());
        assert!(SharedMapping::new(&File::open("/").unwrap(), 0, 4096).is_err());
    }

    #[test]
    fn a_file_cut_short_becomes_zeros_and_harms_no_other_mapping() {
        let page = page_size();
        let file = plain_file(4);
        let other_file = plain_file(4);
        let mapping = SharedMapping::new(&file, 0, 4 * page as u64).unwrap();
        let other = SharedMapping::new(&other_file, 0, 4 * page as u64).unwrap();
        for offset in 0..4 * page {
            write(&mapping, offset, 1);
            write(&other, offset, 2);
        }
        file.set_len(page as u64).unwrap();
        assert!(!mapping.is_broken());
        assert_eq!(read(&mapping, 0), 1);
        let before = holes();
        assert_eq!(read(&mapping, 2 * page + 5), 0);
        assert!(mapping.is_broken() && holes() != before);
        write(&mapping, 3 * page, 3);
        assert_eq!((read(&mapping, 3 * page), read(&mapping, 3 * page + 1)), (3, 0));
        assert_eq!(read(&mapping, page - 1), 1);
        assert!(!other.is_broken());
        assert_eq!(read(&other, 3 * page), 2);
        // The table entry is used again, and starts unbroken.
        drop(mapping);
        let again = SharedMapping::new(&other_file, 0, 1).unwrap();
        assert!(!again.is_broken());
    }

    /// A process can have only a limited number of mappings. Holes that are not adjacent do not exhaust it.
    #[test]
    fn however_many_holes_there_are_the_mapping_has_two_parts() {
        const PAGES: usize = 400;
        let page = page_size();
        let orders: [fn(usize) -> usize; 3] = [|index| index, |index| PAGES - 2 - index, |index| index * 126 % PAGES];
        for order in orders {
            let file = plain_file(PAGES as u64);
            let mapping = SharedMapping::new(&file, 0, (PAGES * page) as u64).unwrap();
            let start = mapping.start().as_ptr() as usize;
            let parts = || {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
                let starts =
                    maps.lines().map(|line| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap());
                starts.filter(|address| (start..start + PAGES * page).contains(address)).count()
            };
            file.set_len(0).unwrap();
            for index in (0..PAGES).step_by(2) {
                assert_eq!(read(&mapping, order(index) * page), 0);
                assert!(parts() <= 2, "{} parts after {index} pages", parts());
            }
            assert!(mapping.is_broken());
        }
    }

    /// On huge pages a hole is a huge page, and lengths are multiples of it. If the system has none in reserve, the
    /// test does nothing.
    #[test]
    fn a_huge_page_that_is_gone_becomes_zeros() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let file: File = match memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) {
            Ok(file) => file.into(),
            Err(_) => return,
        };
        let huge = rustix::fs::fstatfs(&file).unwrap().f_bsize as usize;
        assert!(huge > page_size());
        file.set_len(2 * huge as u64).unwrap();
        // The kernel takes the pages from its reserve now, or fails if there are none.
        let Ok(mapping) = SharedMapping::new(&file, 10, huge as u64) else { return };
        write(&mapping, 0, 7);
        write(&mapping, huge - 1, 8);
        file.set_len(huge as u64).unwrap();
        assert_eq!((read(&mapping, 0), read(&mapping, huge - 1)), (7, 0));
        assert!(mapping.is_broken());
        write(&mapping, huge - 1, 9);
        assert_eq!(read(&mapping, huge - 1), 9);
    }

    #[test]
    fn threads_that_meet_holes_while_mappings_come_and_go_are_all_served() {
        let page = page_size();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let file = plain_file(4);
                        let mapping = SharedMapping::new(&file, 0, 4 * page as u64).unwrap();
                        write(&mapping, 3 * page, 5);
                        file.set_len(0).unwrap();
                        assert_eq!(read(&mapping, 3 * page), 0);
                        assert_eq!(read(&mapping, 0), 0);
                        assert!(mapping.is_broken());
                    }
                });
            }
        });
    }

    /// Runs one of the tests below in a separate process.
    fn run_alone(test: &str) -> std::process::ExitStatus {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("mapping::tests::{test}"), "--ignored", "--nocapture"]);
        // AddressSanitizer would handle the signal itself.
        command.env("ASAN_OPTIONS", "handle_sigbus=0:detect_leaks=0");
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.status().unwrap()
    }

    #[test]
    #[ignore = "dies on purpose; run by other_bus_errors_still_kill"]
    fn dies_of_a_hole_in_an_unguarded_mapping() {
        let file = plain_file(1);
        let _guarded = SharedMapping::new(&file, 0, 1).unwrap();
        // SAFETY: a new mapping of which nobody else knows.
        let address = unsafe { mmap(null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &file, 0) }.unwrap();
        file.set_len(0).unwrap();
        // SAFETY: the mapping exists; the read ends the process.
        let byte = unsafe { address.cast::<u8>().read_volatile() };
        unreachable!("{byte}");
    }

    #[test]
    #[ignore = "dies on purpose; run by other_bus_errors_still_kill"]
    fn dies_of_a_signal_that_a_process_sent() {
        let _guarded = SharedMapping::new(&plain_file(1), 0, 1).unwrap();
        // SAFETY: raise() sends a signal to this thread.
        unsafe { libc::raise(libc::SIGBUS) };
        unreachable!();
    }

    #[test]
    fn other_bus_errors_still_kill() {
        for test in ["dies_of_a_hole_in_an_unguarded_mapping", "dies_of_a_signal_that_a_process_sent"] {
            let status = run_alone(test);
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{test}: {status}");
        }
    }
}
