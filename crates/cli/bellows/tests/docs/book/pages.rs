//! What each page needs to run, and what is special about some of its commands. Those that are not named here are run as
//! they are, and end with the code 0.
//!
//! Keep this short: an example that stands for itself needs no line here.

use bellows_testkit::page::Command;

/// A page of the book.
pub struct Page {
    /// Its name: that of the file in `docs/`, without the extension.
    pub name: &'static str,
    pub place: Place,
    /// Programs without which the page is skipped.
    pub programs: &'static [&'static str],
    /// Files that must be there, with their contents. The page's own blocks of TOML are `block-1.toml` and so on.
    pub files: &'static [(&'static str, &'static str)],
    /// A script that makes what else there must be. `$ROOT` is the workspace's folder.
    pub set_up: &'static str,
    /// Networks that run from the beginning: names and files.
    pub networks: &'static [(&'static str, &'static str)],
    pub specials: &'static [Special],
}

/// Where the commands of a page run.
#[derive(PartialEq, Eq)]
pub enum Place {
    /// In a folder like a checkout.
    Folder,
    /// The same as root in namespaces, with a network and copies of the system's folders.
    Namespaces,
}

/// What is special about a command.
#[derive(PartialEq, Eq)]
pub struct Special {
    /// How it begins; of several, the longest one counts.
    pub command: &'static str,
    pub how: How,
    /// A network that runs meanwhile: its name and file.
    pub network: Option<(&'static str, &'static str)>,
    /// What is before it in the same shell, up to a new line or a semicolon.
    pub before: &'static str,
    /// Lines after it.
    pub after: &'static str,
}

