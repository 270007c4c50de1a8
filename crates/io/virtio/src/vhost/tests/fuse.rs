//! A file that another process implements (FUSE), and which stops answering.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellows_sys::wake::sleep_until_readable;
use bellows_testkit::scratch::TempDir;
use bellows_testkit::{scratch, skip};

use super::peer::{Host, LENGTH, Peer, until};
use crate::vhost::PeerPolicy;
use crate::vhost::message::header;
use crate::vhost::request::VhostRequest;

/// The file, and the thread that answers for it. All waiting calls are released at the end.
struct Fuse {
    mount: CString,
    path: PathBuf,
    /// The folder of the file; removed once nothing is mounted any more.
    _folder: TempDir,
    silent: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fuse {
    /// Mounts it for this thread alone. Fails if that is not allowed, with the reason.
    fn mount() -> Result<Fuse, String> {
        let folder = scratch();
        let path = scratch::write(&folder, "file", "");
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let device = options.open("/dev/fuse").map_err(|error| format!("/dev/fuse: {error}"))?;
        let mount = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        let data = CString::new(format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd())).unwrap();
        let nothing = std::ptr::null();
        // SAFETY: the strings end with zeros and live until the calls have returned.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    c"none".as_ptr(),
                    c"/".as_ptr(),
                    nothing,
                    libc::MS_REC | libc::MS_PRIVATE,
                    nothing.cast(),
                ) == 0
                && libc::mount(c"bellows".as_ptr(), mount.as_ptr(), c"fuse".as_ptr(), 0, data.as_ptr().cast()) == 0
        };
        if !mounted {
            return Err(format!("nothing can be mounted: {}", std::io::Error::last_os_error()));
        }
        let [silent, ended, asked] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let (quiet, end, ask) = (Arc::clone(&silent), Arc::clone(&ended), Arc::clone(&asked));
        let thread = std::thread::spawn(move || answer(device, &quiet, &end, &ask));
        Ok(Fuse { mount, path, _folder: folder, silent, ended, asked, thread: Some(thread) })
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        let _ = self.thread.take().unwrap().join();
        // SAFETY: the string ends with a zero.
        unsafe { libc::umount2(self.mount.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Answers the kernel's requests about a file of [`LENGTH`] bytes. If `silent`, only reads the requests.
fn answer(mut device: File, silent: &AtomicBool, ended: &AtomicBool, asked: &AtomicBool) {
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const OPEN: u32 = 14;
    const STATFS: u32 = 17;
    const FLUSH: u32 = 25;
    const INIT: u32 = 26;
    const ENOSYS: i32 = 38;
    let mut question = vec![0; 1 << 20];
    while !ended.load(SeqCst) {
        let _ = sleep_until_readable(&[device.as_fd()], Some(Duration::from_millis(10)));
        let Ok(length) = device.read(&mut question) else { continue };
        let number = |at: usize| u32::from_le_bytes(question[at..at + 4].try_into().unwrap());
        assert!(length >= 40);
        let opcode = number(4);
        if silent.load(SeqCst) && [GETATTR, STATFS, FLUSH].contains(&opcode) {
            asked.store(true, SeqCst);
            continue;
        }
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (error, body) = match opcode {
            FORGET => continue,
            // Version 7.31, and no optional features.
            INIT => (0, words(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            // Not cached, so the kernel asks every time.
            GETATTR => {
                let mut words = [0_u32; 26];
                (words[4], words[6]) = (1, LENGTH as u32);
                (words[19], words[20]) = (0o100_666, 1);
                (0, words.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
            OPEN => (0, words(&[0; 4])),
            FLUSH => (0, Vec::new()),
            _ => (-ENOSYS, Vec::new()),
        };
        let mut reply = (16 + body.len() as u32).to_le_bytes().to_vec();
        reply.extend(error.to_le_bytes());
        reply.extend(&question[8..16]);
        reply.extend(body);
        let _ = device.write(&reply);
    }
}

/// A device to which a peer has sent a file of such a process, as memory. The process has stopped answering before the
/// device has checked the file.
fn with_silent_file(fuse: &Fuse, policy: PeerPolicy) -> (Host, Peer) {
    let host = Host::with(policy);
    let (served, peer) = (host.peer(), host.peer());
    let mut body = 1_u64.to_le_bytes().to_vec();
    Peer::region().write(&mut body);
    let message = [&header(VhostRequest::SET_MEM_TABLE as u32, 0, body.len())[..], &body].concat();
    let file = fuse.open();
    assert_eq!(bellows_ipc::socket::send(&peer.socket, &message, &[file.as_fd()]).unwrap(), message.len());
    drop(file);
    fuse.silent.store(true, SeqCst);
    drop(served);
    (host, peer)
}

#[test]
fn a_file_of_a_process_that_does_not_answer_is_refused_without_asking_it() {
    let fuse = match Fuse::mount() {
        Ok(fuse) => fuse,
        Err(why) => return skip("a_file_of_a_process_that_does_not_answer_is_refused_without_asking_it", why),
    };
    let (host, peer) = with_silent_file(&fuse, PeerPolicy::default());
    host.expect_errors("memory_unusable", 1);
    let said = host.status.snapshot().last_error.unwrap();
    assert!(said.contains("not a file in memory"), "{said}");
    drop(peer);
    host.still_works();
    // Closing the file asks the process, which another thread waits for.
    until("the close asks", || fuse.asked.load(SeqCst));
    let start = Instant::now();
    drop(host);
    assert!(start.elapsed() < Duration::from_secs(4), "the end took {:?}", start.elapsed());
}

#[test]
fn an_allowed_file_that_does_not_answer_does_not_delay_the_end() {
    let fuse = match Fuse::mount() {
        Ok(fuse) => fuse,
        Err(why) => return skip("an_allowed_file_that_does_not_answer_does_not_delay_the_end", why),
    };
    let (host, _peer) = with_silent_file(&fuse, PeerPolicy { any_file: true, ..PeerPolicy::default() });
    until("the device asks", || fuse.asked.load(SeqCst));
    let socket = host.folder.socket();
    let start = Instant::now();
    drop(host);
    assert!(start.elapsed() < Duration::from_secs(4), "the end took {:?}", start.elapsed());
    assert!(!socket.exists());
}
