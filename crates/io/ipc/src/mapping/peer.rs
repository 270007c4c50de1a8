//! The limits on mapping files of another process.
//!
//! A file can be implemented by another process (FUSE), and then even a query about it waits for that process. So the
//! first query is one that the kernel answers itself: only memory files have seals. All others follow after it.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{FileType, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;

use super::SharedMapping;
use bellows_sys::code::page_size;

/// Maximum address space for one peer, in bytes: more than the memory of any machine.
pub const MAX_PEER_SPACE: u64 = 16 << 40;

/// Maximum address space for all peers of the process, in bytes: half of the address space of a process on x86-64.
pub const MAX_ALL_SPACE: u64 = 64 << 40;

/// Bytes mapped for all peers of the process, and the number of peers with a share.
static ALL: Total = Total { used: AtomicU64::new(0), peers: AtomicU64::new(0), limit: MAX_ALL_SPACE };

struct Total {
    used: AtomicU64,
    peers: AtomicU64,
    limit: u64,
}

impl Total {
    /// The maximum for one peer: no peer can take another's share.
    fn share(&self) -> u64 {
        MAX_PEER_SPACE.min(self.limit / self.peers.load(Relaxed).max(1))
    }
}

/// The limit on mappings of the files that one peer sends. A clone shares the limit.
///
/// The default is for files that this process has created: they must be in memory, and are not limited.
#[derive(Clone, Debug, Default)]
pub struct PeerMemory {
    any_file: bool,
    space: Option<Arc<Space>>,
}

impl PeerMemory {
    /// The limit for a new peer. Its share of the address space is [`MAX_PEER_SPACE`], or an equal part of
    /// [`MAX_ALL_SPACE`] among all peers with a limit, if that is less.
    ///
    /// With `any_file`, files on disks and on other machines are accepted too: a query about one, and each access to
    /// one of its pages, may wait for a disk or another process.
    pub fn limited(any_file: bool) -> PeerMemory {
        PeerMemory { any_file, space: Some(Space::new(&ALL)) }
    }

    /// Checks a file. Only asks the kernel, unless any file is accepted.
    ///
    /// # Errors
    /// `Unsupported` if it is not a file in memory; with `any_file`, `InvalidInput` if it is not a regular file; those
    /// of `fstat(2)` and `fstatfs(2)`.
    pub fn check<'a>(&self, file: &'a File) -> io::Result<CheckedFile<'a>> {
        let in_memory = lives_in_memory(file)?;
        if !in_memory && !self.any_file {
            let message = "it is not a file in memory, so its pages may have to come from a disk or another process; \
                           share a memfd, or a file on tmpfs or hugetlbfs (`allow_file_memory` accepts others)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let status = fstat(file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(CheckedFile {
            file,
            in_memory,
            length: u64::try_from(status.st_size).unwrap_or(0),
            present: u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512),
            identity: (status.st_dev, status.st_ino),
            page: mapping_page(file)?,
            space: self.space.clone(),
        })
    }

    /// Number of bytes mapped for this peer.
    pub fn used(&self) -> u64 {
        self.space.as_ref().map_or(0, |space| space.used.load(Relaxed))
    }
}

/// Whether a file is in memory: on tmpfs, which includes memfds, or on hugetlbfs. Only those have seals, and the kernel
/// only inspects the open file.
fn lives_in_memory(file: &File) -> io::Result<bool> {
    match fcntl_get_seals(file) {
        Ok(_) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        // A descriptor that cannot be used (`O_PATH`).
        Err(error) => Err(error.into()),
    }
}

/// The page size of mappings of a file.
fn mapping_page(file: &File) -> io::Result<usize> {
    const HUGETLBFS: u64 = 0x9584_58f6;
    let system = fstatfs(file)?;
    let huge = system.f_type as u64 == HUGETLBFS;
    let page = usize::try_from(system.f_bsize).ok().filter(|page| huge && page.is_power_of_two());
    Ok(page.unwrap_or_else(page_size))
}

/// A file that has been checked and may be mapped.
#[derive(Debug)]
pub struct CheckedFile<'a> {
    file: &'a File,
    in_memory: bool,
    length: u64,
    present: u64,
    identity: (u64, u64),
    page: usize,
    space: Option<Arc<Space>>,
}

