//! The files, sockets and network interfaces that apps use. Apps declare them, so that the loader finds inaccessible files and conflicts
//! between apps before anything starts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bellows_sys::{FileError, access, namespace, reason};
use serde_json::{Map, Value};

use crate::diagnostics::{Diagnostic, quoted};
use crate::spanned::Place;
use crate::texts::Texts;

/// The maximum length of a Unix socket's path, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// A file, socket or network interface that an app uses, and the key that names it.
///
/// Apps declare their resources in [`Configure::resources`](crate::Configure::resources). The loader checks that each
/// is accessible and that no two apps conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    key: &'static str,
    /// The path, or the name of an interface.
    path: PathBuf,
    /// The network namespace of an interface, if that is not the process's own.
    namespace: Option<PathBuf>,
    access: Access,
    /// The part that the app uses, if it shares the resource with other apps.
    share: Option<Share>,
    /// For an interface whose frames the kernel receives as well.
    heard: Option<HeardByKernel>,
    /// The addresses for which the app answers ARP.
    addresses: Vec<Ipv4Addr>,
}

/// The part of a port that an app uses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    /// The numbers of its queues.
    queues: BTreeSet<u16>,
    /// The keys that the apps of the port have in common, with their values.
    keys: Map<String, Value>,
    /// Whether the apps use all queues from 0 together.
    whole: bool,
}

/// Finds out in which ways the kernel answers ARP for addresses on an interface, and what to do about each: the
/// interface's namespace and name, and the addresses.
pub type ArpConflicts = fn(Option<&Path>, &str, &[Ipv4Addr]) -> Vec<(String, String)>;

#[derive(Clone, Copy, Debug)]
struct HeardByKernel(ArpConflicts);

impl PartialEq for HeardByKernel {
    fn eq(&self, _: &HeardByKernel) -> bool {
        true
    }
}

impl Eq for HeardByKernel {}

/// How a resource is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Access {
    Read,
    /// `numbered`: the app also writes files with a number in their names.
    Write {
        numbered: bool,
    },
    Listen,
    Connect,
    /// By apps of this type.
    Interface(&'static str),
    /// Answers for addresses.
    Addresses,
}

impl Resource {
    /// A file, pipe or device that is read. A relative path starts at the current directory, as
    /// [`Context::path`](crate::Context::path) returns it.
    pub fn reads(key: &'static str, path: impl Into<PathBuf>) -> Resource {
        Resource::of(key, path.into(), Access::Read)
    }

    /// The process's standard input.
    pub fn standard_input(key: &'static str) -> Resource {
        Resource::reads(key, "/dev/stdin")
    }

    /// A file that is created or replaced, or a device that is written.
    pub fn writes(key: &'static str, path: impl Into<PathBuf>) -> Resource {
        Resource::of(key, path.into(), Access::Write { numbered: false })
    }

    /// A file that is written, and numbered files in the same folder: `out.1.pcap`, `out.2.pcap`, … for `out.pcap`.
    pub fn writes_numbered(key: &'static str, path: impl Into<PathBuf>) -> Resource {
        Resource::of(key, path.into(), Access::Write { numbered: true })
    }

    /// The process's standard output.
    pub fn standard_output(key: &'static str) -> Resource {
        Resource::writes(key, "/dev/stdout")
    }

    /// A Unix socket that the app creates and listens on.
    pub fn listens(key: &'static str, path: impl Into<PathBuf>) -> Resource {
        Resource::of(key, path.into(), Access::Listen)
    }

    /// A Unix socket that the app connects to.
    pub fn connects(key: &'static str, path: impl Into<PathBuf>) -> Resource {
        Resource::of(key, path.into(), Access::Connect)
    }

    /// A network interface, which only one app of this type can use, unless all [share](Resource::shared) it. `namespace` is as for
    /// [`open_network`](bellows_sys::namespace::open_network); `None` means the network namespace of the process.
    pub fn interface(key: &'static str, app: &'static str, namespace: Option<&Path>, name: &str) -> Resource {
        let namespace = namespace.map(Path::to_owned);
        Resource { namespace, ..Resource::of(key, name.into(), Access::Interface(app)) }
    }

    /// The same interface, whose frames the kernel receives as well.
    #[must_use]
    pub fn heard_by_kernel(self, conflicts: ArpConflicts) -> Resource {
        Resource { heard: Some(HeardByKernel(conflicts)), ..self }
    }

