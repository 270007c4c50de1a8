//! The programs that tasks need: found on the PATH, or installed by apt if permitted.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use bellows_testkit::programs::find_program;
pub use bellows_testkit::programs::search_path;

/// A program that a task needs.
pub struct Tool {
    /// The program, or several alternatives. A library has no program: an absolute path is that of one of its files.
    pub programs: &'static [&'static str],
    /// The Debian package of the first of them.
    pub package: &'static str,
    /// The purpose of the program.
    pub purpose: &'static str,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (Debian package {})", self.programs.join(" or "), self.package)
    }
}

/// What builds programs with libpcap and DPDK.
pub const CC: Tool =
    Tool { programs: &["cc"], package: "gcc", purpose: "the programs that run filters and tables of others" };
pub const LIBPCAP: Tool =
    Tool { programs: &["pcap-config"], package: "libpcap-dev", purpose: "comparison of filters with libpcap" };
pub const PKG_CONFIG: Tool =
    Tool { programs: &["pkg-config"], package: "pkg-config", purpose: "the flags to compile with DPDK" };
pub const DPDK_LIBRARIES: Tool = Tool {
    programs: &["/usr/include/dpdk/rte_bpf.h"],
    package: "libdpdk-dev",
    purpose: "comparison of filters and forwarding tables with DPDK's",
};

/// The programs for most tests.
pub const FOR_TESTS: &[Tool] = &[
    Tool {
        programs: &["tcpdump"],
        package: "tcpdump",
        purpose: "comparison of captures, read and written, with tcpdump",
    },
    Tool { programs: &["capinfos"], package: "wireshark-common", purpose: "comparison of packet counts with capinfos" },
    Tool { programs: &["tshark"], package: "tshark", purpose: "tunnels and ESP as tshark decodes them" },
    Tool { programs: &["zstd"], package: "zstd", purpose: "captures compressed by the zstd program" },
    Tool { programs: &["gzip"], package: "gzip", purpose: "captures compressed by the gzip program" },
    Tool { programs: &["ip"], package: "iproute2", purpose: "tests across network namespaces" },
    Tool { programs: &["luajit"], package: "luajit", purpose: "the breath model in Lua" },
    Tool { programs: &["dot"], package: "graphviz", purpose: "checking the graphs written for Graphviz" },
    Tool { programs: &["unshare"], package: "util-linux", purpose: "tests where the system forbids new code" },
    Tool { programs: &["setpriv"], package: "util-linux", purpose: "tests as an ordinary user" },
    Tool { programs: &["valgrind"], package: "valgrind", purpose: "counting instructions without a PMU" },
    Tool { programs: &["ping"], package: "iputils-ping", purpose: "tests that ping" },
    Tool { programs: &["script"], package: "bsdutils", purpose: "tests of output on a terminal" },
    Tool { programs: &["ethtool"], package: "ethtool", purpose: "offloads and queues of interfaces" },
    Tool { programs: &["iperf3"], package: "iperf3", purpose: "traffic between interfaces, and inside of a guest" },
    Tool { programs: &["curl"], package: "curl", purpose: "files sent between interfaces" },
    Tool {
        programs: &["busybox"],
        package: "busybox-static",
        purpose: "a web server between interfaces, and the programs of a guest",
    },
    CC,
    LIBPCAP,
    Tool { programs: &["bird"], package: "bird2", purpose: "a routing daemon behind a router" },
    Tool { programs: &["traceroute"], package: "traceroute", purpose: "the hops that a host sees" },
    Tool { programs: &["systemd-analyze"], package: "systemd", purpose: "the units of services" },
    Tool { programs: &["setcap"], package: "libcap2-bin", purpose: "interfaces with file capabilities" },
    Tool { programs: &["strace"], package: "strace", purpose: "the system calls of readers of counters" },
    Tool { programs: &["git"], package: "git", purpose: "campaigns that compare builds" },
    Tool { programs: &["pkill"], package: "procps", purpose: "the ends of commands in pages" },
    Tool { programs: &["ssh"], package: "openssh-client", purpose: "the live page of another machine" },
    Tool {
        programs: &["/usr/lib/python3/dist-packages/asyncssh/__init__.py"],
        package: "python3-asyncssh",
        purpose: "that other machine",
    },
    Tool { programs: &["nft"], package: "nftables", purpose: "a host that ignores what a port at its interface gets" },
];