impl CheckedFile<'_> {
    /// Whether it is in memory: closing it never blocks.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Its length in bytes. Its owner may change that at any time.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The number of its bytes that had pages when it was checked, if it is in memory; otherwise 0. `u64::MAX` if all
    /// of it had.
    pub fn present(&self) -> u64 {
        match self.in_memory {
            true if self.present >= self.length => u64::MAX,
            true => self.present,
            false => 0,
        }
    }

    /// Device and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Maps `length` bytes from `offset`.
    ///
    /// # Errors
    /// As for [`SharedMapping::new`]; `OutOfMemory`, with the numbers, if the peer has no address space left.
    pub fn map(&self, offset: u64, length: u64) -> io::Result<SharedMapping> {
        SharedMapping::of(self.file, self.page, offset, length, |bytes| {
            self.space.as_ref().map(|space| Space::charge(space, bytes)).transpose()
        })
    }
}

/// One peer's use of its share.
#[derive(Debug)]
struct Space {
    used: AtomicU64,
    total: &'static Total,
}

impl fmt::Debug for Total {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}", self.used.load(Relaxed), self.limit)
    }
}

impl Space {
    fn new(total: &'static Total) -> Arc<Space> {
        total.peers.fetch_add(1, Relaxed);
        Arc::new(Space { used: AtomicU64::new(0), total })
    }

    /// Takes a part of the peer's share, until the charge is dropped.
    fn charge(space: &Arc<Space>, bytes: u64) -> io::Result<Charge> {
        let total = space.total;
        let share = total.share();
        let take = |used: &AtomicU64, limit: u64| {
            let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
            used.fetch_update(Relaxed, Relaxed, more)
        };
        if let Err(used) = take(&space.used, share) {
            let peers = total.peers.load(Relaxed);
            return Err(no_space(format!(
                "another {bytes} bytes besides the {used} mapped for this peer exceed its share of the address space, \
                 {share} bytes ({MAX_PEER_SPACE} at most, and {} for all {peers} together)",
                total.limit
            )));
        }
        if let Err(used) = take(&total.used, total.limit) {
            space.used.fetch_sub(bytes, Relaxed);
            return Err(no_space(format!(
                "another {bytes} bytes besides the {used} mapped for all peers exceed the {} that they may have together; \
                 end peers that were connected before others were added",
                total.limit
            )));
        }
        Ok(Charge { space: Arc::clone(space), bytes })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.total.peers.fetch_sub(1, Relaxed);
    }
}