    /// IPv4 addresses for which the app answers ARP at the network's ports.
    pub fn addresses(key: &'static str, addresses: Vec<Ipv4Addr>) -> Resource {
        Resource { addresses, ..Resource::of(key, PathBuf::new(), Access::Addresses) }
    }

    fn of(key: &'static str, path: PathBuf, access: Access) -> Resource {
        Resource { key, path, namespace: None, access, share: None, heard: None, addresses: Vec::new() }
    }

    /// The app only uses the queues with these numbers: other apps may use the same socket or interface with other
    /// queues, and equal values of the `keys`.
    pub fn shared(self, queues: &[u16], keys: Map<String, Value>) -> Resource {
        let share = Share { queues: queues.iter().copied().collect(), keys, whole: false };
        Resource { share: Some(share), ..self }
    }

    /// The apps that share the resource must use all queues from 0 to the highest one together.
    pub fn without_gaps(mut self) -> Resource {
        self.share.iter_mut().for_each(|share| share.whole = true);
        self
    }

    /// The folder in which the app creates further files while it runs.
    pub(crate) fn written_folder(&self) -> Option<PathBuf> {
        (self.access == Access::Write { numbered: true }).then(|| folder(&self.path).to_owned())
    }

    /// The folder in which the app creates a file or a socket. Devices are in none of these.
    pub(crate) fn changed_folder(&self) -> Option<PathBuf> {
        let is_made = matches!(self.access, Access::Write { .. } | Access::Listen);
        (is_made && !self.path.starts_with("/dev")).then(|| folder(&self.path).to_owned())
    }

    /// The key that names the resource.
    pub fn key(&self) -> &'static str {
        self.key
    }
}

/// A resource, the app that uses it, and the place in the text that names it.
pub(crate) struct ResourceUse {
    pub(crate) app: String,
    pub(crate) place: Place,
    pub(crate) resource: Resource,
}

/// The identity of a file, whatever path leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    /// Device and inode.
    Existing(u64, u64),
    /// A file that does not exist yet: device and inode of its folder, and its name.
    New(u64, u64, OsString),
    /// A network interface: its namespace and its name.
    Interface(Namespace, PathBuf),
}

/// The identity of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Namespace {
    /// Device and inode.
    Existing(u64, u64),
    /// One that cannot be opened, perhaps not yet.
    Other(Option<PathBuf>),
}

impl Namespace {
    fn of(path: Option<&Path>) -> Namespace {
        let opened = path.map_or_else(namespace::current, namespace::open_network);
        match opened.and_then(|opened| fs::File::from(opened).metadata()) {
            Ok(found) => Namespace::Existing(found.dev(), found.ino()),
            Err(_) => Namespace::Other(path.map(Path::to_owned)),
        }
    }
}

/// The target of a path after following all symbolic links. It need not exist.
struct Target {
    identity: Option<Identity>,
    /// The device and inode of its folder, and its name; `None` if there is no folder.
    name: Option<(u64, u64, OsString)>,
    /// The path after following the symbolic links.
    path: PathBuf,
    /// The metadata of the target.
    metadata: io::Result<fs::Metadata>,
}

impl Target {
    fn of_resource(resource: &Resource) -> Target {
        match resource.access {
            Access::Interface(_) => {}
            Access::Addresses => {
                let metadata = Err(io::ErrorKind::Unsupported.into());
                return Target { identity: None, name: None, path: PathBuf::new(), metadata };
            }
            _ => return Target::of(&resource.path),
        }
        let path = resource.path.clone();
        let identity = Some(Identity::Interface(Namespace::of(resource.namespace.as_deref()), path.clone()));
        Target { identity, name: None, path, metadata: Err(io::ErrorKind::Unsupported.into()) }
    }

    fn of(path: &Path) -> Target {
        const MAX_SYMLINKS: usize = 40;
        let mut path = path.to_owned();
        for _ in 0..MAX_SYMLINKS {
            match fs::read_link(&path) {
                // Only the kernel can follow links in `/proc` to objects without a name.
                Ok(next) if !next.as_os_str().as_bytes().contains(&b':') => path = folder(&path).join(next),
                _ => break,
            }
        }
        let metadata = fs::metadata(&path);
        let name = fs::metadata(folder(&path)).ok().zip(path.file_name());
        let name = name.map(|(folder, name)| (folder.dev(), folder.ino(), name.to_owned()));
        let identity = match &metadata {
            Ok(found) => Some(Identity::Existing(found.dev(), found.ino())),
            Err(_) => name.clone().map(|(device, inode, name)| Identity::New(device, inode, name)),
        };
        Target { identity, name, path, metadata }
    }