/// How a command is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It ends with this code.
    Ends(i32),
    /// It ends with the code 0 and prints this.
    Says(&'static str),
    /// With further options, for a shorter time.
    With(&'static str),
    /// With further options, if there is a release build, without which it would make one.
    WithRelease(&'static str),
    /// It is a benchmark, and is run briefly: see `shortened`.
    Benchmark,
    /// It goes on until the end of the page, or until another command runs the same network file. It is at work as soon as
    /// this condition holds, a line of shell that may read the file `$LOG` of its output.
    Serves(&'static str),
    /// In a guest, by `neighbours.rs`: the machine's kernel may be without what it needs.
    InGuest,
    /// With the image for containers, by a test of its own, with further options; it prints this.
    InContainer { more: &'static str, says: &'static str },
    /// By another test.
    Elsewhere {
        /// Why not here.
        reason: &'static str,
        file: &'static str,
        test: &'static str,
    },
}

/// A network runs and takes requests.
pub const RUNS: &str =
    r#"test -S "$BELLOWS_RUNTIME_DIR/$(sed -n 's/.*running `.*` as `\([^`]*\)`.*/\1/p' "$LOG" | head -n 1)/control""#;

const PLAIN: Page =
    Page { name: "", place: Place::Folder, programs: &[], files: &[], set_up: "", networks: &[], specials: &[] };

impl Page {
    /// What is special about one of its commands.
    pub fn special(&self, command: &Command) -> Option<&Special> {
        let matching = self.specials.iter().filter(|special| command.text.starts_with(special.command));
        matching.max_by_key(|special| special.command.len())
    }
}

impl Special {
    pub const fn new(command: &'static str, how: How) -> Special {
        Special { command, how, network: None, before: "", after: "" }
    }

    /// Another test runs it.
    const fn elsewhere(command: &'static str, reason: &'static str, file: &'static str, test: &'static str) -> Special {
        Special::new(command, How::Elsewhere { reason, file, test })
    }

    const fn beside(mut self, name: &'static str, file: &'static str) -> Special {
        self.network = Some((name, file));
        self
    }

    const fn before(mut self, lines: &'static str) -> Special {
        self.before = lines;
        self
    }

    const fn after(mut self, lines: &'static str) -> Special {
        self.after = lines;
        self
    }
}

pub static CAMPAIGNS: Page = Page {
    name: "campaigns",
    files: &[
        (
            "sizes.toml",
            r#"name = "sizes"
repeats = 8
command = { shell = "echo rate={size}.$(({block} % 3))" }
[factors]
size = ["60", "64"]
[score]
pattern = 'rate=(?<rate>[0-9.]+)'
unit = "Mpps"
"#,
        ),
        (
            "table.csv",
            "version,size,score\nold,60,10.1\nold,60,10.3\nold,60,10.2\nold,64,9.9\nold,64,9.7\nold,64,9.8\n\
             new,60,11.1\nnew,60,11.4\nnew,60,11.2\nnew,64,10.9\nnew,64,10.7\nnew,64,10.8\n",
        ),
    ],
    set_up: r#"
mkdir -p crates/measure/campaign
cp -r "$ROOT/crates/measure/campaign/examples" crates/measure/campaign/
cp -r "$ROOT/bench" .
# Of the campaign that compares builds the first block of two benchmarks, and a build that takes no time.
sed -i '/^repeats = /s/[0-9]*$/1/
/label = /{/"engine, idle"/!{/"blit"/!d}}
/^command = .*cargo build/s|=.*|= { shell = "cd {source} \&\& mkdir -p {build}/release \&\& cp program {build}/release/bellows" }|
' bench/campaigns/release.toml
cp -L target/release/bellows program
cp program bellows-old
git init --quiet .
git add bench program
git -c user.name=test -c user.email=test@example.org commit --quiet --message=test
git tag v1
bellows campaign run sizes.toml
"#,
    specials: &[
        Special::elsewhere(
            "bellows campaign run sizes.toml --queue",
            "needs a server on another machine",
            "crates/cli/bellows/tests/cli/campaigns.rs",
            "workers_make_the_runs_of_a_queue",
        ),
        Special::elsewhere(
            "bellows campaign worker sizes.toml --queue",
            "needs a server on another machine",
            "crates/cli/bellows/tests/cli/campaigns.rs",
            "workers_make_the_runs_of_a_queue",
        ),
        Special::elsewhere(
            "bellows campaign worker sizes --sha256",
            "needs a server on another machine",
            "crates/measure/queue/tests/queue/access.rs",
            "a_queue_is_that_of_one_campaign_and_one_file",
        ),
        Special::new("PATH=$PWD/target/release:$PATH bellows campaign run bench/", How::With("--repeats 1")),
        Special::new("bellows campaign compare --bench", How::With("--repeats 1")),
    ],
    ..PLAIN
};

pub static FILTERING: Page = Page {
    name: "filtering",
    specials: &[
        Special::new("bellows filter 'tcp port 80 or 443' -r", How::Says("1,552 of 2,972 packets match")),
        Special::new("bellows filter 'tcp prot 80'", How::Ends(2)),
        Special::new("bellows filter 'vlan 5 or vlan 6'", How::Says("looks behind one more header")),
    ],
    ..PLAIN
};

pub static INSTALLING: Page = Page {
    name: "installing",
    programs: &["cargo"],
    specials: &[
        // The folder of the build is that of the workspace, which has this release.
        Special::new("cargo install", How::WithRelease("--offline"))
            .before("export CARGO_INSTALL_ROOT=$PWD/installed\ncd \"$ROOT\"\n")
            .after("installed/bin/bellows --version"),
        Special::elsewhere("cargo xtask package", "a step of `cargo xtask test`", "xtask/src/package.rs", "step"),
        Special::elsewhere("sudo apt", "changes the machine", "xtask/src/package.rs", "check"),
        Special::new("docker build", How::InContainer { more: "", says: "COMMIT bellows" }),
        Special::new("docker run", How::InContainer { more: "", says: "quickstart: all done" }),
    ],
    ..PLAIN
};

pub static INTERFACES: Page = Page {
    name: "interfaces",
    place: Place::Namespaces,
    programs: &["ping", "setcap", "nft"],
    set_up: "
cp block-1.toml bridge.toml
echo 'netops:x:60001:' >>/etc/group
echo 'alice:x:60001:60001::/nonexistent:/bin/sh' >>/etc/passwd
ip link add eth0 type veth peer name far
",
    specials: &[
        Special::new("ip netns exec middle bellows run", How::Serves(RUNS)),
        Special::new("ip netns exec one ping", How::Serves("grep -q 'bytes from 192.0.2.2' \"$LOG\"")),
        // What comes behind it on the page has packets again.
        Special::new("nft add chain", How::Ends(0)).after("nft delete table netdev quiet"),
        Special::elsewhere(
            "qemu-system-x86_64",
            "needs the disk of a machine",
            "crates/cli/bellows/tests/guests/unix_socket.rs",
            "a_guest_talks_over_streams_and_datagrams",
        ),
        Special::new("podman run", How::InContainer { more: " --duration 0.5s", says: "running `bridge.toml`" })
            .before("sed '1,/^```toml/d;/^```$/,$d' \"$ROOT/docs/interfaces.md\" >bridge.toml\n"),
    ],
    ..PLAIN
};

pub static IPSEC: Page = Page {
    name: "ipsec",
    files: &[(
        "ends.toml",
        r#"
[apps.uplink]
app = "vhost-user"
socket = "uplink.sock"
[apps.lan]
app = "vhost-user"
socket = "lan.sock"
"#,
    )],
    set_up: "
umask 077
for name in site-out site-in new-in new-out; do
    head -c 20 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' >$name.key
done
cat block-1.toml ends.toml >site.toml
",
    networks: &[("site", "site.toml")],
    specials: &[
        Special::new("key1=", How::InGuest).before("cd /tmp; "),
        Special::new("ip xfrm", How::InGuest),
        Special::new("ip route add", How::InGuest),
    ],
    ..PLAIN
};

pub static IPV6_LINKS: Page = Page {
    name: "ipv6-links",
    place: Place::Namespaces,
    files: &[(
        "start.toml",
        r#"
links = ["lan.output -> router.lan", "router.lan -> lan.input"]
[apps.lan]
app = "raw-socket"
interface = "far"
[apps.router]
app = "router"
"#,
    )],
    set_up: "
cat start.toml block-1.toml >lan.toml
ip link add eth0 type veth peer name far
ip link set eth0 up
ip link set far up
",
    networks: &[("lan", "lan.toml")],
    specials: &[
        Special::new("ip -6 address show", How::Says("inet6 2001:db8:2:"))
            .before("until ip -6 route show default | grep -q via; do sleep 0.1; done\n"),
        Special::new("ip -6 route show default", How::Says("via fe80::ff:fe00:2")),
    ],
    ..PLAIN
};

pub static L2VPN: Page = Page {
    name: "l2vpn",
    specials: &[Special::new("ip l2tp", How::InGuest), Special::new("ip link", How::InGuest)],
    ..PLAIN
};

pub static METRICS: Page = Page {
    name: "metrics",
    place: Place::Namespaces,
    set_up: "mkdir -p /var/lib/prometheus/node-exporter",
    specials: &[
        Special::new("bellows metrics --listen", How::Serves("grep -q 'metrics at' \"$LOG\"")),
        Special::new(
            "bellows metrics --file",
            How::Serves("grep -q bellows_ /var/lib/prometheus/node-exporter/bellows.prom"),
        ),
        Special::new("bellows bench scrape", How::Benchmark),
    ],
    ..PLAIN
};

pub static OPERATING: Page = Page {
    name: "operating",
    place: Place::Namespaces,
    programs: &["systemd-sysusers", "systemd-tmpfiles"],
    set_up: "
cp -r \"$ROOT/packaging\" .
mkdir -p /etc/bellows /etc/systemd/system
cat >/etc/bellows/edge.toml <<'END'
links = [\"source -> guest\", \"guest -> end\"]
[apps.source]
app = \"source\"
rate = \"1kpps\"
[apps.guest]
app = \"vhost-user\"
socket = \"/run/guest.sock\"
[apps.end]
app = \"sink\"
END
",
    networks: &[("edge", "/etc/bellows/edge.toml")],
    specials: &[
        Special::new("bellows reload edge --undo", How::Ends(0)).before("bellows reload edge --confirm 60s\n"),
        Special::elsewhere(
            "systemctl",
            "needs systemd as the first process",
            "crates/cli/bellows/tests/networks/service/booted.rs",
            "systemd_runs_reloads_watches_and_stops_a_network",
        ),
        Special::elsewhere(
            "journalctl",
            "needs a journal",
            "crates/cli/bellows/tests/networks/service/booted.rs",
            "systemd_runs_reloads_watches_and_stops_a_network",
        ),
        Special::new("bellows check --privileges=systemd", How::Ends(0))
            .after("grep -q '^\\[Service\\]' /etc/systemd/system/bellows@edge.service.d/privileges.conf"),
        Special::new("bellows events edge", How::Says("edge started: running `/etc/bellows/edge.toml`")),
    ],
    ..PLAIN
};

pub static READING_THE_NUMBERS: Page = Page {
    name: "reading-the-numbers",
    programs: &["tcpdump", "valgrind"],
    files: &[(
        "chains.toml",
        r#"
links = ["first -> north", "north -> north-end", "second -> south", "south -> south-end"]
[apps.first]
app = "source"
[apps.north]
app = "counter"
[apps.north-end]
app = "sink"
[apps.second]
app = "source"
[apps.south]
app = "counter"
[apps.south-end]
app = "sink"
"#,
    )],
    // Another build, which is beside the checkout.
    set_up: "ln -s . before; mkdir inner",
    specials: &[
        Special::new("bellows run examples/costs.toml", How::Serves(RUNS)),
        Special::new("bellows place chains", How::Says("proposed"))
            .beside("chains", "chains.toml")
            .before("until bellows place chains >/dev/null; do sleep 0.2; done\n"),
        Special::new("bellows place chains --check", How::Says("EXPECTED")).beside("chains", "chains.toml").before(
            "until bellows place chains --write --workers 2 --no-cpus; do sleep 0.2; done; bellows reload chains\n\
                 until bellows place chains --check >/dev/null; do sleep 0.2; done\n",
        ),
        Special::new("bellows run examples/router-costs.toml", How::Serves(RUNS)),
        Special::new("bellows show run router-costs --advise", How::Ends(0)).after("bellows stop router-costs"),
        Special::new("bellows appbench", How::Benchmark),
        // The network takes a processor, so it ends before the benchmarks that follow it.
        Special::new("bellows appbench rss --traffic", How::Benchmark).before("bellows stop costs\n"),
        Special::new("bellows appbench rss --config 'prefetch = 0' --resident dram", How::Benchmark)
            .before("bellows stop costs\n"),
        Special::new("bellows bench apps", How::Benchmark),
        Special::new("bellows campaign compare", How::With("--repeats 1")).before("cd inner\n"),
        Special::new("bellows bench history", How::Benchmark),
    ],
    ..PLAIN
};

pub static REPRODUCTIONS: Page =
    Page { name: "reproductions", specials: &[Special::new("bellows appbench", How::Benchmark)], ..PLAIN };

pub static ROUTER: Page = Page {
    name: "router",
    files: &[
        (
            "core.toml",
            r#"
links = ["in -> router.lan", "router.lan -> back"]
[apps.in]
app = "source"
rate = "1kpps"
[apps.back]
app = "sink"
[apps.router]
app = "router"
routes = ["198.51.0.0/16 via 192.0.2.9"]
[apps.router.interfaces.lan]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
"#,
        ),
        ("changes.txt", "add 10.1.0.0/16 via 192.0.2.9\n10.2.0.0/16 via 192.0.2.9\ndel 10.1.0.0/16\n"),
        ("routes.txt", "10.2.0.0/16 via 192.0.2.10\n10.3.0.0/16 via 192.0.2.9\n"),
    ],
    set_up: "sed '/^routes/d' core.toml >other.toml",
    networks: &[("core", "core.toml")],
    specials: &[
        Special::new("bellows route show match", How::Says("198.51.0.0/16")),
        Special::new("bellows route show core | ", How::Ends(0)).beside("other", "other.toml"),
        Special::elsewhere(
            "ping",
            "needs several routers",
            "crates/cli/bellows/tests/interfaces/hops.rs",
            "traceroute_sees_each_router_with_its_address",
        ),
    ],
    ..PLAIN
};

pub static SWITCHING: Page = Page {
    name: "switching",
    files: &[(
        "ports.toml",
        r#"
[apps.one]
app = "vhost-user"
socket = "one.sock"
[apps.two]
app = "vhost-user"
socket = "two.sock"
[apps.uplink]
app = "vhost-user"
socket = "uplink.sock"
"#,
    )],
    set_up: "cat block-1.toml ports.toml >switch.toml",
    networks: &[("switch", "switch.toml")],
    specials: &[Special::new("bellows appbench", How::Benchmark)],
    ..PLAIN
};

pub static TUNNELS: Page = Page {
    name: "tunnels",
    specials: &[Special::new("ip l2tp add tunnel", How::InGuest), Special::new("ip l2tp add session", How::InGuest)],
    ..PLAIN
};

pub static VHOST_USER: Page = Page {
    name: "vhost-user",
    networks: &[("guest", "block-1.toml")],
    specials: &[
        Special::elsewhere(
            "qemu-system-x86_64",
            "needs KVM and the disk of a machine",
            "crates/cli/bellows/tests/guests/qemu.rs",
            "packed_rings_with_several_queues_and_a_plain_card",
        ),
        Special::elsewhere(
            "dpdk-testpmd",
            "needs a terminal",
            "crates/cli/bellows/tests/guests/dpdk.rs",
            "every_combination_of_options_returns_every_byte",
        ),
        Special::new("bellows show vhost guest", How::Says("guest (vhost-user): server on ")),
    ],
    ..PLAIN
};

pub static WEB: Page = Page {
    name: "web",
    place: Place::Namespaces,
    programs: &["curl", "pkill", "ssh", "/usr/lib/python3/dist-packages/asyncssh/__init__.py"],
    set_up: "
ip netns add here
ip -n here link set lo up
ip link add here type veth peer name there netns here
ip address add 192.0.2.1/24 dev here
ip -n here address add 192.0.2.2/24 dev there
ip link set here up
ip -n here link set there up
mkdir /run/keys
ssh-keygen -q -t ed25519 -N '' -f /run/keys/host
ssh-keygen -q -t ed25519 -N '' -f /run/keys/user
cat >/etc/ssh/ssh_config <<'END'
Host there
    HostName 192.0.2.1
    IdentityFile /run/keys/user
    UserKnownHostsFile /run/keys/known
    StrictHostKeyChecking accept-new
END
# A server that forwards to sockets, and ends a session with its input. OpenSSH's would be a service of the machine.
cat >server.py <<'END'
import asyncio, asyncssh
class Server(asyncssh.SSHServer):
    def unix_connection_requested(self, path):
        return True
async def session(process):
    await process.stdin.read()
    process.exit(0)
async def serve():
    await asyncssh.listen('192.0.2.1', 22, server_factory=Server, process_factory=session,
                          server_host_keys=['/run/keys/host'], authorized_client_keys='/run/keys/user.pub')
    open('serves', 'w')
    await asyncio.Event().wait()
asyncio.run(serve())
END
/usr/bin/python3 server.py >server.out 2>&1 </dev/null &
while ! test -e serves; do kill -0 $!; sleep 0.05; done
",
    networks: &[("router", "examples/router-costs.toml")],
    specials: &[
        Special::new("bellows web", How::Serves("grep -q http:// \"$LOG\"")),
        Special::new("bellows web --listen unix:", How::Serves("grep -q bellows-web.sock \"$LOG\"")),
        // In the network of another machine.
        Special::new("ssh", How::Serves("ip netns exec here curl -sf -o /dev/null http://localhost:9480/"))
            .before("{ sleep 10000 || true; } | ip netns exec here ")
            .after("pkill -xf 'sleep 10000'; while pgrep -x ssh; do sleep 0.05; done"),
        // The page has the token of the address that was printed before.
        Special::new("curl", How::Says("\"router\"")).before("TOKEN=$(sed -n 's/.*#token=//p' *.log)\n"),
    ],
    ..PLAIN
};

pub static WORKERS: Page = Page {
    name: "workers",
    files: &[
        (
            "receiver.toml",
            r#"
links = ["far -> end"]
[apps.far]
app = "vhost-user"
socket = "between.sock"
[apps.end]
app = "sink"
"#,
        ),
        (
            "sender.toml",
            r#"
links = ["source -> near"]
[apps.source]
app = "source"
size = 60
[apps.near]
app = "virtio-user"
socket = "between.sock"
"#,
        ),
    ],
    specials: &[Special::new("bellows run", How::Serves(RUNS))],
    ..PLAIN
};

pub static WRITING_AN_APP: Page = Page {
    name: "writing-an-app",
    specials: &[
        Special::elsewhere(
            "cargo run",
            "builds a program of its own",
            "examples/custom-app/tests/guide.rs",
            "the_project_that_new_makes_compiles",
        ),
        Special::elsewhere(
            "my-bellows",
            "is a program of its own",
            "examples/custom-app/tests/guide.rs",
            "the_project_that_new_makes_compiles",
        ),
    ],
    ..PLAIN
};
