//! Driver's processes that try to harm more than their own connection.

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use bellows_testkit::skip;

use super::peer::{Engine, FEATURES, Folder, Host, LENGTH, Peer, config, errors, file, until};
use crate::vhost::closer::MAX_UNCLOSED;
use crate::vhost::message::{RegionMessage, VhostMessage, header};
use crate::vhost::request::VhostRequest;
use crate::vhost::{Backend, Confinement, Mode, PeerPolicy};

/// Requests that make a control thread do what a bug in it might: see [`misbehave`].
const PANIC: u32 = 1001;
const HANG: u32 = 1002;
const STRAY: u32 = 1003;

/// Releases the threads that hang.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Called by control threads for each message.
pub(in crate::vhost) fn misbehave(message: &VhostMessage) {
    match message.request {
        PANIC => std::panic::resume_unwind(Box::new("a panic for the test")),
        HANG => {
            while !RELEASED.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        STRAY => {
            let error = std::env::set_current_dir("/").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        }
        _ => {}
    }
}

/// A TCP socket whose close waits until its data are sent, at most for `time`, while the other side does not read.
pub(in crate::vhost) fn lingering(time: Duration) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let linger = libc::linger { l_onoff: 1, l_linger: time.as_secs() as libc::c_int };
    // SAFETY: the option is a structure of this type and length.
    let set = unsafe {
        let option = (&raw const linger).cast();
        libc::setsockopt(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, option, size_of_val(&linger) as u32)
    };
    assert_eq!(set, 0);
    near.set_nonblocking(true).unwrap();
    let block = [0; 1 << 16];
    while near.write(&block).is_ok() {}
    // The bytes in the other side's window are already on their way: only the rest lingers.
    std::thread::sleep(Duration::from_millis(50));
    while near.write(&block).is_ok() {}
    near.set_nonblocking(false).unwrap();
    (near, far)
}

/// Sends such a socket to a device that serves another peer, and drops it here. Returns its other side.
fn send_lingering(peer: &Peer, message: &[u8], time: Duration) -> TcpStream {
    let (near, far) = lingering(time);
    assert_eq!(bellows_ipc::socket::send(&peer.socket, message, &[near.as_fd()]).unwrap(), message.len());
    far
}

/// The log lines of this process, from all threads.
struct Log(Mutex<Vec<String>>);

static LOG: Log = Log(Mutex::new(Vec::new()));

struct Recorder;

impl tracing::Subscriber for Recorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        LOG.0.lock().unwrap_or_else(PoisonError::into_inner).push(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The lines of the log about a host, from the first call of this on.
fn logged(host: &Host) -> Vec<String> {
    static START: Once = Once::new();
    START.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
    let socket = host.folder.socket().display().to_string();
    let lines = LOG.0.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.starts_with(&socket)).cloned().collect()
}

/// Descriptors whose close blocks do not delay the control thread, whether a request brought them or nobody has read
/// them, nor the end of the device.
#[test]
fn descriptors_whose_close_blocks_delay_nothing() {
    let host = Host::start();
    let start = Instant::now();
    let mut others = Vec::new();
    let mut send = |peer: &Peer, message: &[u8]| others.push(send_lingering(peer, message, Duration::from_secs(20)));
    let half = header(VhostRequest::SET_VRING_CALL as u32, 0, 8);
    // Of the wrong kind.
    let (served, peer) = (host.peer(), host.peer());
    send(&peer, &[&half[..], &[0; 8]].concat());
    drop(served);
    host.expect_errors("descriptor_kind", 1);
    drop(peer);
    // In half a message.
    let (served, peer) = (host.peer(), host.peer());
    send(&peer, &half);
    peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
    drop(served);
    host.expect_errors("message_cut_off", 1);
    drop(peer);
    // After a message that ends the connection.
    let (served, mut peer) = (host.peer(), host.peer());
    peer.socket.write_all(&header(0, 0, 0)).unwrap();
    send(&peer, &half);
    drop(served);
    host.expect_errors("request_unknown", 1);
    drop(peer);
    host.still_works();
    // In a connection that nobody has accepted.
    let _served = host.peer();
    let waiting = host.peer();
    send(&waiting, &half);
    drop(waiting);
    let socket = host.folder.socket();
    let dropping = Instant::now();
    drop(host);
    assert!(dropping.elapsed() < Duration::from_secs(4), "the end took {:?}", dropping.elapsed());
    assert!(!socket.exists());
    assert!(start.elapsed() < Duration::from_secs(15), "somebody waited: {:?}", start.elapsed());
}

