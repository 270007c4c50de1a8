//! XDP programs that give frames to AF_XDP sockets: assembled here, loaded and attached with `bpf(2)`.
//!
//! A [`Program`] decides by a [`Filter`] which frames go to the socket of their receive queue, which a [`SocketMap`]
//! names; the kernel keeps all others. A [`BpfLink`] attaches it to an interface until the link is closed, which the
//! kernel does when the process ends, however it ends. [`LiveFrames`] uses a program to send frames, for measurements.
//!
//! The kernel demands `CAP_BPF` and `CAP_NET_ADMIN` (or `CAP_SYS_ADMIN` alone) for programs, and `CAP_NET_ADMIN` for
//! links.
//!
//! # Sources
//!
//! `bpf(2)`; Linux, `include/uapi/linux/bpf.h`, whose `union bpf_attr` and `struct bpf_prog_info` the structures here
//! follow, and `include/uapi/linux/if_link.h`.

mod assembler;
mod filter;
mod live_frames;
mod program;

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use filter::{Filter, IpVersion, MAX_EXTENSIONS, Match, MatchError, PortDirection, PortProtocol};
pub use live_frames::LiveFrames;

use assembler::Instruction;
use rustix::io::Errno;

/// The name of this project's programs and maps, as other programs list them.
pub const NAME: &str = "bellows";

/// Maximum length of the name of a program or a map, with the zero at its end: `BPF_OBJ_NAME_LEN`.
const NAME_LENGTH: usize = 16;

/// The commands: `enum bpf_cmd`.
mod command {
    pub const MAP_CREATE: i32 = 0;
    pub const MAP_UPDATE: i32 = 2;
    pub const MAP_DELETE: i32 = 3;
    pub const PROGRAM_LOAD: i32 = 5;
    pub const PROGRAM_TEST_RUN: i32 = 10;
    pub const PROGRAM_BY_ID: i32 = 13;
    pub const OBJECT_INFO: i32 = 15;
    pub const LINK_CREATE: i32 = 28;
}

/// Makes a system call, and returns its number: a descriptor, or 0.
///
/// # Safety
/// The attributes must be those of the command, and each address in them must be that of memory of the length that the
/// kernel reads or writes there.
unsafe fn bpf<Attributes>(command: i32, attributes: &mut Attributes) -> io::Result<i32> {
    // SAFETY: the kernel accesses the attributes up to their size, and memory as the caller promises.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<Attributes>()) };
    match i32::try_from(result) {
        Ok(number @ 0..) => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the descriptor that a command has made.
///
/// # Safety
/// As for [`bpf`], and the command must make a descriptor.
unsafe fn open<Attributes>(command: i32, attributes: &mut Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the caller promises it. The kernel has just made the descriptor, and nobody else knows it.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, attributes)?)) }
}

/// A name of this project for the kernel.
fn own_name() -> [u8; NAME_LENGTH] {
    let mut name = [0; NAME_LENGTH];
    name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    name
}

/// A table of AF_XDP sockets by receive queue, which a program gives frames to: a map of type `XSKMAP`.
#[derive(Debug)]
pub struct SocketMap {
    descriptor: OwnedFd,
    queues: u32,
}

