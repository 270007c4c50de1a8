//! Opens the sockets of a port and finds the other side, on the control thread.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_ipc::socket;
use bellows_ipc::socket_file::SocketFile;
use bellows_sys::remedy;
use rustix::io::Errno;

use super::dgram::DgramQueue;
use super::stream::StreamQueue;
use super::{Kind, UnixConfig, UnixMode, UnixQueue};
use crate::status::PortStatus;
use crate::{OpenError, PortSource};

/// A connection that ends sooner is followed by a pause: clients that come and go must not keep the threads busy.
const SHORT: Duration = Duration::from_millis(100);

/// The source of the queue of a port at a Unix socket.
#[derive(Debug)]
pub struct UnixSource {
    config: UnixConfig,
    /// Whether our own socket may be waited for, because another port of this process is about to release it.
    is_patient: bool,
    own: Option<Own>,
    /// The file of the other side's socket when we connected to it with datagrams.
    peer: Option<FileIdentity>,
    /// When the queue was opened.
    opened: Option<Instant>,
    /// Whether the last connection was short, or could not be used.
    pauses: bool,
}

/// Our own socket.
#[derive(Debug)]
enum Own {
    Listener(UnixListener, #[expect(dead_code, reason = "dropping it removes the file")] SocketFile),
    Dgram(Arc<UnixDatagram>, #[expect(dead_code, reason = "dropping it removes the file")] SocketFile),
}

/// Device, inode and time of the last change: an inode may be used again for the next file.
type FileIdentity = (u64, u64, i64, i64);

impl UnixSource {
    /// A source for this configuration. `is_patient` if another port of this process may still have the socket.
    pub fn new(config: UnixConfig, is_patient: bool) -> UnixSource {
        UnixSource { config, is_patient, own: None, peer: None, opened: None, pauses: false }
    }

    /// Opens our own socket, if there must be one and it is not open.
    fn open_own(&mut self) -> Result<(), OpenError> {
        let path = &self.config.socket;
        let open = || {
            Ok(Some(match &self.config.mode {
                UnixMode::Client => return Ok(None),
                UnixMode::Server(access) => {
                    let (file, listener) = SocketFile::open(path, |place| socket::listen(place, *access))?;
                    file.begin();
                    Own::Listener(listener, file)
                }
                UnixMode::Dgram(_, access) => {
                    let (file, own) = SocketFile::open(path, |place| socket::bind_datagrams(place, *access))?;
                    file.begin();
                    Own::Dgram(Arc::new(own), file)
                }
            }))
        };
        if self.own.is_none() {
            self.own = open().map_err(|error: io::Error| {
                let is_busy = self.is_patient && error.kind() == io::ErrorKind::AddrInUse;
                if is_busy { OpenError::Busy(error.to_string()) } else { OpenError::Failed(error.to_string()) }
            })?;
        }
        Ok(())
    }

    /// The next connection of a stream, or the datagrams of the other side.
    fn find(&mut self, status: &PortStatus) -> Result<Kind, OpenError> {
        let stream = |socket: UnixStream| {
            let peer = socket::peer(&socket);
            status.meets(peer.as_ref().ok().map(|peer| (u64::from(peer.pid), u64::from(peer.uid))));
            let peer = peer.map(|peer| format!("process {} of user {}", peer.pid, peer.uid));
            status.update(|snapshot| {
                snapshot.details.peer = Some(peer.unwrap_or_else(|_| "unknown".to_owned()));
            });
            StreamQueue::new(socket).map(Kind::Stream).map_err(|error| no_queue(&error))
        };
        match (&self.own, &self.config.mode) {
            (Some(Own::Listener(listener, _)), _) => match socket::accept(listener) {
                Ok(socket) => stream(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Err(OpenError::Missing(format!("nobody has connected to {}", self.config.socket.display())))
                }
                Err(error) => Err(no_queue(&error)),
            },
            (Some(Own::Dgram(own, _)), UnixMode::Dgram(peer, _)) => {
                let identity = identity(peer);
                own.connect(peer).map_err(|error| not_there(peer, &error))?;
                let own = Arc::clone(own);
                self.peer = identity;
                DgramQueue::new(own).map(Kind::Dgram).map_err(|error| no_queue(&error))
            }
            _ => {
                let path = &self.config.socket;
                stream(socket::connect(path).map_err(|error| not_there(path, &error))?)
            }
        }
    }
}

impl PortSource for UnixSource {
    type Queue = UnixQueue;

    fn open(&mut self, status: &PortStatus) -> Result<Vec<UnixQueue>, OpenError> {
        status.update(|snapshot| {
            snapshot.details.mode = Some(self.config.mode.name().to_owned());
            if let UnixMode::Dgram(peer, _) = &self.config.mode {
                snapshot.details.peer = Some(peer.display().to_string());
            }
        });
        self.open_own()?;
        let found = self.find(status);
        // Without descriptors, for example, the connection would wake the thread again at once.
        self.pauses = matches!(found, Err(OpenError::Failed(_)));
        let kind = found?;
        self.opened = Some(Instant::now());
        Ok(vec![UnixQueue(kind)])
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.own {
            // Further connections wait while there is one.
            Some(Own::Listener(listener, _)) if self.opened.is_none() && !self.pauses => vec![listener.as_fd()],
            _ => Vec::new(),
        }
    }

    fn check(&mut self, _status: &PortStatus) -> Option<String> {
        let UnixMode::Dgram(peer, _) = &self.config.mode else { return None };
        // The socket stays connected to one that is closed, and then takes nothing from its successor.
        let is_same = identity(peer) == self.peer;
        (!is_same).then(|| format!("the socket {} is gone, or another one is there now", peer.display()))
    }

    fn close(&mut self) {
        self.pauses = self.opened.take().is_some_and(|opened| opened.elapsed() < SHORT);
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    fs::metadata(path).ok().map(|status| (status.dev(), status.ino(), status.ctime(), status.ctime_nsec()))
}

/// Why the other side's socket cannot be used.
fn not_there(path: &Path, error: &io::Error) -> OpenError {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    let path = path.display();
    match error.kind() {
        NotFound => OpenError::Missing(format!("there is no socket {path}; the other side opens it")),
        ConnectionRefused => OpenError::Missing(format!("nobody has the socket {path} open")),
        // A datagram socket stays connected to the one before ours until its process looks.
        _ if Errno::from_io_error(error) == Some(Errno::PERM) => {
            OpenError::Missing(format!("the socket {path} is connected to another one than ours"))
        }
        WouldBlock => OpenError::Missing(format!("too many connections wait at the socket {path}")),
        _ => {
            let usual = "is it a socket of the same `kind`, and free for this port?";
            OpenError::Failed(format!("cannot connect to {path}: {error}; {}", remedy(error, usual)))
        }
    }
}

fn no_queue(error: &io::Error) -> OpenError {
    let help = remedy(error, "end other programs, or raise their limits with `ulimit`");
    OpenError::Failed(format!("the connection cannot be used: {error}; {help}"))
}
