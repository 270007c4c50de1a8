//! The unit in `packaging/systemd`, with the drop-in that `bellows check --privileges=systemd` writes for a network.

use std::fs;
use std::process::Command;

use bellows_testkit::programs::has_program;
use bellows_testkit::wait::output;
use serde_json::json;

use crate::support::{Sandbox, root};

const VHOST: &str = r#"
links = ["guest.output -> end.input"]
[apps.guest]
app = "vhost-user"
socket = "guest.sock"
[apps.end]
app = "sink"
"#;

const XDP: &str = r#"
links = ["left.output -> right.input", "right.output -> left.input"]
[apps.left]
app = "af-xdp"
interface = "eth0"
[apps.right]
app = "af-xdp"
interface = "eth1"
"#;

/// The values of a key in the lines of a unit, joined.
fn values(unit: &str, key: &str) -> String {
    let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_network_needs_what_its_apps_need() {
    let sandbox = Sandbox::new();
    let (vhost, xdp) = (sandbox.write("vhost.toml", VHOST), sandbox.write("xdp.toml", XDP));
    let drop_in = |network: &str| sandbox.bellows(&["check", "--privileges=systemd", network]).success().stdout;
    let unit = drop_in(&vhost);
    let folder = sandbox.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    assert_eq!(values(&unit, "ReadWritePaths").trim_end_matches('/'), format!("-{folder}"));
    for key in ["CapabilityBoundingSet", "AmbientCapabilities", "RestrictAddressFamilies", "PrivateNetwork"] {
        assert_eq!(values(&unit, key), "", "{unit}");
    }
    let unit = drop_in(&xdp);
    let capabilities = "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF";
    assert_eq!(values(&unit, "AmbientCapabilities"), capabilities);
    assert_eq!(values(&unit, "CapabilityBoundingSet"), capabilities);
    assert_eq!(values(&unit, "RestrictAddressFamilies"), "AF_INET AF_NETLINK AF_XDP");
    assert_eq!((values(&unit, "PrivateNetwork"), values(&unit, "LimitMEMLOCK")), ("no".into(), "infinity".into()));

    let text = sandbox.bellows(&["check", "--privileges", &xdp]).success().stdout;
    assert!(text.contains("capabilities: CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF\n    left: CAP_NET_ADMIN"), "{text}");
    let text = sandbox.bellows(&["check", "--privileges", &vhost]).success().stdout;
    assert!(text.contains(&format!("capabilities: none\n  writes in: {folder}")), "{text}");
    let found = sandbox.bellows(&["check", "--privileges", "--json", &vhost, &xdp]).success().json();
    assert_eq!(found[0]["privileges"]["capabilities"], json!([]), "{found:#}");
    assert_eq!(found[1]["privileges"]["apps"][1]["app"], json!("right"), "{found:#}");
    assert_eq!(sandbox.bellows(&["check", "--privileges=systemd", &vhost, &xdp]).code, Some(2));
    assert!(sandbox.bellows(&["check", "--json", &vhost]).success().json().get("privileges").is_none());
}

/// The exposure as systemd computes it, from 0 to 10.
#[test]
fn services_are_little_exposed() {
    let test = "services_are_little_exposed";
    if !has_program(test, "systemd-analyze") {
        return;
    }
    let sandbox = Sandbox::new();
    let units = sandbox.path("etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    for (name, network) in [("vhost", VHOST), ("xdp", XDP)] {
        let file = sandbox.write(&format!("{name}.toml"), network);
        fs::copy(root().join("packaging/systemd/bellows@.service"), units.join("bellows@.service")).unwrap();
        let folder = units.join(format!("bellows@{name}.service.d"));
        fs::create_dir(&folder).unwrap();
        let drop_in = sandbox.bellows(&["check", "--privileges=systemd", &file]).success().stdout;
        fs::write(folder.join("privileges.conf"), drop_in).unwrap();
        let analyze = |words: &[&str]| {
            let mut command = Command::new("systemd-analyze");
            command.args(words).arg("--offline=true").arg(format!("--root={}", sandbox.path("").display()));
            let output = output(command.arg(format!("bellows@{name}.service"))).unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            (output.status.success(), text)
        };
        let (is_fine, text) = analyze(&["security", "--no-pager", "--threshold=30"]);
        assert!(is_fine, "{name}: {text}");
        // The drop-in was read: a network with interfaces has capabilities.
        let (_, report) = analyze(&["security", "--no-pager", "--json=short"]);
        let report: serde_json::Value =
            serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
        let rows = report.as_array().unwrap();
        let row = rows.iter().find(|row| row["json_field"] == "CapabilityBoundingSet_CAP_NET_ADMIN").unwrap();
        assert_eq!(row["set"], json!(name == "vhost"), "{row:#}");
    }
}

#[test]
fn the_unit_has_no_mistakes() {
    let test = "the_unit_has_no_mistakes";
    if !has_program(test, "systemd-analyze") {
        return;
    }
    let sandbox = Sandbox::new();
    let unit = fs::read_to_string(root().join("packaging/systemd/bellows@.service")).unwrap();
    // It verifies that the program exists.
    let unit = unit
        .replace("/usr/bin/bellows", env!("CARGO_BIN_EXE_bellows"))
        .replace("man:bellows(1)", "https://example.org");
    let path = sandbox.write("bellows@.service", &unit);
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no", "--recursive-errors=no", &path]).output();
    let output = verify.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !text.contains("bellows@"), "{text}");
}