impl SocketMap {
    /// Makes a table without sockets for receive queues below `queues`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`; `EINVAL` for no queue; `ENOMEM`; `EMFILE` without free
    /// descriptors.
    pub fn new(queues: u32) -> io::Result<SocketMap> {
        const XSKMAP: u32 = 17;
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_size: u32,
            value_size: u32,
            entries: u32,
            flags: u32,
            inner_map: u32,
            numa_node: u32,
            name: [u8; NAME_LENGTH],
        }
        let mut attributes = Attributes {
            kind: XSKMAP,
            key_size: 4,
            value_size: 4,
            entries: queues,
            flags: 0,
            inner_map: 0,
            numa_node: 0,
            name: own_name(),
        };
        // SAFETY: the attributes are those of this command and contain no address.
        let descriptor = unsafe { open(command::MAP_CREATE, &mut attributes)? };
        Ok(SocketMap { descriptor, queues })
    }

    /// The number of receive queues.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Gives the frames of a receive queue to a socket, which should be bound to that queue of the interface: others
    /// get no frame of it. The entry is gone when the socket is closed.
    ///
    /// # Errors
    /// `E2BIG` if the table has no such queue; `EOPNOTSUPP` if it is not an AF_XDP socket.
    pub fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let mut attributes = Element::new(self, &queue, Some(&value));
        // SAFETY: the attributes are those of this command; key and value are 4 bytes, as the map's are, and outlive
        // the call, which only reads them.
        unsafe { bpf(command::MAP_UPDATE, &mut attributes) }.map(drop)
    }

    /// Leaves the frames of a receive queue to the kernel.
    ///
    /// # Errors
    /// `EINVAL` if the table has no such queue.
    pub fn remove(&self, queue: u32) -> io::Result<()> {
        let mut attributes = Element::new(self, &queue, None);
        // SAFETY: the attributes are those of this command; the key is 4 bytes, as the map's are, and outlives the call,
        // which only reads it.
        unsafe { bpf(command::MAP_DELETE, &mut attributes) }.map(drop)
    }
}

/// The attributes of commands for one element of a map.
#[repr(C)]
struct Element {
    map: u32,
    /// The kernel rejects other bytes than 0 where it knows no field.
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new(map: &SocketMap, key: &u32, value: Option<&i32>) -> Element {
        let value = value.map_or(0, |value| address(value));
        Element { map: number(&map.descriptor), padding: 0, key: address(key), value, flags: 0 }
    }
}

/// An address as the kernel's structures contain it.
fn address<T: ?Sized>(value: *const T) -> u64 {
    value.cast::<()>() as u64
}

fn number(descriptor: &OwnedFd) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

/// The reason why a program cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The program for the filter has tens of thousands of instructions, or the verifier needs too long for it (`E2BIG`).
    #[error("the filter has too many matches for one XDP program; use fewer, with ranges of ports")]
    TooManyMatches,
    /// `EPERM`, most often because a capability is missing.
    #[error("an XDP program cannot be loaded: {0}; it takes the capabilities CAP_BPF and CAP_NET_ADMIN")]
    NotPermitted(io::Error),
    /// The kernel has rejected the program.
    #[error(
        "the kernel rejects the XDP program: {source}; Linux 5.9 or newer is needed, and 5.18 for frames of several \
         buffers{log}"
    )]
    Rejected {
        /// The system's error.
        source: io::Error,
        /// What the verifier says, after `: `, or nothing.
        log: String,
    },
}

/// A loaded XDP program.
#[derive(Debug)]
pub struct Program {
    descriptor: OwnedFd,
}

/// The attributes of `BPF_PROG_LOAD` up to Linux 4.17, which every later kernel accepts.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_LENGTH],
    interface: u32,
    attach_type: u32,
}

/// How often `BPF_PROG_TEST_RUN` runs a program, and what it does with the frames.
struct TestSettings {
    repeat: u32,
    flags: u32,
    /// Frames passed on at a time, if the flags say that they are.
    batch: u32,
}

/// The attributes of `BPF_PROG_TEST_RUN`. Kernels that know fewer fields accept the others as 0.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
}

/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;

