//! The unit, run by systemd itself: in a container whose `/usr` is that of this system, and everything else is empty.

use std::fs;
use std::path::Path;
use std::process::Command;

use bellows_testkit::programs::{self, has_program};
use bellows_testkit::skips::is_left_out;
use bellows_testkit::wait::output;
use bellows_testkit::{page, skip};

use crate::support::{ENDLESS, Sandbox, root};

/// The unit that runs the test in the container, and ends the container with its result.
const CHECK: &str = "[Unit]\nSuccessAction=exit\nFailureAction=exit-force\nAfter=basic.target\n\
                     [Service]\nType=oneshot\nStandardOutput=file:/test/output\nStandardError=inherit\n\
                     ExecStart=/bin/sh /test/booted.sh\n";

/// A network for a guest.
const GUEST: &str = r#"
links = ["port.output -> capture.input"]
[apps.port]
app = "vhost-user"
socket = "/run/bellows/guest.sock"
socket_mode = "0660"
socket_group = "kvm"
[apps.capture]
app = "pcap-writer"
path = "/tmp/captures/guest.pcap"
"#;

#[test]
fn systemd_runs_reloads_watches_and_stops_a_network() {
    let test = "systemd_runs_reloads_watches_and_stops_a_network";
    if is_left_out(test) || !has_program(test, "systemd-nspawn") {
        return;
    }
    let sandbox = Sandbox::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/networks/service");
    let copy = |from: &Path, name: &str| fs::copy(from, sandbox.path(name)).unwrap();
    programs::install(env!("CARGO_BIN_EXE_bellows"), sandbox.path("bellows"));
    copy(&here.join("booted.sh"), "booted.sh");
    for file in ["bellows.sysusers", "bellows.tmpfiles", "bellows.service.conf"] {
        copy(&root().join("packaging/systemd").join(file), file);
    }
    sandbox.write("edge.toml", ENDLESS);
    sandbox.write("guest.toml", GUEST);
    let unit = fs::read_to_string(root().join("packaging/systemd/bellows@.service")).unwrap();
    let unit = unit.replace("/usr/bin/bellows", "/test/bellows").replace("WatchdogSec=30s", "WatchdogSec=3s");
    sandbox.write("bellows@.service", &unit);
    sandbox.write("check.service", CHECK);
    // The commands of the page for a running service.
    let page = fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let lines = page::commands(&page).into_iter().map(|command| command.text);
    let lines: Vec<String> =
        lines.filter(|line| ["systemctl", "journalctl"].contains(&&*page::words(line)[0])).collect();
    assert!(lines.len() > 4, "{lines:?}");
    sandbox.write("page.sh", &format!("set -eux\n{}\n", lines.join("\n")));
    let nspawn = |words: &[&str]| {
        let mut command = Command::new("systemd-nspawn");
        let folder = sandbox.path("");
        let units = ["bellows@.service", "check.service"]
            .map(|unit| format!("--bind-ro={}:/etc/systemd/system/{unit}", sandbox.path(unit).display()));
        command
            .args(["--directory=/", "--volatile=yes", "--register=no", "--keep-unit", "--quiet"])
            .args(["--private-network", "--console=pipe"])
            .arg(format!("--machine=bellows-{}", std::process::id()))
            .arg(format!("--bind={}:/test", folder.display()))
            .args(units)
            .args(words);
        output(&mut command).unwrap()
    };
    let first = nspawn(&["--as-pid2", "/bin/true"]);
    if !first.status.success() {
        let reason = String::from_utf8_lossy(&first.stderr).into_owned();
        return skip(test, format!("systemd-nspawn cannot run a container here: {reason}"));
    }
    let booted = nspawn(&["--boot", "systemd.unit=check.service"]);
    let text = fs::read_to_string(sandbox.path("output")).unwrap_or_default();
    let console = String::from_utf8_lossy(&booted.stdout).into_owned() + &String::from_utf8_lossy(&booted.stderr);
    assert!(booted.status.success() && text.ends_with("all is well\n"), "{console}\n{text}");
}
