//! The dirty log: the pages of the driver's memory that the device has written, for live migration.
//!
//! One bit for each page of 4 KiB of guest addresses, in a file that the driver's side shares, and reads and clears
//! while we write (vhost-user, "Migration").

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bellows_ipc::mapping::{PeerMemory, SharedMapping};

/// Bytes for each bit.
const PAGE: u64 = 4096;

/// Maximum length: a longer log would cover more than addresses of 52 bits.
const MAX_LENGTH: u64 = 1 << (52 - 12 - 3);

/// A log. Shared by all rings of a device.
#[derive(Debug)]
pub struct Log {
    mapping: SharedMapping,
    /// In bytes.
    length: u64,
    /// Whether pages were marked since [`Log::take_news`].
    news: AtomicBool,
}

impl Log {
    /// Maps a log: `length` bytes of a memory file, from `offset`.
    ///
    /// # Errors
    /// `InvalidInput` if that is outside the file, or longer than the maximum; and the errors of `mmap(2)`.
    pub fn new(file: &File, offset: u64, length: u64) -> io::Result<Log> {
        Log::of(&PeerMemory::default(), file, offset, length)
    }

    /// Maps a log that a peer has sent.
    ///
    /// # Errors
    /// The errors of [`new`](Log::new) and [`PeerMemory`].
    pub fn of(peer: &PeerMemory, file: &File, offset: u64, length: u64) -> io::Result<Log> {
        let file = peer.check(file)?;
        let end = offset.checked_add(length).filter(|_| length > 0);
        let there = file.length();
        if end.is_none_or(|end| end > there) {
            let message = format!("the log is {length} bytes at {offset}, but its file has {there} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if length > MAX_LENGTH {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the log is {length} bytes, but the maximum is {MAX_LENGTH}"),
            ));
        }
        Ok(Log { mapping: file.map(offset, length)?, length, news: AtomicBool::new(false) })
    }

    /// Marks the pages of a range as written; the write has already happened. Addresses beyond the log are ignored.
    pub fn mark(&self, guest: u64, length: u64) {
        if length == 0 {
            return;
        }
        let pages = self.length.saturating_mul(8);
        let mut page = guest / PAGE;
        let end = (guest.saturating_add(length - 1) / PAGE + 1).min(pages);
        while page < end {
            // Sets all bits of one byte at once.
            let stop = (page / 8 * 8 + 8).min(end);
            let bits = (0xff_u16 >> (8 - (stop - page))) << (page % 8);
            self.set(page / 8, bits as u8);
            page = stop;
        }
        self.news.store(true, Ordering::Relaxed);
    }

    /// Whether pages were marked since the last call.
    pub fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::Relaxed)
    }

    fn set(&self, byte: u64, bits: u8) {
        debug_assert!(byte < self.length);
        // SAFETY: byte < length, and `length` bytes are mapped as long as self exists. Other processes that change them
        // do so with atomic operations too, or harm only themselves.
        let byte = unsafe { AtomicU8::from_ptr(self.mapping.start().as_ptr().add(byte as usize)) };
        // Always a locked operation: a plain load of a bit that is already set could be ordered before the write to the
        // page.
        byte.fetch_or(bits, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::FileExt;

    use bellows_ipc::memfd;
    use proptest::prelude::*;

    use super::*;

    /// The pages that are marked in a file.
    fn marked(file: &File, offset: u64, length: usize) -> BTreeSet<u64> {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).unwrap();
        (0..8 * length as u64).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 == 1).collect()
    }

    proptest! {
        #[test]
        fn exactly_the_pages_of_the_bytes_are_marked(
            offset in 0_u64..300,
            length in 1_usize..64,
            marks in prop::collection::vec((0_u64..600 * PAGE, 0_u64..40 * PAGE), 0..20),
        ) {
            let file = memfd::sealed(8192).unwrap();
            let log = Log::new(&file, offset, length as u64).unwrap();
            let mut model = BTreeSet::new();
            for (guest, bytes) in marks {
                log.mark(guest, bytes);
                model.extend((guest..guest + bytes).step_by(1024).map(|byte| byte / PAGE));
                if bytes > 0 {
                    model.insert((guest + bytes - 1) / PAGE);
                }
            }
            model.retain(|page| *page < 8 * length as u64);
            prop_assert_eq!(marked(&file, offset, length), model);
            // Nothing outside the log was touched.
            prop_assert!(marked(&file, 0, offset as usize).is_empty());
            prop_assert!(marked(&file, offset + length as u64, 4000).is_empty());
        }
    }

    #[test]
    fn marks_of_several_threads_do_not_lose_one_another() {
        let file = memfd::sealed(4096).unwrap();
        let log = Log::new(&file, 0, 4096).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let log = &log;
                scope.spawn(move || (thread..8 * 4096).step_by(4).for_each(|page| log.mark(page * PAGE, 1)));
            }
        });
        assert_eq!(marked(&file, 0, 4096).len(), 8 * 4096);
        assert!(log.take_news() && !log.take_news());
    }

    #[test]
    fn the_end_of_the_address_space_is_no_page_of_a_log() {
        let file = memfd::sealed(4096).unwrap();
        let log = Log::new(&file, 0, 4096).unwrap();
        log.mark(u64::MAX, u64::MAX);
        log.mark(u64::MAX - 1, 1);
        log.mark(8 * 4096 * PAGE, 100);
        assert!(marked(&file, 0, 4096).is_empty());
        log.mark(8 * 4096 * PAGE - 1, u64::MAX);
        assert_eq!(marked(&file, 0, 4096).into_iter().collect::<Vec<_>>(), [8 * 4096 - 1]);
    }

    #[test]
    fn a_log_that_is_not_in_its_file_is_refused() {
        let file = memfd::sealed(4096).unwrap();
        for (offset, length) in [(0, 0), (0, 4097), (4096, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(Log::new(&file, offset, length).is_err(), "{offset} {length}");
        }
        let (reader, _writer) = io::pipe().unwrap();
        assert!(Log::new(&File::from(std::os::fd::OwnedFd::from(reader)), 0, 1).is_err());
    }
}
