//! Safe wrappers around the system calls with which processes share memory, descriptors and events: what a vhost-user
//! device and a control socket need. The other process may be hostile at any time.
//!
//! | module | contents |
//! |---|---|
//! | [`confine`] | a thread that restricts itself to the system calls that its work needs |
//! | [`mapping`] | mappings of other processes' files, safe against truncation |
//! | [`memfd`] | memory files, to share with other processes |
//! | [`notify`] | raising events of other processes without ever waiting for them |
//! | [`seqpacket`] | Unix sockets that keep the bounds of messages, at a path or with an abstract name |
//! | [`socket`] | Unix sockets that pass descriptors, never blocking |
//! | [`socket_file`] | files of Unix sockets: created, exchanged for abandoned ones, and removed |

pub mod confine;
pub mod mapping;
pub mod memfd;
pub mod notify;
pub mod seqpacket;
pub mod socket;
pub mod socket_file;
