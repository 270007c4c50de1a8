//! A connection that gives up on a client who does not take its answer, or takes it too slowly.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::crowd::AnswerProgress;
use crate::limits::Limits;

/// A stream whose writes fail when they have waited for too long in all. What the client takes earns it time again, at
/// the minimum rate: one that takes a byte now and then runs out of time.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// In bytes a second.
    min_rate: usize,
    /// Runs while a write waits.
    deadline: Pin<Box<Sleep>>,
    /// The time since which a write waits.
    since: Option<Instant>,
    /// The time for which earlier writes have waited, less what the client has earned.
    waited: Duration,
    progress: Rc<AnswerProgress>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, limits: Limits, progress: Rc<AnswerProgress>) -> Patient<S> {
        let Limits { stall_time: patience, min_rate, .. } = limits;
        let deadline = Box::pin(tokio::time::sleep(patience));
        let (since, waited, min_rate) = (None, Duration::ZERO, min_rate.max(1));
        Patient { stream, patience, min_rate, deadline, since, waited, progress }
    }

    /// The stream, and whether nothing has been written.
    pub(crate) fn into_inner(self) -> (S, bool) {
        (self.stream, !self.progress.has_written.get())
    }

    /// The result of a write, or an error if writes have waited for too long. `taken` is the number of bytes in a
    /// result.
    fn limited<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        taken: impl Fn(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let now = Instant::now();
        self.progress.has_written.set(true);
        self.progress.is_waiting.set(result.is_pending());
        if let Poll::Ready(outcome) = &result {
            let waited = self.since.take().map_or(Duration::ZERO, |since| now - since);
            let earned = outcome.as_ref().map_or(0, taken) as f64 / self.min_rate as f64;
            self.waited = (self.waited + waited).saturating_sub(Duration::from_secs_f64(earned));
            return result;
        }
        if self.since.is_none() {
            self.since = Some(now);
            self.deadline.as_mut().reset(now + self.patience.saturating_sub(self.waited));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(result, |taken| *taken, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Of what has been written nothing is left here.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(result, |()| 0, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.limited(result, |taken| *taken, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