/// The programs for tests with other programs' drivers and with guests.
pub const PEERS: &[Tool] = &[
    Tool {
        programs: &["dpdk-testpmd"],
        package: "dpdk-dev",
        purpose: "DPDK's virtio driver at vhost-user ports, and its memif",
    },
    Tool {
        programs: &["qemu-system-x86_64"],
        package: "qemu-system-x86",
        purpose: "a Linux guest at vhost-user ports",
    },
    Tool {
        programs: &["systemd-nspawn"],
        package: "systemd-container",
        purpose: "networks as services of a booted systemd",
    },
    Tool { programs: &["/etc/services"], package: "netbase", purpose: "names of ports and protocols in filters" },
    Tool { programs: &["perl"], package: "perl-base", purpose: "a socket of a guest for ESP in UDP" },
    PKG_CONFIG,
    DPDK_LIBRARIES,
    Tool { programs: &["Rscript"], package: "r-base-core", purpose: "comparison of statistics with R" },
    Tool {
        programs: &["chromium"],
        package: "chromium",
        purpose: "reports of campaigns, and the live page, in a browser",
    },
    Tool {
        programs: &["/usr/lib/python3/dist-packages/mpmath/__init__.py"],
        package: "python3-mpmath",
        purpose: "comparison of far tails with quadrature",
    },
    Tool { programs: &["nats-server"], package: "nats-server", purpose: "queues that spread campaigns over machines" },
    Tool { programs: &["openssl"], package: "openssl", purpose: "certificates of that server" },
    Tool {
        programs: &["prometheus"],
        package: "prometheus",
        purpose: "metrics scraped, and alerts tested by promtool",
    },
    Tool {
        programs: &["/usr/lib/python3/dist-packages/prometheus_client/__init__.py"],
        package: "python3-prometheus-client",
        purpose: "metrics read by a parser of OpenMetrics",
    },
    Tool { programs: &["podman"], package: "podman", purpose: "the image for containers" },
    Tool { programs: &["runc"], package: "runc", purpose: "containers of that image" },
    Tool { programs: &["mmdebstrap"], package: "mmdebstrap", purpose: "Debian's image, on which it is built" },
    Tool { programs: &["zsh"], package: "zsh", purpose: "completions in zsh" },
    Tool { programs: &["fish"], package: "fish", purpose: "completions in fish" },
];

/// Whether this process runs as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Whether a program is on the search path.
pub fn is_installed(program: &str) -> bool {
    find_program(program).is_some()
}

/// Installs the missing ones of `tools` if this process is root and apt exists. Returns those that are still missing.
pub fn provide<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Vec<&'a Tool> {
    let missing = missing(tools);
    if missing.is_empty() || !is_root() || !is_installed("apt-get") {
        if !missing.is_empty() {
            println!("some tools are missing; as root: apt-get install {}", packages(&missing).join(" "));
        }
        return missing;
    }
    apt(&["update"]);
    let packages = packages(&missing);
    let install = |packages: &[&str]| apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat());
    // A package that this release lacks must not prevent the installation of the others.
    if !install(&packages) && packages.len() > 1 {
        for package in &packages {
            install(&[package]);
        }
    }
    self::missing(missing)
}

/// The packages that hold these tools, each once.
pub fn packages(tools: &[&Tool]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = Vec::new();
    for tool in tools {
        if !packages.contains(&tool.package) {
            packages.push(tool.package);
        }
    }
    packages
}

fn missing<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Vec<&'a Tool> {
    tools.into_iter().filter(|tool| !tool.programs.iter().any(|program| is_installed(program))).collect()
}

/// Runs apt-get and says whether it succeeded.
fn apt(arguments: &[&str]) -> bool {
    println!("== tools: apt-get {}", arguments.join(" "));
    let status = Command::new("apt-get")
        .args(["-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("PATH", search_path())
        .status();
    match &status {
        Ok(status) if status.success() => return true,
        Ok(status) => eprintln!("xtask: apt-get {}: {status}", arguments[0]),
        Err(error) => eprintln!("xtask: cannot run apt-get: {error}"),
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_there_when_any_of_its_programs_is() {
        let tools = &[
            Tool { programs: &["no-such-program", "sh"], package: "dash", purpose: "scripts" },
            Tool { programs: &["no-such-program"], package: "nothing", purpose: "nothing" },
            Tool { programs: &["no-other-program"], package: "nothing", purpose: "nothing" },
        ];
        assert_eq!(packages(&missing(tools)), ["nothing"]);
    }
}
