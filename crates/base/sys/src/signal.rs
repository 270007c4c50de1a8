//! A signal handler that is chained before another: signals that it does not handle go to the previous handler.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A handler for [`HandlerChain::install`]: the signal, its information, and the thread's registers.
pub type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// One signal of the process, and its previous handler.
pub struct HandlerChain {
    signal: libc::c_int,
    handler: Handler,
    installing: Mutex<()>,
    previous: OnceLock<Previous>,
}

struct Previous(libc::sigaction);

// SAFETY: the structure is plain data; the function that it names is a signal handler, which any thread may run.
unsafe impl Send for Previous {}
// SAFETY: as above, and it is never changed.
unsafe impl Sync for Previous {}

impl HandlerChain {
    /// A chain that is not installed yet.
    ///
    /// # Safety
    /// The handler does only what a signal handler may do, whatever it interrupts.
    pub const unsafe fn new(signal: libc::c_int, handler: Handler) -> HandlerChain {
        HandlerChain { signal, handler, installing: Mutex::new(()), previous: OnceLock::new() }
    }

    /// Whether a signal has no handler and is not ignored. False for one that cannot have a handler.
    pub fn is_free(signal: libc::c_int) -> bool {
        present(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL)
    }

    /// The signal's number.
    pub fn signal(&self) -> libc::c_int {
        self.signal
    }

    /// Installs the handler, once in the life of the process.
    ///
    /// # Errors
    /// Those of `sigaction`.
    pub fn install(&'static self) -> io::Result<()> {
        let _installing = self.installing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.previous.get().is_some() {
            return Ok(());
        }
        // The handler may run as soon as it is installed, so the previous one is read first.
        let previous = present(self.signal).ok_or_else(io::Error::last_os_error)?;
        let _ = self.previous.set(Previous(previous));
        // SAFETY: all zero is a valid sigaction: no flags, an empty mask, the default handler.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = self.handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for and does only what a signal handler may, which
        // new() asks for.
        match unsafe { libc::sigaction(self.signal, &raw const action, null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Does what would have been done without this handler. Called by the handler; `recurs` says whether the signal
    /// recurs when the handler returns, like that of a fault, whose instruction is retried.
    ///
    /// # Safety
    /// `info` and `context` are those that the kernel gave the handler.
    pub unsafe fn pass_on(&self, recurs: bool, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let signal = self.signal;
        match self.previous.get().map(|previous| &previous.0) {
            Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
                // SAFETY: the process had installed this function as the handler of this signal, with this signature.
                unsafe {
                    if action.sa_flags & libc::SA_SIGINFO != 0 {
                        let handler: Handler = std::mem::transmute(action.sa_sigaction);
                        handler(signal, info, context);
                    } else {
                        let handler: extern "C" fn(libc::c_int) = std::mem::transmute(action.sa_sigaction);
                        handler(signal);
                    }
                }
            }
            // Only a signal that recurs cannot be ignored.
            Some(action) if action.sa_sigaction == libc::SIG_IGN && !recurs => return,
            // SAFETY: sets the default, which is to end the process; signal() may be called in a handler.
            _ => unsafe {
                libc::signal(signal, libc::SIG_DFL);
            },
        }
        // A signal that does not recur, and that the previous handler left to the default, has to be raised. It arrives
        // when this handler returns.
        if !recurs && HandlerChain::is_free(signal) {
            // SAFETY: raise() may be called in a handler.
            unsafe { libc::raise(signal) };
        }
    }
}

/// The current action of a signal. May be called in a handler.
fn present(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: only reads the current handler, and writes it into a structure of the right type, which is read only if
    // the call has filled it.
    unsafe { (libc::sigaction(signal, null(), action.as_mut_ptr()) == 0).then(|| action.assume_init()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// Sends a signal to this thread; it has arrived when this returns.
    fn send(signal: libc::c_int) {
        // SAFETY: raise() sends a signal to this thread.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }

    #[test]
    fn the_previous_handler_is_called_with_its_arguments() {
        // SAFETY: the handlers add to numbers and pass the signal on.
        static FIRST: HandlerChain = unsafe { HandlerChain::new(libc::SIGUSR1, on_first) };
        // SAFETY: as above.
        static SECOND: HandlerChain = unsafe { HandlerChain::new(libc::SIGUSR1, on_second) };
        static PLAIN: AtomicUsize = AtomicUsize::new(0);
        static CALLED: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn plain(signal: libc::c_int) {
            PLAIN.fetch_add(usize::from(signal == libc::SIGUSR1), Relaxed);
        }
        extern "C" fn on_first(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
            // SAFETY: on_second() passes on what the kernel gave it.
            unsafe {
                CALLED.fetch_add(usize::from((*info).si_signo == libc::SIGUSR1), Relaxed);
                FIRST.pass_on(false, info, context);
            }
        }
        extern "C" fn on_second(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
            // SAFETY: the kernel's arguments.
            unsafe { SECOND.pass_on(false, info, context) };
        }
        // SAFETY: the handler has the signature that it needs, and only adds to a number.
        unsafe { libc::signal(libc::SIGUSR1, plain as *const () as usize) };
        for chain in [&FIRST, &FIRST, &SECOND, &SECOND] {
            chain.install().unwrap();
        }
        send(libc::SIGUSR1);
        send(libc::SIGUSR1);
        assert_eq!((CALLED.load(Relaxed), PLAIN.load(Relaxed)), (2, 2));
    }

    #[test]
    fn an_ignored_signal_stays_ignored() {
        // SAFETY: as above.
        static CHAIN: HandlerChain = unsafe { HandlerChain::new(libc::SIGUSR2, on_signal) };
        static CALLED: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
            CALLED.fetch_add(1, Relaxed);
            // SAFETY: the kernel's arguments.
            unsafe { CHAIN.pass_on(false, info, context) };
        }
        // SAFETY: no handler at all.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        CHAIN.install().unwrap();
        send(libc::SIGUSR2);
        send(libc::SIGUSR2);
        assert_eq!(CALLED.load(Relaxed), 2, "and the handler stays");
    }
}