fn no_space(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

/// A part of a peer's share, given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    space: Arc<Space>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Relaxed);
        self.space.total.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bellows_testkit::skip;

    use super::*;
    use crate::memfd;

    /// A file on a disk, removed at the end. The build folder is on one.
    fn file_on_disk(name: &str) -> (File, std::path::PathBuf) {
        let path = std::env::current_exe().unwrap().with_file_name(format!("peer-{name}-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        (file, path)
    }

    #[test]
    fn files_in_memory_are_accepted_and_files_on_disks_only_if_allowed() {
        let peer = PeerMemory::default();
        let memfd = memfd::create(8192).unwrap();
        let checked = peer.check(&memfd).unwrap();
        assert!(checked.is_in_memory() && checked.length() == 8192);
        let shm = std::path::PathBuf::from(format!("/dev/shm/bellows-peer-{}", std::process::id()));
        if let Ok(file) = File::options().read(true).write(true).create_new(true).open(&shm) {
            std::fs::remove_file(&shm).unwrap();
            assert!(peer.check(&file).unwrap().is_in_memory());
        }

        let (disk, path) = file_on_disk("kinds");
        std::fs::remove_file(path).unwrap();
        if fcntl_get_seals(&disk).is_ok() {
            let test = "files_in_memory_are_accepted_and_files_on_disks_only_if_allowed";
            return skip(test, "the build's folder is on tmpfs, so there is no file on a disk");
        }
        let error = peer.check(&disk).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("allow_file_memory"), "{error}");
        assert!(SharedMapping::new(&disk, 0, 4096).is_err());
        let any = PeerMemory::limited(true);
        let checked = any.check(&disk).unwrap();
        assert!(!checked.is_in_memory() && checked.length() == 8192);
        let mapping = checked.map(4096, 4096).unwrap();
        // SAFETY: the byte is in the mapping.
        assert_eq!(unsafe { mapping.start().as_ptr().read_volatile() }, 7);
    }

    #[test]
    fn descriptors_that_are_not_files_are_always_refused() {
        let (reader, _writer) = std::io::pipe().unwrap();
        for file in
            [File::open("/").unwrap(), File::open("/dev/zero").unwrap(), File::from(std::os::fd::OwnedFd::from(reader))]
        {
            assert_eq!(PeerMemory::default().check(&file).unwrap_err().kind(), io::ErrorKind::Unsupported);
            assert_eq!(PeerMemory::limited(true).check(&file).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    /// The kernel answers the deciding query: a thread that may make no other query rejects the file, too.
    #[test]
    fn a_file_is_refused_without_a_question_to_anybody() {
        let (disk, path) = file_on_disk("asked");
        std::fs::remove_file(path).unwrap();
        let own = memfd::create(4096).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let questions = [libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_fstatfs];
                let confined = crate::confine::confine_without(&questions);
                let denials = match confined {
                    Ok(denials) => denials,
                    Err(why) => return skip("a_file_is_refused_without_a_question_to_anybody", why),
                };
                let refused = PeerMemory::default().check(&disk).map(drop).map_err(|error| error.kind());
                assert_eq!(denials.total(), 0, "{:?}", denials.by_name());
                if fcntl_get_seals(&disk).is_err() {
                    assert_eq!(refused, Err(io::ErrorKind::Unsupported));
                }
                // The same filter sees the further queries for a file in memory.
                assert!(PeerMemory::default().check(&own).is_err());
                assert!(denials.total() > 0);
            });
            thread.join().unwrap();
        });
    }

    fn total(limit: u64) -> &'static Total {
        Box::leak(Box::new(Total { used: AtomicU64::new(0), peers: AtomicU64::new(0), limit }))
    }

    #[test]
    fn no_peer_takes_the_share_of_another() {
        const TIB: u64 = 1 << 40;
        let total = total(MAX_ALL_SPACE);
        let alone = Space::new(total);
        assert_eq!(total.share(), MAX_PEER_SPACE);
        let all = Space::charge(&alone, 16 * TIB).unwrap();
        let error = Space::charge(&alone, 1).unwrap_err().to_string();
        assert!(error.contains("17592186044416") && error.contains("share of the address space"), "{error}");
        drop(all);
        let others: Vec<_> = (0..7).map(|_| Space::new(total)).collect();
        assert_eq!(total.share(), 8 * TIB);
        let spaces = others.iter().chain([&alone]);
        let charges: Vec<_> = spaces.map(|space| Space::charge(space, 8 * TIB).unwrap()).collect();
        assert_eq!(total.used.load(Relaxed), MAX_ALL_SPACE);
        assert!(others.iter().all(|space| Space::charge(space, 1).is_err()));
        drop((charges, others));
        assert_eq!((total.used.load(Relaxed), total.share()), (0, MAX_PEER_SPACE));
    }

    #[test]
    fn all_peers_together_have_a_limit() {
        let total = total(100);
        let first = Space::new(total);
        let early = Space::charge(&first, 100).unwrap();
        let second = Space::new(total);
        let error = Space::charge(&second, 50).unwrap_err().to_string();
        assert!(error.contains("mapped for all peers"), "{error}");
        assert_eq!(second.used.load(Relaxed), 0);
        drop(early);
        assert!(Space::charge(&second, 50).is_ok());
    }

    /// 16 TiB each of several peers are refused before the system runs out, and given back with the mapping.
    #[test]
    fn mappings_are_charged_and_given_back() {
        let file = memfd::create(1 << 44).unwrap();
        let peer = PeerMemory::limited(false);
        let mapping = peer.check(&file).unwrap().map(0, 1 << 30).unwrap();
        assert_eq!(peer.used(), 1 << 30);
        let error = peer.check(&file).unwrap().map(0, 1 << 44).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        drop(mapping);
        assert_eq!(peer.used(), 0);
    }
}
