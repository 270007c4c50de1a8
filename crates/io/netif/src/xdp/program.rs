//! The XDP program of an interface, which the process attaches once for all of its queues.

use std::sync::Arc;

use bellows_netdev::bpf::{AttachError, BpfLink, Filter, LoadError, Mode, Program, SocketMap, program_info};

use super::XdpMode;
use crate::OpenError;
use crate::interface::{Interface, Interfaces};
use crate::joint::Joint;

/// A program that gives frames to sockets. Detached when the last queue of the interface is dropped.
pub(super) struct Attachment {
    /// The sockets by queue.
    pub(super) sockets: SocketMap,
    pub(super) mode: Mode,
    /// Why it does not run in the driver, if it should.
    pub(super) fallback: Option<String>,
    /// Whether it gets frames of several buffers.
    pub(super) multi_buffer: bool,
    filter: Filter,
    _link: BpfLink,
}

/// The programs that the process has attached.
static ATTACHED: Joint<Attachment> = Joint::new();

/// The program of an interface: the one that this process has attached already, or a new one.
///
/// # Errors
/// [`OpenError::Busy`] if there is another program, which is named, or if another app redirects other frames;
/// [`OpenError::Failed`] if the kernel does not load or attach the program.
pub(super) fn attach(
    interface: &Interface,
    interfaces: &mut Interfaces,
    filter: &Filter,
    mode: XdpMode,
    queues: u32,
) -> Result<Arc<Attachment>, OpenError> {
    let mut attached = ATTACHED.lock();
    if let Some(existing) = attached.find(interface) {
        let name = &interface.name;
        if existing.filter != *filter || !mode.allows(existing.mode) || existing.sockets.queues() < queues {
            // Perhaps an app that this one replaces, and that ends soon.
            return Err(OpenError::Busy(format!(
                "another app of this process has attached an XDP program to `{name}` that redirects other frames, or in \
                 another mode; give both the same `mode`, `redirect` and `pass`"
            )));
        }
        return Ok(existing);
    }
    let sockets = SocketMap::new(queues).map_err(|error| {
        OpenError::Failed(format!("a map of sockets cannot be created: {error}; this takes CAP_BPF and CAP_NET_ADMIN"))
    })?;
    let (program, multi_buffer) = load(filter, &sockets).map_err(|error| OpenError::Failed(error.to_string()))?;
    let (link, mode, fallback) = match mode {
        XdpMode::Native => (program.attach(interface.index, Mode::Native), Mode::Native, None),
        XdpMode::Generic => (program.attach(interface.index, Mode::Generic), Mode::Generic, None),
        XdpMode::Auto => match program.attach(interface.index, Mode::Native) {
            Err(
                error @ (AttachError::NotSupported(_)
                | AttachError::FramesTooLarge(_)
                | AttachError::TooFewQueues(_)
                | AttachError::Other(_)),
            ) => (program.attach(interface.index, Mode::Generic), Mode::Generic, Some(error.to_string())),
            result => (result, Mode::Native, None),
        },
    };
    let link = link.map_err(|error| explain(&error, interface, interfaces))?;
    let attachment = Attachment { sockets, mode, fallback, multi_buffer, filter: filter.clone(), _link: link };
    Ok(attached.add(interface, attachment))
}

/// Loads the program for frames of several buffers, or for those of one if the kernel does not know others.
fn load(filter: &Filter, sockets: &SocketMap) -> Result<(Program, bool), LoadError> {
    match Program::load(filter, sockets, true) {
        Err(LoadError::Rejected { .. }) => Ok((Program::load(filter, sockets, false)?, false)),
        result => Ok((result?, true)),
    }
}

/// The error, with the names of the programs that are attached already.
fn explain(error: &AttachError, interface: &Interface, interfaces: &mut Interfaces) -> OpenError {
    let AttachError::Occupied(_) = error else { return OpenError::Failed(format!("`{}`: {error}", interface.name)) };
    let now = interfaces.by_index(interface.index).ok().flatten();
    let programs = now.map(|now| now.xdp).unwrap_or_default();
    let named = programs.iter().map(|program| match program_info(program.id) {
        Ok(info) => format!("`{}` (number {}, loaded by user {})", info.name, program.id, info.user),
        Err(_) => format!("number {}", program.id),
    });
    let named: Vec<String> = named.collect();
    OpenError::Busy(format!("`{}`: {error}; attached: {}", interface.name, named.join(", ")))
}
