//! A Linux guest under QEMU with two processors, and with up to three network cards at vhost-user sockets or others. A test uses its shell over the serial console.
//!
//! `cards` puts each card into a network namespace of its own, so that the guest talks to itself through the network
//! between the sockets. Without it, both cards are in the first one and have no addresses.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::netns::Host;
use crate::programs;

/// Longer than any command in an emulated guest takes on a slow and busy machine, and what follows from it outside.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The modules in the order in which they are loaded: each may need earlier ones.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// The modules for VLAN devices, which are loaded when a test needs them, in this order.
const VLAN_MODULES: [&str; 5] =
    ["net/llc/llc.ko", "net/802/stp.ko", "net/802/garp.ko", "net/802/mrp.ko", "net/8021q/8021q.ko"];

/// The modules for tunnels, in this order.
const TUNNEL_MODULES: [&str; 15] = [
    "net/ipv4/udp_tunnel.ko",
    "net/ipv6/ip6_udp_tunnel.ko",
    "drivers/net/vxlan/vxlan.ko",
    "drivers/net/geneve.ko",
    "net/ipv4/gre.ko",
    "net/ipv4/ip_tunnel.ko",
    "net/ipv4/ip_gre.ko",
    "net/ipv6/tunnel6.ko",
    "net/ipv6/ip6_tunnel.ko",
    "net/ipv6/ip6_gre.ko",
    "net/l2tp/l2tp_core.ko",
    "net/l2tp/l2tp_netlink.ko",
    "net/l2tp/l2tp_eth.ko",
    "net/l2tp/l2tp_ip.ko",
    "net/l2tp/l2tp_ip6.ko",
];

/// The modules for IPsec, in this order: ESP, and the ciphers with what makes their IVs.
const IPSEC_MODULES: [&str; 16] = [
    "net/xfrm/xfrm_algo.ko",
    "net/xfrm/xfrm_user.ko",
    "net/ipv4/esp4.ko",
    "net/ipv6/esp6.ko",
    "crypto/sha512_generic.ko",
    "crypto/drbg.ko",
    "crypto/seqiv.ko",
    "crypto/ctr.ko",
    "crypto/gf128mul.ko",
    "crypto/ghash-generic.ko",
    "crypto/gcm.ko",
    "lib/crypto/libchacha.ko",
    "crypto/chacha_generic.ko",
    "lib/crypto/libpoly1305.ko",
    "crypto/poly1305_generic.ko",
    "crypto/chacha20poly1305.ko",
];

/// The init process of the guest: it sets up the system and then executes commands from the serial line.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin
# Some shells of busybox take their own commands first, and not that of a test.
ip() { /bin/ip "$@"; }
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir /dev/shm
mount -t tmpfs tmpfs /dev/shm
stty -F /dev/ttyS0 -echo
ip link set lo up
echo 16777216 >/proc/sys/net/core/rmem_default
unshare -n sleep 1000000 &
FAR=$!
far() { nsenter -t $FAR -n "$@"; }
far ip link set lo up

# The names of the cards' interfaces, while they are in this namespace.
near_card() { ls /sys/bus/pci/devices/0000:00:10.0/virtio*/net; }
far_card() { ls /sys/bus/pci/devices/0000:00:11.0/virtio*/net; }
third_card() { ls /sys/bus/pci/devices/0000:00:12.0/virtio*/net; }

insert() {
    module=$1
    shift
    insmod /modules/$module.ko "$@"
}

# Gives the cards their addresses; the second one goes into the far namespace.
cards() {
    near=$(near_card) && ip addr add 10.0.0.1/24 dev $near && ip link set $near up || return
    name=$(far_card) && ip link set $name netns $FAR || return
    far ip addr add 10.0.0.2/24 dev $name && far ip link set $name up
}

# Someone who listens must not be told that there is nothing to send: it would end the connection.
mkfifo /tmp/silence
exec 9<>/tmp/silence