/// However many such descriptors a peer sends, only a limited number waits to be closed; the status says why the device
/// accepts no connection.
#[test]
fn descriptors_to_close_are_bounded_and_reported() {
    let host = Host::start();
    let (served, first) = (host.peer(), host.peer());
    let message = [&header(VhostRequest::SET_VRING_CALL as u32, 0, 8)[..], &[0; 8]].concat();
    let _far = send_lingering(&first, &message, Duration::from_secs(4));
    drop(served);
    host.expect_errors("descriptor_kind", 1);
    let full = || host.status.snapshot().waits.is_some_and(|why| why.contains("are not closed yet"));
    let (reader, _writer) = std::io::pipe().unwrap();
    let stranger = file(reader);
    let mut sent = 0;
    let start = Instant::now();
    while !full() {
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "{sent} descriptors were taken: {:?}",
            host.status.snapshot()
        );
        let mut peer = host.peer();
        let message = header(VhostRequest::GET_FEATURES as u32, 0, 0);
        if bellows_ipc::socket::send(&peer.socket, &message, &[stranger.as_fd(); 8]).is_ok() {
            sent += 8;
        }
        peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
        while peer.receive().is_some() {}
        std::thread::sleep(Duration::from_millis(5));
    }
    // The connections count, too.
    assert!((MAX_UNCLOSED / 2..2 * MAX_UNCLOSED).contains(&sent), "{sent}");
    // It is served again when the first one has lingered long enough.
    host.still_works();
    assert!(host.status.snapshot().waits.is_none());
}