    fn is_device(&self) -> bool {
        self.metadata.as_ref().is_ok_and(|found| found.file_type().is_char_device())
    }

    fn is_stream(&self) -> bool {
        self.metadata.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir())
    }
}

/// The folder that contains a path.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// A path in quotes for a message, never shortened.
fn quoted_path(path: &Path) -> String {
    format!("`{}`", path.display())
}

/// Checks each resource by itself, and against all other resources and the network's files.
pub(crate) fn check(used: &[ResourceUse], files: &[PathBuf], texts: &Texts) -> Vec<Diagnostic> {
    let targets: Vec<Target> = used.iter().map(|used| Target::of_resource(&used.resource)).collect();
    let mut found = Vec::new();
    let mut listening = None;
    for (used, target) in used.iter().zip(&targets) {
        let checked = match used.resource.access {
            // Its text is at hand.
            Access::Read if texts.of(&used.resource.path).is_some() => None,
            Access::Read => read(used, target),
            Access::Write { numbered } => write(used, target, numbered),
            Access::Listen => {
                let listening = listening.get_or_insert_with(listening_sockets);
                listen(used, target, listening)
            }
            Access::Connect => connect(used, target),
            // It may come later; the app says what it needs when it starts.
            Access::Interface(_) | Access::Addresses => None,
        };
        found.extend(checked);
    }
    find_conflicts(used, &targets, files, &mut found);
    find_arp_conflicts(used, &mut found);
    found
}

/// Warns of interfaces where the kernel answers for the addresses of apps.
fn find_arp_conflicts(used: &[ResourceUse], found: &mut Vec<Diagnostic>) {
    let addresses: BTreeSet<Ipv4Addr> = used.iter().flat_map(|used| used.resource.addresses.clone()).collect();
    let addresses: Vec<Ipv4Addr> = addresses.into_iter().collect();
    if addresses.is_empty() {
        return;
    }
    for used in used {
        let Resource { heard: Some(HeardByKernel(conflicts)), path, namespace, .. } = &used.resource else { continue };
        for (message, help) in conflicts(namespace.as_deref(), &path.to_string_lossy(), &addresses) {
            let message = format!("{}: {message}", quoted(&used.app));
            found.push(Diagnostic::warning(message).at(used.place, "shared with the kernel").help(help));
        }
    }
}

fn error(used: &ResourceUse, message: String, label: &str) -> Diagnostic {
    Diagnostic::error(format!("{}: {message}", quoted(&used.app))).at(used.place, label)
}

fn read(used: &ResourceUse, target: &Target) -> Option<Diagnostic> {
    let path = &used.resource.path;
    let why = match &target.metadata {
        Ok(found) if found.is_dir() => io::ErrorKind::IsADirectory.into(),
        Ok(_) => access::readable(&target.path).err()?,
        Err(why) => io::Error::from(why.kind()),
    };
    let FileError { message, help } = FileError::reading(path, &why);
    Some(error(used, message, "").help(help))
}

fn write(used: &ResourceUse, target: &Target, numbered: bool) -> Option<Diagnostic> {
    const OTHER: &str = "change its permissions, or give another path";
    let path = quoted_path(&used.resource.path);
    let in_folder = || {
        let folder = folder(&target.path);
        let why = match fs::metadata(folder) {
            Ok(found) if !found.is_dir() => Some("not a folder".to_owned()),
            Ok(_) => access::writable(folder).err().map(|why| reason(&why)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                let FileError { message, help } = FileError::writing(&used.resource.path, &why);
                return Some(error(used, message, "").help(help));
            }
            Err(why) => Some(reason(&why)),
        };
        let message = format!("cannot write {path} in the folder {}: {}", quoted_path(folder), why?);
        Some(error(used, message, "").help(OTHER))
    };
    match &target.metadata {
        Ok(found) if found.is_dir() => {
            Some(error(used, format!("{path} is a folder"), "not a file").help("give the name of a file in it"))
        }
        Ok(_) => match access::writable(&target.path) {
            Ok(()) if numbered => in_folder(),
            Ok(()) => None,
            Err(why) => Some(error(used, format!("cannot write {path}: {}", reason(&why)), "").help(OTHER)),
        },
        Err(_) => in_folder(),
    }
}

