//! Ordinary users: what is missing is named, and file capabilities are enough. After the start, only those that
//! re-opening takes are left.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use bellows_netdev::packet_socket::has_usual_buffers;
use bellows_testkit::eventually;
use bellows_testkit::netns::traffic;
use bellows_testkit::programs::{self, run};
use bellows_testkit::skips::{is_skipped, skip_here};
use bellows_testkit::wait::eventually_without_faults;

use crate::bridge::{Bridge, Layout, NETWORK, Offloads, Port, SERVER, app, is_missing};
use crate::support::vhost::Network;
use crate::support::{Running, Sandbox, Signal};

/// An ordinary user: nobody.
const USER: u32 = 65_534;

/// The limit of locked memory that most systems give to ordinary users, in bytes.
const LOCKED_MEMORY: u64 = 8 << 20;

/// Name and number of a capability, as in `linux/capability.h`.
type Capability = (&'static str, u32);

const NET_ADMIN: Capability = ("CAP_NET_ADMIN", 12);
const NET_RAW: Capability = ("CAP_NET_RAW", 13);
const BPF: Capability = ("CAP_BPF", 39);
/// Kept, if there is a limit of locked memory, to lock the packet pool again.
const IPC_LOCK: Capability = ("CAP_IPC_LOCK", 14);

/// Ports, and the capabilities that they need.
const AF_XDP: (Port, &[Capability]) = (Port::new("af-xdp", ""), &[NET_RAW, NET_ADMIN, BPF]);
const RAW_SOCKET: (Port, &[Capability]) = (Port::new("raw-socket", ""), &[NET_RAW]);

/// A bridge, and a folder of an ordinary user with a copy of the program, which this user runs.
struct Unprivileged {
    bridge: Bridge,
    sandbox: Sandbox,
}

impl Unprivileged {
    /// None if the test is skipped.
    fn new(test: &str, port: Port) -> Option<Unprivileged> {
        Unprivileged::with_tun(test, port, "666")
    }

    /// With a file `/dev/net/tun` of this mode: systems have different ones.
    fn with_tun(test: &str, port: Port, mode: &str) -> Option<Unprivileged> {
        if is_missing(test, &["setpriv", "prlimit"]) {
            return None;
        }
        let bridge = Bridge::new(Layout::of(port, Offloads::Nothing, 1_500));
        let (user, memory) = (USER.to_string(), format!("--memlock={LOCKED_MEMORY}"));
        // In the mount namespace of `ip netns exec`.
        let device = format!("mount -t tmpfs none /dev/net && mknod -m {mode} /dev/net/tun c 10 200 && exec \"$@\"");
        let launcher =
            ["ip", "netns", "exec", bridge.middle.namespace(), "sh", "-c", &device, "sh", "prlimit", &memory];
        let launcher = [&launcher[..], &["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]].concat();
        let sandbox = Sandbox::of("./bellows".into()).launched_by(&launcher);
        programs::install(env!("CARGO_BIN_EXE_bellows"), sandbox.path("bellows"));
        fs::copy(bridge.sandbox.path(NETWORK), sandbox.path(NETWORK)).unwrap();
        for folder in ["", "run"] {
            fs::set_permissions(sandbox.path(folder), Permissions::from_mode(0o755)).unwrap();
            chown(sandbox.path(folder), Some(USER), Some(USER)).unwrap();
        }
        // The folder may be inside one that others cannot enter.
        if !sandbox.command(&["--version"]).output().unwrap().status.success() {
            skip_here(test, "the user nobody cannot run programs in the folder for temporary files");
            return None;
        }
        Some(Unprivileged { bridge, sandbox })
    }
}

/// The capabilities that the threads of a process have beside these, one set in a line.
fn excess(running: &Running<'_>, needed: &[Capability]) -> String {
    let allowed: u64 = needed.iter().map(|(_, number)| 1 << number).sum();
    let mut excess = String::new();
    for task in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap() {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let name = status.lines().find_map(|line| line.strip_prefix("Name:\t")).unwrap_or_default();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let bits = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
            let bits = bits.map_or(0, |bits| u64::from_str_radix(bits, 16).unwrap()) & !allowed;
            if bits != 0 {
                let _ = writeln!(excess, "{name}: {set} {bits:#x}");
            }
        }
    }
    excess
}

/// Whether the process has these.
fn has(running: &Running<'_>, needed: &[Capability]) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
    let permitted = u64::from_str_radix(permitted, 16).unwrap();
    needed.iter().all(|(_, number)| permitted & 1 << number != 0)
}

/// Without capabilities the network does not start, and the error says what would help.
fn check_refusal(test: &str, port: Port, needed: &[Capability]) {
    let Some(unprivileged) = Unprivileged::new(test, port) else { return };
    let said = unprivileged.sandbox.bellows(&["run", NETWORK]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    let program = unprivileged.sandbox.path("bellows");
    for part in needed.iter().map(|(name, _)| *name).chain(["setcap", &program.display().to_string()]) {
        assert!(said.stderr.contains(part), "{part} is not in {}", said.stderr);
    }
    unprivileged.bridge.assert_restored("after the refusal");
}

/// With file capabilities an ordinary user runs the network, and only the needed ones remain.
fn check_file_capabilities(test: &str, port: Port, needed: &[Capability]) {
    if is_skipped(test, programs::missing(&["setcap"])) {
        return;
    }
    let Some(Unprivileged { bridge, sandbox }) = Unprivileged::new(test, port) else { return };
    let names: Vec<String> = needed.iter().map(|(name, _)| name.to_lowercase()).collect();
    let mut setcap = Command::new("setcap");
    let granted = run(setcap.arg(format!("{}+ep", names.join(","))).arg(sandbox.path("bellows")));
    if let Err(why) = granted {
        return skip_here(test, why);
    }
    let running = sandbox.start(&[NETWORK, "--json"]);
    bridge.wait_until_connected();
    traffic::ping(bridge.client(), SERVER, 1_500);
    eventually_without_faults("capabilities that are not needed", || excess(&running, needed));
    // What is left is enough to open the interface again.
    let side = &bridge.sides[0];
    side.disconnect();
    side.connect();
    bridge.wait_until_connected();
    running.signal(Signal::INT);
    running.wait().success();
    bridge.assert_restored("after the end");
}

#[test]
fn missing_capabilities_of_af_xdp_are_named() {
    check_refusal("missing_capabilities_of_af_xdp_are_named", AF_XDP.0, AF_XDP.1);
}

#[test]
fn missing_capabilities_of_raw_sockets_are_named() {
    check_refusal("missing_capabilities_of_raw_sockets_are_named", RAW_SOCKET.0, RAW_SOCKET.1);
}

#[test]
fn missing_capabilities_of_a_tap_are_named() {
    let test = "missing_capabilities_of_a_tap_are_named";
    let Some(unprivileged) = Unprivileged::new(test, RAW_SOCKET.0) else { return };
    unprivileged.sandbox.write("tap.toml", &tap(""));
    let said = unprivileged.sandbox.bellows(&["run", "tap.toml"]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("CAP_NET_ADMIN") && said.stderr.contains("setcap"), "{}", said.stderr);
}

#[test]
fn af_xdp_runs_with_file_capabilities() {
    check_file_capabilities("af_xdp_runs_with_file_capabilities", AF_XDP.0, AF_XDP.1);
}

#[test]
fn raw_sockets_run_with_file_capabilities() {
    check_file_capabilities("raw_sockets_run_with_file_capabilities", RAW_SOCKET.0, RAW_SOCKET.1);
}

/// A network that ends what a tap receives.
fn tap(keys: &str) -> String {
    let network = Network::default().app("tap", "tap", &format!("interface = \"own\"\n{keys}")).app("end", "sink", "");
    network.link("tap.output -> end.input").text()
}

#[test]
fn a_tap_of_an_ordinary_user_needs_no_capability() {
    let test = "a_tap_of_an_ordinary_user_needs_no_capability";
    let Some(unprivileged) = Unprivileged::new(test, RAW_SOCKET.0) else { return };
    let middle = &unprivileged.bridge.middle;
    middle.run(&format!("ip tuntap add dev own mode tap user {USER}"));
    middle.sh("ip address add 198.51.100.1/24 dev own && ip link set own up");
    unprivileged.sandbox.write("tap.toml", &tap("up = false\n"));
    let running = unprivileged.sandbox.start(&["tap.toml"]);
    assert_eq!(excess(&running, &[]), "");
    let _query = middle.start("ping -n -q -i 0.1 198.51.100.2");
    eventually("packets from the tap", || app(&running.counters(), "end")["in_packets"].as_u64().unwrap() > 2);
}

#[test]
fn a_device_file_that_is_not_open_to_a_user_is_named() {
    let test = "a_device_file_that_is_not_open_to_a_user_is_named";
    let Some(unprivileged) = Unprivileged::with_tun(test, RAW_SOCKET.0, "600") else { return };
    unprivileged.sandbox.write("tap.toml", &tap(""));
    let said = unprivileged.sandbox.bellows(&["run", "tap.toml"]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("chmod a+rw /dev/net/tun") && !said.stderr.contains("CAP_NET"), "{}", said.stderr);
}

#[test]
fn root_keeps_only_the_needed_capabilities() {
    let test = "root_keeps_only_the_needed_capabilities";
    let for_buffers = if has_usual_buffers() { &[][..] } else { &[NET_ADMIN] };
    let raw_socket = [RAW_SOCKET.1, for_buffers].concat();
    for (port, needed, further) in [(AF_XDP.0, AF_XDP.1, &[IPC_LOCK][..]), (RAW_SOCKET.0, &raw_socket, &[])] {
        if is_missing(test, &[]) {
            return;
        }
        let bridge = Bridge::new(Layout::of(port, Offloads::Nothing, 1_500));
        let running = bridge.start();
        let allowed = [needed, further].concat();
        eventually_without_faults("capabilities that are not needed", || excess(&running, &allowed));
        assert!(has(&running, needed), "{}: what opening it again takes", port.app);
        bridge.stop(running);
    }
}
