//! Streams of the control socket.