/// Errors in a socket's path that are the same for listening and connecting.
fn socket(used: &ResourceUse, target: &Target) -> Option<Diagnostic> {
    let path = &used.resource.path;
    let length = path.as_os_str().len();
    if length > MAX_SOCKET_PATH {
        let message = format!("the path has {length} bytes; a socket's path has at most {MAX_SOCKET_PATH}");
        let help = "choose a folder with a shorter name, such as /run/bellows";
        return Some(error(used, message, "too long").help(help));
    }
    match &target.metadata {
        Ok(found) if !found.file_type().is_socket() => {
            let message = format!("{} exists and is not a socket", quoted_path(path));
            Some(error(used, message, "").help("remove it, or give another path"))
        }
        _ => None,
    }
}

fn listen(used: &ResourceUse, target: &Target, listening: &Listening) -> Option<Diagnostic> {
    let path = quoted_path(&used.resource.path);
    if let Some(wrong) = socket(used, target) {
        return Some(wrong);
    }
    let folder = folder(&used.resource.path);
    let refused = |why: String| format!("cannot create {path}: {why}");
    match fs::metadata(folder) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let FileError { message, help } = FileError::of("create", &used.resource.path, &why, "");
            return Some(error(used, message, "").help(help));
        }
        Err(why) => return Some(error(used, refused(reason(&why)), "").help("give another path")),
        Ok(found) if !found.is_dir() => {
            let message = refused(format!("{} is not a folder", quoted_path(folder)));
            return Some(error(used, message, "").help("give another path"));
        }
        Ok(_) => {}
    }
    if let Err(why) = access::writable(folder) {
        let message = refused(format!("the folder {}: {}", quoted_path(folder), reason(&why)));
        return Some(error(used, message, "").help("change its permissions, or give another path"));
    }
    listening.has(&used.resource.path).then(|| {
        let message = format!("{}: another process is listening on {path}", quoted(&used.app));
        let help = "`run` refuses to start while it does: stop that process, or give another path";
        Diagnostic::warning(message).at(used.place, "in use").help(help)
    })
}

fn connect(used: &ResourceUse, target: &Target) -> Option<Diagnostic> {
    if let Some(wrong) = socket(used, target) {
        return Some(wrong);
    }
    let folder = folder(&used.resource.path);
    (!folder.is_dir()).then(|| {
        let message = format!("{}: there is no folder {}", quoted(&used.app), quoted_path(folder));
        let help = "the app waits until the folder and the socket exist; check the path";
        Diagnostic::warning(message).at(used.place, "").help(help)
    })
}

/// The paths of sockets on which other processes listen.
struct Listening(HashSet<Vec<u8>>);

impl Listening {
    fn has(&self, path: &Path) -> bool {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        [path, &absolute, &resolved].iter().any(|path| self.0.contains(path.as_os_str().as_bytes()))
    }
}

fn listening_sockets() -> Listening {
    // The kernel's table says who listens. Connecting would occupy a device that serves one connection at a time.
    const LISTENS: &str = "00010000";
    let own = own_sockets();
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let lines = table.split(|&byte| byte == b'\n').skip(1);
    // Num RefCount Protocol Flags Type St Inode Path
    let other = |line: &[u8]| {
        let path = line.windows(2).position(|pair| pair == b" /")?;
        let columns = String::from_utf8_lossy(&line[..path]).into_owned();
        let columns: Vec<&str> = columns.split_whitespace().collect();
        let [_, _, _, flags, _, _, inode] = columns[..] else { return None };
        (flags == LISTENS && !own.contains(inode)).then(|| line[path + 1..].to_vec())
    };
    Listening(lines.filter_map(other).collect())
}

/// The inodes of this process's sockets.
fn own_sockets() -> HashSet<String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let socket = |entry: fs::DirEntry| {
        let link = fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok()?;
        Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    entries.filter_map(socket).collect()
}

