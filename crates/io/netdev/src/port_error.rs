//! Errors of the descriptors through which frames pass to and from the kernel.

use std::io;

use rustix::io::Errno;

/// Why a network interface, or the kernel's side of one, took or gave no frame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The kernel has no room for another frame now: `EAGAIN`.
    #[error("the kernel has no room for more frames; try again later")]
    Full,
    /// The interface has dropped the frame, perhaps because its queue is full: `ENOBUFS`. The frame can be sent again.
    #[error("the interface has dropped the frame; its queue may be full, or its other side down")]
    Dropped,
    /// The interface is set down: `ENETDOWN`, `EIO`. It may be set up again.
    #[error("the interface is down; set it up with `ip link set NAME up`")]
    Down,
    /// The interface does not exist any more: `ENXIO`, `ENODEV`, `EBADFD`. Only a new descriptor can help.
    #[error("the interface does not exist any more; open it again once it is back")]
    Gone,
    /// The frame is longer than the interface's MTU allows: `EMSGSIZE`.
    #[error("the frame is longer than the interface's MTU allows")]
    TooLong,
    /// The virtio-net header contradicts the frame, or the frame is too short: `EINVAL`.
    #[error("the kernel rejects the frame: its virtio-net header contradicts it, or it is too short")]
    Invalid,
    /// Another error of the system.
    #[error(transparent)]
    Other(io::Error),
}

impl PortError {
    /// The class of a system error.
    #[cold]
    pub(crate) fn of(error: Errno) -> PortError {
        match error {
            Errno::AGAIN => PortError::Full,
            Errno::NOBUFS => PortError::Dropped,
            Errno::NETDOWN | Errno::IO => PortError::Down,
            Errno::NXIO | Errno::NODEV | Errno::BADFD => PortError::Gone,
            Errno::MSGSIZE => PortError::TooLong,
            Errno::INVAL => PortError::Invalid,
            other => PortError::Other(other.into()),
        }
    }
}

/// A step of opening a port that failed, with advice.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {source}; {}", advice(source, usual))]
pub struct PortOpenError {
    /// The step, as a clause after "cannot".
    pub step: &'static str,
    /// The error of the system.
    pub source: io::Error,
    /// The advice for an error with many possible causes.
    usual: &'static str,
}

impl PortOpenError {
    /// A function that makes a system error that of a step.
    pub(crate) fn at<E: Into<io::Error>>(step: &'static str, usual: &'static str) -> impl FnOnce(E) -> PortOpenError {
        move |source| PortOpenError { step, source: source.into(), usual }
    }

    /// Whether a privileged process could take the step. A file that is not open to the user is another matter.
    pub fn takes_privileges(&self) -> bool {
        Errno::from_io_error(&self.source) == Some(Errno::PERM)
    }
}

fn advice<'a>(error: &io::Error, usual: &'a str) -> &'a str {
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => usual,
        Some(Errno::NODEV | Errno::NXIO) => "check the name of the interface with `ip link`",
        _ => bellows_sys::remedy(error, usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_classes() {
        assert!(matches!(PortError::of(Errno::AGAIN), PortError::Full));
        assert!(matches!(PortError::of(Errno::NOBUFS), PortError::Dropped));
        assert!(matches!(PortError::of(Errno::NETDOWN), PortError::Down));
        assert!(matches!(PortError::of(Errno::BADFD), PortError::Gone));
        assert!(matches!(PortError::of(Errno::MSGSIZE), PortError::TooLong));
        assert!(matches!(PortError::of(Errno::INVAL), PortError::Invalid));
        assert!(matches!(PortError::of(Errno::NOMEM), PortError::Other(_)));
    }

    #[test]
    fn an_error_names_its_step_and_the_remedy() {
        let error = PortOpenError::at("open a packet socket", "grant CAP_NET_RAW");
        let error: PortOpenError = error(Errno::PERM);
        let text = error.to_string();
        assert!(text.starts_with("cannot open a packet socket: ") && text.ends_with("; grant CAP_NET_RAW"), "{text}");
        let error: PortOpenError = PortOpenError::at("bind it", "grant CAP_NET_RAW")(Errno::NODEV);
        assert!(error.to_string().contains("ip link"), "{error}");
    }
}