/// A control thread that hangs is abandoned in the end, and can be replaced.
#[test]
fn a_control_thread_that_hangs_does_not_hold_up_the_end() {
    let folder = Folder::new();
    let (backend, port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    let engine = Engine::run(port);
    let mut peer = Peer::connect(&folder.socket());
    peer.socket.write_all(&header(HANG, 0, 0)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (successor, other_port) = backend.succeed(config(&folder.socket(), Mode::Server)).unwrap();
    let start = Instant::now();
    drop(backend);
    assert!(start.elapsed() < Duration::from_secs(4), "the end took {:?}", start.elapsed());
    drop(engine);
    let _engine = Engine::run(other_port);
    let mut next = Peer::connect(&folder.socket());
    assert_ne!(next.number(VhostRequest::GET_FEATURES), 0, "the successor serves");
    drop(successor);
    assert!(!folder.socket().exists());
    let (again, _port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    drop(again);
    RELEASED.store(true, Relaxed);
    assert!(peer.receive().is_none());
}

#[test]
fn a_control_thread_that_panics_starts_afresh_and_says_so() {
    let host = Host::start();
    logged(&host);
    let mut peer = host.served(5);
    peer.socket.write_all(&header(PANIC, 0, 0)).unwrap();
    assert!(peer.receive().is_none(), "its connection is closed");
    host.expect_errors("control_panicked", 1);
    until("the end of the session", || !host.status.snapshot().side.connected);
    let snapshot = host.status.snapshot();
    let said = snapshot.last_error.unwrap();
    assert!(said.contains("panicked: a panic for the test; "), "{said}");
    assert_eq!((snapshot.side.features, snapshot.side.regions.len()), (None, 0));
    assert!(logged(&host).iter().any(|line| line.ends_with(&said)), "{:?}", logged(&host));
    assert_eq!(host.status.snapshot().side.queues[1].counters.packets, 5, "what was counted is kept");
    host.still_works();
    let mut peer = host.peer();
    peer.socket.write_all(&header(PANIC, 0, 0)).unwrap();
    host.expect_errors("control_panicked", 2);
    host.still_works();
}

#[test]
fn a_call_that_the_protocol_does_not_need_is_denied_counted_and_logged() {
    let host = Host::start();
    logged(&host);
    let mut peer = host.peer();
    assert_ne!(peer.number(VhostRequest::GET_FEATURES), 0);
    let confinement = host.status.snapshot().confinement;
    if let Confinement::Not(why) = confinement {
        return skip("a_call_that_the_protocol_does_not_need_is_denied_counted_and_logged", why);
    }
    assert!(matches!(confinement, Confinement::Confined(_)), "{confinement:?}");
    for _ in 0..2 {
        peer.socket.write_all(&header(STRAY, 0, 0)).unwrap();
        assert!(peer.receive().is_none());
        peer = host.peer();
    }
    host.expect_errors("request_unknown", 2);
    assert_eq!(host.denied(), [("chdir".to_owned(), 2)].into());
    until("a line of the log", || {
        logged(&host).iter().any(|line| line.contains("denied") && line.ends_with("chdir 2"))
    });
    // Other threads are not confined, not even new ones.
    std::thread::spawn(|| File::open("/dev/null").unwrap()).join().unwrap();
    // A thread that must not be confined is not, and the status says so.
    let free = Host::with(PeerPolicy { confine: false, ..PeerPolicy::default() });
    free.peer().number(VhostRequest::GET_FEATURES);
    let Confinement::Not(why) = free.status.snapshot().confinement else { panic!("it is confined") };
    assert!(why.contains("`confine`"), "{why}");
}

/// Two alternating errors are each logged.
#[test]
fn the_log_lines_of_a_peer_are_limited() {
    let host = Host::start();
    logged(&host);
    let start = Instant::now();
    for round in 0..200 {
        let mut peer = host.peer();
        match round % 2 {
            0 => peer.socket.write_all(&header(0, 0, 0)).unwrap(),
            _ => peer.socket.write_all(&[9; 12]).unwrap(),
        }
        while peer.receive().is_some() {}
    }
    host.expect_errors("request_unknown", 100);
    host.expect_errors("message_too_long", 100);
    let most = 10 + start.elapsed().as_secs() as usize + 1;
    let lines = logged(&host).len();
    assert!((10..=most).contains(&lines), "{lines} lines, {most} at most");
    std::thread::sleep(Duration::from_millis(1_100));
    host.peer().number(VhostRequest::GET_FEATURES);
    until("what was left out", || {
        logged(&host).iter().any(|line| line.contains("lines about this peer were suppressed"))
    });
}

#[test]
fn only_allowed_users_are_served() {
    let own = bellows_ipc::socket::peer(&std::os::unix::net::UnixStream::pair().unwrap().0).unwrap();
    let others = Host::with(PeerPolicy { users: vec![own.uid + 1], ..PeerPolicy::default() });
    assert!(others.peer().receive().is_none());
    others.expect_errors("peer_refused", 1);
    let snapshot = others.status.snapshot();
    assert_eq!((snapshot.connections, snapshot.peer), (0, None));
    let expected = format!("user {} (process {})", own.uid, own.pid);
    assert!(snapshot.last_error.unwrap().starts_with(&expected));

    let host = Host::with(PeerPolicy { users: vec![own.uid + 1, own.uid], ..PeerPolicy::default() });
    let mut peer = host.peer();
    peer.number(VhostRequest::GET_FEATURES);
    assert_eq!(host.status.snapshot().peer, Some(own));
    drop(peer);
    until("the end", || host.status.snapshot().peer.is_none());
}

/// A file on a disk as memory, as a log and as a region of inflight descriptors.
#[test]
fn memory_that_is_no_memory_is_refused_unless_it_is_allowed() {
    let path = std::env::current_exe().unwrap().with_file_name(format!("disk-{}", std::process::id()));
    let disk = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    disk.set_len(LENGTH).unwrap();
    if bellows_ipc::mapping::SharedMapping::new(&disk, 0, LENGTH).is_ok() {
        let test = "memory_that_is_no_memory_is_refused_unless_it_is_allowed";
        return skip(test, "the build's folder is on tmpfs, so there is no file on a disk");
    }
    let share = |peer: &mut Peer| {
        peer.negotiate(FEATURES);
        let mut body = 1_u64.to_le_bytes().to_vec();
        RegionMessage::write(&Peer::region(), &mut body);
        peer.need_reply = true;
        u64::from_le_bytes(peer.ask(VhostRequest::SET_MEM_TABLE, &body, &[disk.as_fd()]).body.try_into().unwrap())
    };
    let host = Host::start();
    let mut peer = host.peer();
    assert_eq!(share(&mut peer), 1);
    assert_eq!(errors(&host.status.snapshot(), "memory_unusable"), 1);
    let said = host.status.snapshot().last_error.unwrap();
    assert!(said.contains("not a file in memory") && said.contains("allow_file_memory"), "{said}");
    let log = [LENGTH.to_le_bytes(), [0; 8]].concat();
    peer.send(VhostRequest::SET_LOG_BASE, &log, &[disk.as_fd()]);
    host.expect_errors("mapping_unusable", 1);
    drop(peer);
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    let inflight = crate::vhost::message::InflightMessage { length: LENGTH, offset: 0, queues: 2, queue_size: 64 };
    peer.send(VhostRequest::SET_INFLIGHT_FD, &inflight.bytes(), &[disk.as_fd()]);
    host.expect_errors("mapping_unusable", 2);

    let host = Host::with(PeerPolicy { any_file: true, ..PeerPolicy::default() });
    let mut peer = host.peer();
    assert_eq!(share(&mut peer), 0);
    assert_eq!(host.status.snapshot().side.regions.len(), 1);
}