impl Program {
    /// Loads a program that gives the frames of a filter to the sockets of a map. The program keeps the map.
    ///
    /// With `multi_buffer` it also gets frames of several buffers (Linux 5.18); a filter then reads only the first
    /// buffer, which contains all headers. Without it, drivers reject the program for an interface whose frames may be
    /// larger than a page.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(filter: &Filter, map: &SocketMap, multi_buffer: bool) -> Result<Program, LoadError> {
        let redirect = program::redirect_to(map.descriptor.as_raw_fd());
        let instructions = program::assemble(filter, redirect).map_err(|_| LoadError::TooManyMatches)?;
        Program::load_instructions(&instructions, multi_buffer)
    }

    fn load_instructions(instructions: &[Instruction], multi_buffer: bool) -> Result<Program, LoadError> {
        const LOG_BYTES: usize = 64 << 10;
        let source = match Program::verify(instructions, multi_buffer, &mut []) {
            Ok(program) => return Ok(program),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                return Err(LoadError::NotPermitted(error));
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TOOBIG) => {
                return Err(LoadError::TooManyMatches);
            }
            Err(error) => error,
        };
        let mut log = vec![0; LOG_BYTES];
        // The same again, with the reason in words.
        let _ = Program::verify(instructions, multi_buffer, &mut log);
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        Err(LoadError::Rejected { source, log: conclusion(&log) })
    }

    /// Loads instructions. The kernel writes its reasons into the log, if it has any bytes.
    fn verify(instructions: &[Instruction], multi_buffer: bool, log: &mut [u8]) -> io::Result<Program> {
        const XDP: u32 = 6;
        const HAS_FRAGS: u32 = 1 << 5;
        // The verifier gives up with `EAGAIN` where a signal of the thread is pending. libbpf tries as often.
        const TRIES: usize = 5;
        // The functions that the programs call may be called under any licence.
        const LICENSE: &CStr = c"MIT";
        let mut attributes = LoadAttributes {
            kind: XDP,
            instruction_count: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            instructions: address(instructions),
            license: address(LICENSE),
            flags: if multi_buffer { HAS_FRAGS } else { 0 },
            name: own_name(),
            attach_type: ATTACH_XDP,
            ..LoadAttributes::default()
        };
        if !log.is_empty() {
            attributes.log_level = 1;
            attributes.log_size = u32::try_from(log.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            attributes.log = address(&raw mut *log);
        }
        // SAFETY: the attributes are those of this command. The kernel reads as many instructions as there are and the
        // licence up to its zero, and writes at most the log's length into the log, which is borrowed exclusively.
        let mut load = || unsafe { open(command::PROGRAM_LOAD, &mut attributes) };
        let is_interrupted = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let mut result = load();
        for _ in 1..TRIES {
            if !result.as_ref().is_err_and(is_interrupted) {
                break;
            }
            result = load();
        }
        Ok(Program { descriptor: result? })
    }

    /// Attaches the program to an interface of this thread's network namespace, until the link is dropped or the process
    /// ends. Never replaces a program.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach(&self, interface: u32, mode: Mode) -> Result<BpfLink, AttachError> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            attach_type: u32,
            flags: u32,
        }
        let mut attributes =
            Attributes { program: number(&self.descriptor), interface, attach_type: ATTACH_XDP, flags: mode.flag() };
        // SAFETY: the attributes are those of this command and contain no address.
        match unsafe { open(command::LINK_CREATE, &mut attributes) } {
            Ok(descriptor) => Ok(BpfLink { descriptor }),
            Err(error) => Err(AttachError::new(error)),
        }
    }

    /// Runs the program on a frame, and returns its result.
    #[cfg(test)]
    fn run(&self, frame: &[u8]) -> io::Result<u32> {
        self.test_run(frame, &TestSettings { repeat: 1, flags: 0, batch: 0 })
    }

    /// Runs the program on a frame as `settings` says, and returns its last result.
    fn test_run(&self, frame: &[u8], settings: &TestSettings) -> io::Result<u32> {
        let size = u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // `struct xdp_md`: the frame's end, behind its start.
        let context = [0, size, 0, 0, 0, 0];
        let mut attributes = TestRun {
            program: number(&self.descriptor),
            data_size_in: size,
            data_in: address(frame),
            repeat: settings.repeat,
            context_size_in: size_of_val(&context) as u32,
            context_in: address(&raw const context),
            flags: settings.flags,
            batch: settings.batch,
            ..TestRun::default()
        };
        // SAFETY: the attributes are those of this command. The kernel reads the frame and the context of the given
        // sizes, which outlive the call, and writes only into the attributes, because it gets no room for output.
        unsafe { bpf(command::PROGRAM_TEST_RUN, &mut attributes)? };
        Ok(attributes.result)
    }
}

/// The end of the verifier's log, which has the reason, to be appended to a message.
fn conclusion(log: &str) -> String {
    const LINES: usize = 4;
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made its own packet.
    Native,
    /// In the kernel's receive path, for any interface.
    Generic,
}

impl Mode {
    /// `XDP_FLAGS_…`.
    fn flag(self) -> u32 {
        match self {
            Mode::Native => 1 << 2,
            Mode::Generic => 1 << 1,
        }
    }
}