# A file of so many MiB of random bytes goes to the far namespace and back, and the same must return. Both addresses may
# be given: that of this namespace, and that of the far one.
exchange() {
    here=${2:-10.0.0.1} there=${3:-10.0.0.2}
    dd if=/dev/urandom of=/tmp/sent bs=1M count=$1 2>/dev/null
    far nc -l -p 5000 <&9 >/tmp/there &
    listener=$!
    until far netstat -ltn | grep -q :5000; do usleep 50000; done
    nc $there 5000 </tmp/sent
    wait $listener
    nc -l -p 5001 <&9 >/tmp/back &
    listener=$!
    until netstat -ltn | grep -q :5001; do usleep 50000; done
    far nc $here 5001 </tmp/there
    wait $listener
    cmp /tmp/sent /tmp/there && cmp /tmp/sent /tmp/back
}

echo @@ready
while read -r line; do
    eval "$line" </dev/null 2>&1
    echo "@@$?"
done
poweroff -f
"#;

/// The missing prerequisite, if any.
pub fn missing() -> Option<String> {
    if let Err(why) = kernel() {
        return Some(why);
    }
    programs::missing(&["qemu-system-x86_64", "iperf3", "busybox", "ldd"])
}

/// The folder in which `cargo xtask test` unpacks a kernel package.
pub fn kernel() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| format!("no path of this program: {error}"))?;
    let folders = test.ancestors().map(|folder| folder.join("peers/kernel"));
    folders.into_iter().find(|folder| folder.join("boot").is_dir()).ok_or_else(|| {
        format!("no folder peers/kernel with a kernel above {}; `cargo xtask test` fetches one", test.display())
    })
}

/// The only entry of a folder whose name starts with `prefix`.
fn entry(folder: &Path, prefix: &str) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
    entries.find(is_it).unwrap_or_else(|| panic!("no {prefix}* in {}", folder.display()))
}

/// A file system for the guest: an archive in `cpio`'s newc format.
struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    fn new() -> Archive {
        Archive { bytes: Vec::new(), names: BTreeSet::new() }
    }

    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let mut header = String::from("070701");
        let number = self.names.len() as u32;
        let length = content.len() as u32;
        let name_length = name.len() as u32 + 1;
        for field in [number, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name_length, 0] {
            let _ = write!(header, "{field:08x}");
        }
        self.bytes.extend(header.bytes().chain(name.bytes()).chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The parent folders of a file, and the file itself.
    fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        for (place, _) in name.match_indices('/') {
            self.folder(&name[..place]);
        }
        self.add(name, 0o100_000 | mode, (0, 0), content);
    }

    fn folder(&mut self, name: &str) {
        self.add(name, 0o040_755, (0, 0), &[]);
    }

    /// A program, and its libraries at their own paths.
    fn program(&mut self, program: &Path) {
        let listed = Command::new("ldd").arg(program).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            self.file(library.trim_start_matches('/'), 0o755, &read(Path::new(library)));
        }
        let name = program.file_name().unwrap().to_string_lossy();
        self.file(&format!("bin/{name}"), 0o755, &read(program));
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

fn initial_files(kernel: &Path, setup: &Setup<'_>) -> Vec<u8> {
    let mut files = Archive::new();
    for folder in ["bin", "dev", "proc", "sys", "tmp", "modules"] {
        files.folder(folder);
    }
    // The kernel opens it for the first process before there are any other devices.
    files.add("dev/console", 0o020_600, (5, 1), &[]);
    files.file("init", 0o755, INIT.as_bytes());
    for program in ["busybox", "iperf3"] {
        files.program(&programs::find_program(program).unwrap());
    }
    setup.programs.iter().for_each(|program| files.program(program));
    for (name, content) in &setup.files {
        files.file(name, 0o644, content.as_bytes());
    }
    let modules = entry(&kernel.join("lib/modules"), "").join("kernel");
    for module in MODULES.iter().chain(&VLAN_MODULES).chain(&TUNNEL_MODULES).chain(&IPSEC_MODULES) {
        // A module that is not in this kernel's folder is built in.
        if let Ok(content) = fs::read(modules.join(module)) {
            files.file(&format!("modules/{}", module.rsplit('/').next().unwrap()), 0o644, &content);
        }
    }
    files.finish()
}

/// A network card of the guest, at a vhost-user socket.
pub struct Card<'a> {
    /// The socket of the device.
    pub socket: &'a Path,
    /// Whether QEMU listens at the socket.
    pub server: bool,
    /// Pairs of rings.
    pub queues: usize,
    /// More properties of the device, in QEMU's syntax: `,packed=on`.
    pub properties: &'a str,
}