/// Finds resources that two apps cannot share, and apps that would overwrite the network's own files.
fn find_conflicts(used: &[ResourceUse], targets: &[Target], files: &[PathBuf], found: &mut Vec<Diagnostic>) {
    let files: HashMap<Identity, &PathBuf> =
        files.iter().filter_map(|file| Some((Target::of(file).identity?, file))).collect();
    let mut users: HashMap<&Identity, Vec<usize>> = HashMap::new();
    let mut rotating: HashMap<(u64, u64, OsString), usize> = HashMap::new();
    for (index, target) in targets.iter().enumerate() {
        let Some(identity) = &target.identity else { continue };
        if let (Access::Write { .. }, Some(file)) = (used[index].resource.access, files.get(identity)) {
            let message = format!("{} is the network file itself", quoted_path(file));
            found.push(error(&used[index], message, "would be overwritten").help("give another path"));
        }
        let before = users.entry(identity).or_default();
        // One report for each app is enough.
        let conflict = before.iter().find_map(|&other| Some((other, conflict(&used[other], &used[index], target)?)));
        if let Some((other, (message, first, help))) = conflict {
            found.push(error(&used[index], message, "").at(used[other].place, first).help(help));
        }
        // Only the first user with each kind of access can conflict with later users, unless each uses a part.
        let resource = &used[index].resource;
        if resource.share.is_some() || !before.iter().any(|&other| used[other].resource.access == resource.access) {
            before.push(index);
        }
        if let (Access::Write { numbered: true }, Some(name)) = (used[index].resource.access, &target.name) {
            rotating.entry(name.clone()).or_insert(index);
        }
    }
    for users in users.values() {
        found.extend(find_gap(users.iter().map(|&index| &used[index])));
    }
    for (index, target) in targets.iter().enumerate() {
        if !matches!(used[index].resource.access, Access::Read | Access::Write { .. }) {
            continue;
        }
        let Some((device, inode, name)) = &target.name else { continue };
        let Some(whole) = without_number(name) else { continue };
        if let Some(&other) = rotating.get(&(*device, *inode, whole))
            && other != index
        {
            let rotates = &used[other];
            let message = format!(
                "{} is a name that {} gives to its rotated files",
                quoted_path(&used[index].resource.path),
                quoted(&rotates.app)
            );
            let conflict = error(&used[index], message, "would be replaced").at(rotates.place, "rotates this file");
            found.push(conflict.help("give one of them another name or folder"));
        }
    }
}

/// A queue of a shared resource that no app uses, although the resource must be used as a whole.
fn find_gap<'a>(users: impl Iterator<Item = &'a ResourceUse>) -> Option<Diagnostic> {
    let shares = users.filter_map(|used| Some((used, used.resource.share.as_ref().filter(|share| share.whole)?)));
    let queues: BTreeMap<u16, &ResourceUse> =
        shares.flat_map(|(used, share)| share.queues.iter().map(move |queue| (*queue, used))).collect();
    let (missing, (_, used)) = (0..).zip(&queues).find(|(expected, (queue, _))| expected != *queue)?;
    let (last, _) = queues.last_key_value()?;
    let path = quoted_path(&used.resource.path);
    let message = format!("no app uses queue {missing} of {path}, but there is a queue {last}");
    Some(error(used, message, "").help("let the apps' lists contain each number from 0 once"))
}

/// The conflict when two apps use parts of the same resource.
fn share_conflict(
    (one, two): (&Share, &Share),
    both: &str,
    path: &str,
) -> Option<(String, &'static str, &'static str)> {
    if let Some(queue) = one.queues.intersection(&two.queues).next() {
        let message = format!("{both} use the same queue {queue} of {path}");
        return Some((message, "used here, too", "list each queue in one app alone"));
    }
    let keys: BTreeSet<&String> = one.keys.keys().chain(two.keys.keys()).collect();
    let key = keys.into_iter().find(|key| one.keys.get(*key) != two.keys.get(*key))?;
    let message = format!("{both} share {path}, but have different values of {}", quoted(key));
    Some((message, "shared here", "give both the same value, as the port has only one"))
}