/// The reason why a program cannot be attached to an interface.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// `EBUSY` or `EEXIST`: the interface has a program, in this mode or the other.
    #[error(
        "the interface has another XDP program already: {0}; remove it (`ip link set dev NAME xdp off`, or end the \
         program that holds it)"
    )]
    Occupied(io::Error),
    /// `EOPNOTSUPP`: the driver cannot run programs.
    #[error("the interface's driver does not run XDP programs: {0}; use generic mode")]
    NotSupported(io::Error),
    /// `EPERM`: a capability is missing.
    #[error("an XDP program cannot be attached: {0}; it takes the capability CAP_NET_ADMIN")]
    NotPermitted(io::Error),
    /// `ERANGE`: frames may be larger than the driver gives to programs.
    #[error(
        "the interface's MTU, or that of its peer, is too large for native XDP: {0}; lower it, use generic mode, or a \
         program for frames of several buffers"
    )]
    FramesTooLarge(io::Error),
    /// `ENOSPC`: the driver has too few queues.
    #[error(
        "the interface has too few queues for native XDP: {0}; give it more with `ethtool -L` (a veth needs as many \
         receive queues as its peer has transmit queues), or use generic mode"
    )]
    TooFewQueues(io::Error),
    /// Others: `EINVAL` if there is no such interface, or for a setting that the driver rejects.
    #[error("an XDP program cannot be attached to the interface: {0}; check that it exists, and the kernel's log")]
    Other(io::Error),
}

impl AttachError {
    fn new(error: io::Error) -> AttachError {
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY | Errno::EXIST) => AttachError::Occupied(error),
            Some(Errno::OPNOTSUPP) => AttachError::NotSupported(error),
            Some(Errno::PERM) => AttachError::NotPermitted(error),
            Some(Errno::RANGE) => AttachError::FramesTooLarge(error),
            Some(Errno::NOSPC) => AttachError::TooFewQueues(error),
            _ => AttachError::Other(error),
        }
    }
}

/// A program's attachment to an interface. Dropping it detaches the program.
///
/// If the interface is deleted, the link is of no more use: a new interface of the same name needs a new one.
#[derive(Debug)]
pub struct BpfLink {
    #[expect(dead_code, reason = "closing it detaches the program")]
    descriptor: OwnedFd,
}

/// What the kernel says about a program of any process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// The name, of at most 15 bytes; may be empty.
    pub name: String,
    /// The user who has loaded it.
    pub user: u32,
}

/// Describes the program with this number, which netlink reports for each interface with a program.
///
/// # Errors
/// `ENOENT` if there is none; `EPERM` without `CAP_SYS_ADMIN`.
pub fn program_info(id: u32) -> io::Result<ProgramInfo> {
    #[repr(C)]
    struct ById {
        id: u32,
        next: u32,
        flags: u32,
    }
    #[repr(C)]
    struct Query {
        descriptor: u32,
        length: u32,
        info: u64,
    }
    /// `struct bpf_prog_info` as of Linux 4.15.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        kind: u32,
        id: u32,
        tag: [u8; 8],
        machine_code_length: u32,
        instructions_length: u32,
        machine_code: u64,
        instructions: u64,
        load_time: u64,
        user: u32,
        map_count: u32,
        maps: u64,
        name: [u8; NAME_LENGTH],
    }
    // SAFETY: the attributes are those of this command and contain no address.
    let program = unsafe { open(command::PROGRAM_BY_ID, &mut ById { id, next: 0, flags: 0 })? };
    let mut info = Info::default();
    let mut query =
        Query { descriptor: number(&program), length: size_of::<Info>() as u32, info: address(&raw mut info) };
    // SAFETY: the attributes are those of this command. The kernel writes at most `length` bytes into the structure, and
    // follows no address in it, because all lengths of arrays are 0.
    unsafe { bpf(command::OBJECT_INFO, &mut query)? };
    let name = CStr::from_bytes_until_nul(&info.name).unwrap_or_default();
    Ok(ProgramInfo { name: name.to_string_lossy().into_owned(), user: info.user })
}

#[cfg(test)]
mod tests;