impl Card<'_> {
    /// QEMU's arguments for what is behind the card.
    fn backend(&self, number: usize) -> Vec<String> {
        let how = if self.server { "server=on" } else { "reconnect=1" };
        let socket = format!("socket,id=char{number},path={},{how}", self.socket.display());
        let netdev = format!("vhost-user,id=net{number},chardev=char{number},queues={}", self.queues);
        ["-chardev".to_owned(), socket, "-netdev".to_owned(), netdev].into()
    }
}

/// What a guest is made of.
pub struct Setup<'a> {
    folder: &'a Path,
    /// QEMU's arguments for what is behind each card, and the properties of the card.
    cards: Vec<(Vec<String>, &'a str)>,
    nodes: usize,
    programs: Vec<PathBuf>,
    files: Vec<(&'a str, String)>,
    host: Option<&'a Host>,
}

impl<'a> Setup<'a> {
    /// A guest that keeps its files in `folder`. `backends` are QEMU's arguments for what is behind the cards: the
    /// network backends `net0` and `net1`. `properties` are those of the cards, each after a comma.
    pub fn new(folder: &'a Path, backends: [Vec<String>; 2], properties: [&'a str; 2]) -> Setup<'a> {
        Setup { cards: backends.into_iter().zip(properties).collect(), ..Setup::without_cards(folder) }
    }

    /// A guest with cards at vhost-user sockets.
    pub fn with_cards(folder: &'a Path, cards: [Card<'a>; 2]) -> Setup<'a> {
        let backends = [cards[0].backend(0), cards[1].backend(1)];
        Setup::new(folder, backends, cards.map(|card| card.properties))
    }

    /// A guest with one card at a vhost-user socket.
    pub fn with_card(folder: &'a Path, card: Card<'a>) -> Setup<'a> {
        Setup::without_cards(folder).card(card)
    }

    /// A guest without cards.
    pub fn without_cards(folder: &'a Path) -> Setup<'a> {
        Setup { folder, cards: Vec::new(), nodes: 1, programs: Vec::new(), files: Vec::new(), host: None }
    }

    /// Adds a card, which no namespace has.
    pub fn card(mut self, card: Card<'a>) -> Setup<'a> {
        self.cards.push((card.backend(self.cards.len()), card.properties));
        self
    }

    /// Gives the guest this number of memory nodes, instead of one. The first two have a processor each, the others have
    /// only memory.
    pub fn nodes(mut self, nodes: usize) -> Setup<'a> {
        self.nodes = nodes;
        self
    }

    /// Adds a program in `/bin`, and its libraries.
    pub fn program(mut self, path: &Path) -> Setup<'a> {
        self.programs.push(path.to_owned());
        self
    }

    /// Adds a file in the root folder.
    pub fn file(mut self, name: &'a str, content: String) -> Setup<'a> {
        self.files.push((name, content));
        self
    }

    /// QEMU runs in the network namespace of this host.
    pub fn on(mut self, host: &'a Host) -> Setup<'a> {
        self.host = Some(host);
        self
    }

    /// Boots the guest.
    pub fn boot(self) -> Guest {
        let mut guest = Guest::start(&self);
        guest.until_mark("ready");
        guest.load(&MODULES);
        guest
    }
}

/// A running guest. It is killed when it is dropped.
pub struct Guest {
    qemu: Child,
    shell: ChildStdin,
    lines: Receiver<String>,
    /// Its output, shown when something fails.
    said: String,
}

impl Guest {
    /// Boots a guest that keeps its files in `folder`, with cards at vhost-user sockets.
    pub fn boot(folder: &Path, cards: [Card<'_>; 2]) -> Guest {
        Setup::with_cards(folder, cards).boot()
    }

    /// Loads what it takes to have VLAN devices.
    pub fn load_vlans(&mut self) {
        self.load(&VLAN_MODULES);
    }

    /// Loads what it takes to have tunnels: L2TP, GRE, VXLAN and Geneve.
    pub fn load_tunnels(&mut self) {
        self.load(&TUNNEL_MODULES);
    }

    /// Loads what it takes to have ESP.
    pub fn load_ipsec(&mut self) {
        self.load(&IPSEC_MODULES);
    }

    /// Loads modules. One that is not there is built in.
    fn load(&mut self, modules: &[&str]) {
        for module in modules {
            let name = module.rsplit('/').next().unwrap().trim_end_matches(".ko");
            self.run(&format!("test ! -e /modules/{name}.ko || insert {name}"));
        }
    }

    fn start(setup: &Setup<'_>) -> Guest {
        let kernel = kernel().unwrap();
        let content = initial_files(&kernel, setup);
        // The files are unpacked into at most half of it. Each node has as much, because all may be unpacked on one.
        let memory = 256 + 3 * (content.len() >> 20);
        let all = (setup.nodes * memory).to_string();
        let files = setup.folder.join("initramfs");
        fs::write(&files, content).unwrap();
        let qemu = programs::find_program("qemu-system-x86_64").unwrap();
        let mut qemu = match setup.host {
            Some(host) => {
                let mut command = host.command();
                command.arg(qemu);
                command
            }
            None => Command::new(qemu),
        };
        // Message-signalled interrupts make this QEMU crash when it emulates the processor and has vhost-user devices.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", "2,sockets=2", "-m", &all]);
        qemu.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        for node in 0..setup.nodes {
            let object = format!("memory-backend-memfd,id=memory{node},size={memory}M,share=on");
            qemu.args(["-object", &object, "-numa", &format!("node,nodeid={node},memdev=memory{node}")]);
        }
        for cpu in 0..2 {
            qemu.args(["-numa", &format!("cpu,node-id={},socket-id={cpu}", cpu.min(setup.nodes - 1))]);
        }
        qemu.arg("-kernel").arg(entry(&kernel.join("boot"), "vmlinuz")).arg("-initrd").arg(&files);
        qemu.args(["-append", "console=ttyS0 loglevel=3 panic=-1 tsc=unstable no_timer_check random.trust_cpu=on"]);
        for (number, (backend, properties)) in setup.cards.iter().enumerate() {
            qemu.args(backend).arg("-device").arg(format!(
                "virtio-net-pci,netdev=net{number},vectors=0,addr=0x1{number},mac=52:54:00:00:00:0{number}{properties}"
            ));
        }
        let mut qemu = qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let console = qemu.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in read_lines(console) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let shell = qemu.stdin.take().unwrap();
        Guest { qemu, shell, lines, said: String::new() }
    }

    /// Runs a line of shell in the guest and returns its output. The test fails if the line does.
    pub fn run(&mut self, line: &str) -> String {
        let (status, said) = self.try_run(line);
        assert_eq!(status, "0", "in the guest, `{line}` ended with {status}:\n{said}");
        said
    }

    /// Runs a line of shell in the guest, and returns its exit status and output.
    pub fn try_run(&mut self, line: &str) -> (String, String) {
        assert!(!line.contains('\n'));
        writeln!(self.shell, "{line}").unwrap_or_else(|error| panic!("{error}; the guest has said:\n{}", self.said));
        self.said.push_str(&format!("$ {line}\n"));
        self.until_mark("")
    }

    /// Repeats a line until it succeeds.
    pub fn eventually(&mut self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.try_run(line).0 != "0" {
            assert!(Instant::now() < deadline, "in the guest, `{line}` never succeeds:\n{}", self.said);
        }
    }

    /// Reads until the init process of the guest reports the end of a command.
    fn until_mark(&mut self, mark: &str) -> (String, String) {
        let deadline = Instant::now() + PATIENCE;
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.said.push_str(&format!("{line}\n"));
                    if let Some((before, status)) = line.split_once("@@").filter(|(_, rest)| rest.starts_with(mark)) {
                        printed.push_str(before);
                        return (status.to_owned(), printed);
                    }
                    printed.push_str(&format!("{line}\n"));
                }
                Err(RecvTimeoutError::Timeout) => panic!("the guest hangs; it has said:\n{}", self.said),
                Err(RecvTimeoutError::Disconnected) => panic!("the guest is gone; it has said:\n{}", self.said),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Lines of a serial console, which end with a carriage return and a line feed, and need not be UTF-8.
fn read_lines(console: impl Read) -> impl Iterator<Item = String> {
    let mut console = BufReader::new(console);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let length = console.read_until(b'\n', &mut line).ok().filter(|length| *length > 0)?;
        Some(String::from_utf8_lossy(&line[..length]).trim_end().to_owned())
    })
}