/// The conflict when two apps use the same resource: the message, the label of the first use, and the advice.
fn conflict(
    first: &ResourceUse,
    second: &ResourceUse,
    target: &Target,
) -> Option<(String, &'static str, &'static str)> {
    const OTHER: &str = "give one of them another path";
    let path = quoted_path(&second.resource.path);
    let other = quoted(&first.app);
    let both = format!("{other} and {}", quoted(&second.app));
    let same = |what: &str| format!("{path} is {what} that {other} uses");
    let is_alike = match (first.resource.access, second.resource.access) {
        (Access::Interface(one), Access::Interface(two)) => one == two,
        (Access::Listen, Access::Listen) | (Access::Connect, Access::Connect) => true,
        _ => false,
    };
    if let (true, Some(one), Some(two)) = (is_alike, &first.resource.share, &second.resource.share) {
        return share_conflict((one, two), &both, &path);
    }
    match (first.resource.access, second.resource.access) {
        (Access::Addresses, _) | (_, Access::Addresses) => None,
        // Writing to a device such as `/dev/null` does not overwrite anything.
        (Access::Write { .. }, Access::Write { .. } | Access::Read) | (Access::Read, Access::Write { .. })
            if target.is_device() =>
        {
            None
        }
        (Access::Write { .. }, Access::Write { .. }) => {
            Some((format!("{both} write the same file, {path}"), "written here, too", OTHER))
        }
        (Access::Write { .. }, Access::Read) => {
            Some((format!("{path} is read while {other} writes it"), "written here", OTHER))
        }
        (Access::Read, Access::Write { .. }) => {
            Some((format!("{path} would be overwritten while {other} reads it"), "read here", OTHER))
        }
        (Access::Read, Access::Read) if target.is_stream() => {
            let message = format!("{both} read the same stream, {path}: each would get a part of it");
            Some((message, "read here, too", "let one of them read it, and copy its packets with `tee`"))
        }
        (Access::Read, Access::Read) | (Access::Listen, Access::Connect) | (Access::Connect, Access::Listen) => None,
        (Access::Listen, Access::Listen) => Some((same("the socket"), "created here, too", OTHER)),
        (Access::Connect, Access::Connect) => {
            let message = format!("{both} connect to the same socket, {path}, which serves one of them at a time");
            Some((message, "connected to here, too", OTHER))
        }
        (Access::Interface(one), Access::Interface(two)) if one == two => {
            let message = format!("{both} use the same interface, {path}");
            let help = "give one of them another interface, or each a list of other `queues`";
            Some((message, "used here, too", help))
        }
        (Access::Interface(_), _) | (_, Access::Interface(_)) => None,
        (Access::Listen | Access::Connect, _) | (_, Access::Listen | Access::Connect) => {
            Some((same("a file or socket"), "used here", OTHER))
        }
    }
}

/// `out.pcap` for `out.7.pcap`, `out` for `out.7`; `None` if there is no number.
fn without_number(name: &OsStr) -> Option<OsString> {
    let is_number = |part: &OsStr| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|&first| (b'1'..=b'9').contains(&first)) && bytes.iter().all(u8::is_ascii_digit)
    };
    let path = Path::new(name);
    let (stem, last) = (Path::new(path.file_stem()?), path.extension()?);
    if let (Some(inner), Some(number)) = (stem.file_stem(), stem.extension())
        && is_number(number)
    {
        let mut whole = inner.to_owned();
        whole.push(".");
        whole.push(last);
        return Some(whole);
    }
    is_number(last).then(|| stem.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use bellows_testkit::scratch;

    use super::*;

    #[test]
    fn the_name_of_a_rotated_file_is_recognized() {
        let whole = |name: &str| without_number(OsStr::new(name)).map(|name| name.into_string().unwrap());
        assert_eq!(whole("out.7.pcap"), Some("out.pcap".into()));
        assert_eq!(whole("out.12"), Some("out".into()));
        assert_eq!(whole("a.b.3.pcapng"), Some("a.b.pcapng".into()));
        for name in ["out.pcap", "out.07.pcap", "out.0.pcap", "out.x.pcap", "out", "7", "out.7a.pcap"] {
            assert_eq!(whole(name), None, "{name}");
        }
    }

    #[test]
    fn a_file_has_one_identity_whatever_the_path() {
        let folder = scratch();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        fs::write(path("old"), "").unwrap();
        std::os::unix::fs::symlink("old", path("link-to-old")).unwrap();
        std::os::unix::fs::symlink("../new", path("sub/link-to-new")).unwrap();
        fs::hard_link(path("old"), path("hard")).unwrap();
        let identity = |name: &str| Target::of(&path(name)).identity.unwrap();
        for same in ["link-to-old", "sub/../old", "./old", "hard"] {
            assert_eq!(identity(same), identity("old"), "{same}");
        }
        for same in ["sub/link-to-new", "sub/../new"] {
            assert_eq!(identity(same), identity("new"), "{same}");
        }
        assert_ne!(identity("new"), identity("old"));
        assert!(Target::of(&path("no/such/folder")).identity.is_none());
    }
}
