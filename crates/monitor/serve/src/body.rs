//! Bodies of answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

/// The number of pieces that wait for a client before the sender must wait.
const WAITING_PIECES: usize = 16;

/// The body of an answer.
pub(crate) enum Body {
    /// All of it; `None` once it has been taken.
    Whole(Option<Bytes>),
    /// Pieces, until the sender is dropped.
    Pieces(mpsc::Receiver<Bytes>),
}

/// The client is gone: nobody takes further pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client has closed the connection")]
pub struct Closed;

/// The sender of an answer that is written piece by piece. Dropping it ends the answer.
#[derive(Clone, Debug)]
pub struct BodySender(mpsc::Sender<Bytes>);

impl BodySender {
    /// Sends a piece, and waits while the client is behind by many of them.
    ///
    /// # Errors
    /// If the client is gone.
    pub async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Closed> {
        self.0.send(piece.into()).await.map_err(|_| Closed)
    }

    /// The same for a thread that may wait, such as one of [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// If the client is gone.
    pub fn send_and_wait(&self, piece: impl Into<Bytes>) -> Result<(), Closed> {
        self.0.blocking_send(piece.into()).map_err(|_| Closed)
    }

    /// Sends a piece unless the client is behind by many of them. Returns whether it was taken.
    ///
    /// # Errors
    /// If the client is gone.
    pub fn offer(&self, piece: impl Into<Bytes>) -> Result<bool, Closed> {
        match self.0.try_send(piece.into()) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Closed),
        }
    }

    /// Whether the client is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

impl Body {
    /// A body of pieces, and its sender.
    pub(crate) fn pieces() -> (Body, BodySender) {
        let (sender, receiver) = mpsc::channel(WAITING_PIECES);
        (Body::Pieces(receiver), BodySender(sender))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Pieces(receiver) => {
                receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Body::Pieces(receiver) => receiver.is_closed() && receiver.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Body::Pieces(_) => SizeHint::default(),
        }
    }
}
