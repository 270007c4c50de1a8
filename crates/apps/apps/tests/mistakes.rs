//! All mistakes in an app's config are reported at once, also those in combinations of keys, and without errors that
//! only follow from another mistake.

use std::fs;
use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_testkit::scratch;
use bellows_testkit::tree::root;

/// The first lines of the errors for an app with these keys, linked to a sink.
fn said(app: &str, keys: &str) -> Vec<String> {
    let text = format!("links = [\"a -> end\"]\n[apps.a]\napp = \"{app}\"\n{keys}\n[apps.end]\napp = \"sink\"\n");
    let folder = root().join("examples");
    let Err(diagnostics) = load_str(&text, "net.toml", &folder, &registry(), &Overrides::default()) else {
        return Vec::new();
    };
    let report = diagnostics.render(false);
    let unlinked = |line: &&str| !line.contains("is not linked");
    report
        .lines()
        .filter(|line| line.starts_with("error: "))
        .filter(unlinked)
        .map(|line| line[7..].to_owned())
        .collect()
}

#[test]
fn mistakes_of_several_keys_come_together() {
    let keys =
        "headers = \"ipv4\"\nsrc_mac = \"02:00\"\ndst_mac = \"x\"\nsrc = \"2001:db8::1\"\nszie = 60\nrate = \"10gb/s\"";
    assert_eq!(
        said("source", keys),
        [
            "`a`: `02:00` is not an Ethernet address",
            "`a`: `x` is not an Ethernet address",
            "`a`: 2001:db8::1 is not an IPv4 address",
            "app type `source` has no key `szie`",
            "`rate`: `10gb/s` is not a rate",
        ]
    );
    let keys = "loss = 5\nhold = 10\nduplicate = \"often\"\ngap = 0";
    assert_eq!(said("impair", keys).len(), 4);
    let keys = "socket = \"no/such/folder/s\"\nqueues = 0\nmac = \"03:00:00:00:00:00\"\ndisable = [\"paked\"]";
    assert_eq!(said("vhost-user", keys).len(), 4, "{:?}", said("vhost-user", keys));
}

#[test]
fn consequences_of_a_mistake_are_not_reported() {
    for (app, keys, said_of_it) in [
        ("rate-limiter", "rate = \"fast\"\nburst = 1000", "`rate`: `fast` is not a rate"),
        ("source", "sizes = [0]\nweights = [1]", "`sizes[0]` must be an integer 1 to 73,600"),
        ("source", "headers = \"ipv5\"\nttl = 3", "`headers` cannot be `ipv5`"),
        (
            "pcap-reader",
            "path = \"captures/quickstart.pcap\"\nspeed = \"slow\"\nfactor = 2.0",
            "`speed` cannot be `slow`",
        ),
    ] {
        assert_eq!(said(app, keys), [said_of_it], "{app}: {keys}");
    }
}

#[test]
fn apps_of_files_and_sockets_declare_them() {
    let folder = scratch();
    fs::copy(root().join("examples/captures/quickstart.pcap"), folder.path().join("in.pcap")).unwrap();
    let said = |apps: &[(&str, &str, &str)]| {
        let tables = apps.iter().map(|(name, app, keys)| format!("[apps.{name}]\napp = \"{app}\"\n{keys}\n"));
        let text: String = tables.collect();
        let loaded = load_str(&text, "net.toml", folder.path(), &registry(), &Overrides::default());
        loaded.map_or_else(|wrong| wrong.render(false), |loaded| loaded.warnings.render(false))
    };
    let reader = ("r", "pcap-reader", "path = \"in.pcap\"");
    let report = said(&[reader, ("w", "pcap-writer", "path = \"./in.pcap\"")]);
    assert!(report.contains("would be overwritten while `r` reads it"), "{report}");
    let report = said(&[("v", "pcap-writer", "path = \"x.pcap\""), ("w", "pcap-writer", "path = \"x.pcap\"")]);
    assert!(report.contains("`v` and `w` write the same file"), "{report}");
    let report = said(&[
        ("v", "pcap-writer", "path = \"x.pcap\"\nrotate = \"1MB\""),
        ("w", "pcap-writer", "path = \"x.3.pcap\""),
    ]);
    assert!(report.contains("is a name that `v` gives to its rotated files"), "{report}");
    let report =
        said(&[("v", "vhost-user", "socket = \"s\""), ("w", "virtio-user", "socket = \"s\"\nmode = \"server\"")]);
    assert!(report.contains("is the socket that `v` uses"), "{report}");
    let report = said(&[("v", "vhost-user", "socket = \"s\""), ("w", "virtio-user", "socket = \"s\"")]);
    assert!(!report.contains("error"), "one side creates it, the other connects: {report}");
}

#[test]
fn mistakes_in_shared_objects_are_reported() {
    let report = |objects: &str, table: &str| {
        let text = format!(
            "links = [\"s -> b.a\", \"b.a -> end\"]\n{objects}\n[apps.b]\napp = \"bridge\"\n{table}\n[apps.s]\napp = \"source\"\n\
             [apps.end]\napp = \"sink\"\n"
        );
        match load_str(&text, "net.toml", Path::new("."), &registry(), &Overrides::default()) {
            Ok(loaded) => loaded.warnings.render(false),
            Err(diagnostics) => diagnostics.render(false),
        }
    };
    let macs = "[objects.macs]\nobject = \"mac-table\"\n";
    assert_eq!(report(macs, "table = \"macs\""), "");
    for (objects, table, said) in [
        (macs, "table = \"mac\"", "there is no object `mac`\n"),
        (macs, "table = \"mac\"", "= help: did you mean `macs`?"),
        ("", "table = \"macs\"", "describe it in a table `[objects.macs]`, and below it `object = \"mac-table\"`"),
        (macs, "", "warning: no app uses the object `macs`"),
        ("[objects.macs]\nobject = \"table\"", "", "there is no object type `table`"),
        ("[objects.macs]\nobject = \"table\"", "table = \"macs\"", "there is no object type `table`"),
        ("[objects.macs]\n", "", "the object `macs` has no type"),
        ("[objects.macs]\nobject = 7", "", "`object` must be the name of an object type"),
        ("[objects.\"a b\"]\nobject = \"mac-table\"", "", "`a b` is not a valid object name"),
        ("objects = 3", "", "`objects` must be a table of objects"),
        ("[objects]\nmacs = 3", "", "`objects.macs` must be a table"),
        (&format!("{macs}size = 3"), "table = \"macs\"", "object type `mac-table` has no key `size`"),
        (&format!("{macs}capacity = 3"), "table = \"macs\"", "`capacity` must be"),
        (&format!("{macs}ageing = \"1ms\""), "table = \"macs\"", "give a time from \"1s\" to \"1d\""),
    ] {
        let all = report(objects, table);
        assert!(all.contains(said) && !all.contains("has errors"), "{said}: {all}");
    }
}

#[test]
fn mistakes_in_expressions_are_underlined() {
    let report = |keys: &str| {
        let text = format!(
            "links = [\"s -> f\", \"f.match -> end\"]\n[apps.s]\napp = \"source\"\n[apps.end]\napp = \"sink\"\n\
             [apps.f]\napp = \"pcap-filter\"\n{keys}\n"
        );
        match load_str(&text, "net.toml", Path::new("."), &registry(), &Overrides::default()) {
            Ok(loaded) => loaded.warnings.render(false),
            Err(diagnostics) => diagnostics.render(false),
        }
    };
    assert_eq!(report("filter = \"tcp port 80 or 443\""), "");
    for keys in [
        "filter = \"tcp and vlan 70000\"",
        "filter = 'tcp and vlan 70000'",
        "filter = \"\\u0074cp and vlan 70000\"",
        "filter = \"\"\"\n tcp and\n vlan 70000\"\"\"",
        "filters.match = \"tcp and vlan 70000\"",
        "filters = { match = \"tcp and vlan 70000\" }",
    ] {
        let report = report(keys);
        let lines: Vec<&str> = report.lines().collect();
        let at =
            lines.iter().position(|line| line.contains("70000") && !line.starts_with("error")).expect("an excerpt");
        let marked: String =
            lines[at].chars().zip(lines[at + 1].chars()).filter(|(_, mark)| *mark == '^').map(|(c, _)| c).collect();
        assert!(["70000", "vlan 70000"].contains(&&*marked), "{keys}: {report}");
        assert!(report.contains("help: "), "{report}");
    }
    let text = "links = [\"r -> end\"]\n[apps.end]\napp = \"sink\"\n\
                [apps.r]\napp = \"pcap-reader\"\npath = \"x\"\nfilter = 'tcp and vlan 70000'\n";
    let folder = bellows_testkit::scratch();
    let header = [0xa1b2_c3d4u32.to_le_bytes(), [2, 0, 4, 0], [0; 4], [0; 4], [0, 0, 4, 0], [1, 0, 0, 0]].concat();
    std::fs::write(folder.path().join("x"), header).unwrap();
    let wrong = load_str(text, "net.toml", folder.path(), &registry(), &Overrides::default()).unwrap_err();
    let wrong = wrong.render(false);
    assert!(wrong.contains("7 | filter = 'tcp and vlan 70000'\n  |                   ^^^^^^^^^^\n"), "{wrong}");
    let report = report("filters = { web = \"tcp\" }");
    assert!(report.contains("the output `match` is linked, but there is no filter of this name"), "{report}");
}

#[test]
fn workers_of_a_router_make_ports_of_their_own() {
    let said = |workers: &str, port: &str| {
        let text = format!(
            "links = [\"from -> r.lan\", \"r.lan -> to\", \"from-two -> r.lan-two\", \"r.lan-two -> to-two\"]\n\
             [workers.two]\n[apps]\nfrom.app = \"source\"\nto.app = \"sink\"\n\
             from-two = {{ app = \"source\", worker = \"two\" }}\nto-two = {{ app = \"sink\", worker = \"two\" }}\n\
             [apps.r]\napp = \"router\"\nworkers = {workers}\n\
             [apps.r.interfaces]\nlan = {{ mac = \"02:00:00:00:00:01\" }}\n\
             wan = {{ mac = \"02:00:00:00:00:02\", port = \"{port}\", vlan = 5 }}\n"
        );
        let read = load_str(&text, "net.toml", Path::new("."), &registry(), &Overrides::default());
        read.map_or_else(|diagnostics| diagnostics.render(false), |_| String::new())
    };
    assert_eq!(said("[\"two\"]", "lan"), "");
    for (workers, port, error) in [
        ("[\"two\", \"two\"]", "lan", "`two` stands here twice"),
        ("[\"two\"]", "lan-two", "`lan-two` is the name of a port"),
        ("[\"two\"]", "two-lan", "`two-lan` is the name of a port"),
        ("[\"three\"]", "lan", "three"),
        ("[]", "lan", "lan-two"),
    ] {
        let said = said(workers, port);
        assert!(said.contains(error) && said.contains("net.toml:"), "{workers}: {said}");
    }
}
