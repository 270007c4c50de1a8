//! The page about tables that strangers fill is true: its tables, counters and events are those of the code, and each
//! collection in the code is one of its tables, or is known to be filled by nobody but the configuration.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bellows_apps::registry;
use bellows_testkit::tree::root;

/// Crates that see packets.
const CRATES: [&str; 17] = [
    "apps/apps",
    "apps/basic",
    "apps/common",
    "apps/interfaces",
    "apps/router",
    "apps/switch",
    "apps/vpn",
    "engine/engine",
    "net/esp",
    "net/fib",
    "io/dpdk",
    "io/netif",
    "packet/packet",
    "io/ports",
    "base/shared",
    "io/virtio",
    "net/vrf",
];

/// Collections that strangers do not fill: the file, and why.
const OTHERS: [(&str, &str); 49] = [
    ("io/dpdk/src/device.rs", "queues of a device"),
    ("io/dpdk/src/fake.rs", "a driver for tests"),
    ("apps/switch/src/bridge/config.rs", "keys"),
    ("apps/basic/src/delay.rs", "a queue"),
    ("apps/router/src/dispatch/rules.rs", "rules"),
    ("apps/vpn/src/esp/config.rs", "keys"),
    ("apps/vpn/src/esp/keyring.rs", "pairs of keys"),
    ("apps/vpn/src/esp/mod.rs", "associations: their ends, path MTUs and ports"),
    ("apps/vpn/src/esp/changes.rs", "changes of keys by reloads and commands"),
    ("apps/vpn/src/esp/records.rs", "keys of the configuration and of commands"),
    ("apps/vpn/src/esp/register.rs", "keys of the configuration and of commands"),
    ("apps/router/src/forwarding/conflicts.rs", "addresses of the router"),
    ("apps/router/src/vrf/resolved.rs", "neighbours that are known, for other threads"),
    ("apps/common/src/full_table.rs", "who was told about in the last ten minutes, one a second at most"),
    ("apps/basic/src/impair.rs", "a queue"),
    ("apps/router/src/ipv6_link.rs", "addresses of the router"),
    ("apps/router/src/kernel_routes/install.rs", "devices of the host"),
    ("apps/router/src/kernel_routes/neighbours.rs", "neighbours that the administrator of the host entered for good"),
    ("apps/router/src/kernel_routes/set.rs", "routes of the host"),
    ("apps/apps/src/l2vpn/config.rs", "keys"),
    ("apps/apps/src/l2vpn/plan.rs", "keys"),
    ("apps/switch/src/mac_table/mod.rs", "static addresses"),
    ("apps/switch/src/mac_table/requests.rs", "the list that one command reads"),
    ("apps/router/src/nd/listener/mod.rs", "groups of the router's own addresses"),
    ("apps/router/src/nd/mod.rs", "addresses of the router"),
    ("apps/router/src/nd/others.rs", "kinds of disagreement on an interface"),
    ("apps/basic/src/pcap_writer/output.rs", "interfaces"),
    ("apps/basic/src/rate_limiter.rs", "a queue"),
    ("apps/basic/src/rss/mod.rs", "keys"),
    ("apps/basic/src/rss/transit.rs", "packets of a reload"),
    ("apps/vpn/src/tunnel/index.rs", "sessions"),
    ("apps/vpn/src/tunnel/mod.rs", "sessions"),
    ("apps/vpn/src/tunnel/paths.rs", "ends of sessions"),
    ("apps/router/src/vrf/config.rs", "keys"),
    ("apps/router/src/vrf/neighbour_requests.rs", "neighbours that are known, while a command is answered"),
    ("apps/router/src/vrf/reading.rs", "keys"),
    ("apps/router/src/vrf/operator.rs", "the list that one command reads"),
    ("io/netif/src/arp_guard.rs", "devices of the host above a port"),
    ("apps/router/src/vrf/shown_route.rs", "next hops, while a command is answered"),
    ("net/esp/src/associations.rs", "associations"),
    ("net/fib/src/codes.rs", "next hops of routes"),
    ("net/fib/src/groups/mod.rs", "next hops of routes"),
    ("net/fib/src/nodes.rs", "memory that is given back"),
    ("net/fib/src/rib.rs", "routes, and one for each neighbour that is known"),
    ("io/netif/src/interface/monitor.rs", "changes of the host's interfaces"),
    ("io/virtio/src/vhost/status.rs", "kinds of errors"),
    ("net/vrf/src/forgotten.rs", "neighbours that commands forget"),
    ("net/vrf/src/origin.rs", "routes"),
    ("net/vrf/src/vrf/mod.rs", "next hops of routes, and one for each neighbour that is known"),
];

/// Folders of which the same holds for all files.
const OTHER_FOLDERS: [(&str, &str); 1] = [("net/vrf/src/vrf/", "next hops of routes")];

const KINDS: [&str; 5] = ["HashMap<", "HashSet<", "BTreeMap<", "BTreeSet<", "VecDeque<"];

/// The cells of the page's table.
fn rows() -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("docs/tables.md")).unwrap();
    let lines = page.lines().skip_while(|line| !line.starts_with("| table |")).skip(2);
    let rows = lines.map_while(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// What is in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Where a row's table is in the code, below `crates`.
fn file_of(row: &[String]) -> &str {
    row[1].split_once("(../crates/").and_then(|(_, rest)| rest.strip_suffix(')')).unwrap()
}

/// The source files of a folder, without those of tests alone.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_of_tests = name == "tests" || name.ends_with("tests.rs") || name == "model.rs";
        if path.is_dir() && !is_of_tests {
            sources(&path, found);
        } else if name.ends_with(".rs") && !is_of_tests {
            found.push(path);
        }
    }
}

/// The code of the crates that see packets: the path below `crates`, and the text in front of the tests.
fn code() -> Vec<(String, String)> {
    let crates = root().join("crates");
    let mut found = Vec::new();
    CRATES.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut found));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        (path.strip_prefix(&crates).unwrap().to_string_lossy().into_owned(), text[..end].to_owned())
    };
    found.into_iter().map(read).collect()
}

/// The fields, statics and types of a file that are collections which grow.
fn collections(text: &str) -> Vec<&str> {
    let has_collection = |text: &str| KINDS.iter().any(|collection| text.contains(collection));
    let is_word = |name: &str| !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    let is_meant = |line: &&str| {
        let line = line.trim_start();
        if ["let ", "//", "fn ", "for ", "if "].iter().any(|word| line.starts_with(word)) {
            return false;
        }
        let declares = ["type ", "struct ", "static "].iter().any(|word| line.contains(word));
        let is_field =
            |(name, kind): (&str, &str)| is_word(name.rsplit(' ').next().unwrap_or("")) && has_collection(kind);
        let is_variant = |(name, kind): (&str, &str)| {
            is_word(name) && name.starts_with(|first: char| first.is_ascii_uppercase()) && has_collection(kind)
        };
        declares && has_collection(line)
            || line.ends_with(',') && line.split_once(": ").is_some_and(is_field)
            || line.ends_with("),") && line.split_once('(').is_some_and(is_variant)
    };
    text.lines().filter(is_meant).collect()
}

#[test]
fn the_tables_counters_and_events_of_the_page_are_those_of_the_code() {
    let (rows, registry) = (rows(), registry());
    assert!(rows.len() >= 10, "{rows:#?}");
    let mut events = BTreeSet::new();
    for row in &rows {
        assert_eq!(row.len(), 8, "{row:#?}");
        let (file, name) = (file_of(row), quoted(&row[1])[0]);
        let text = fs::read_to_string(root().join("crates").join(file)).unwrap();
        assert!(text.contains(&format!("struct {name}")), "{file} has no `{name}`");
        for group in row[6].split("; ") {
            let [app, counters @ ..] = &quoted(group)[..] else { panic!("{row:#?}") };
            let info = registry.get(app).unwrap_or_else(|| panic!("{app}")).info();
            for counter in counters {
                let has = info.drops.iter().chain(info.counters).any(|known| known.name == *counter);
                assert!(has, "`{app}` has no counter `{counter}`");
            }
            assert!(!counters.is_empty(), "{row:#?}");
        }
        events.extend(quoted(&row[7]).into_iter().map(str::to_owned));
    }
    let code = code();
    let told = code.iter().flat_map(|(_, text)| {
        let names = text.split("FullTable::new(\"").skip(1).filter_map(|rest| rest.split_once('"'));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(events, told.collect::<BTreeSet<_>>(), "the tables of the event `table-full`");
}

#[test]
fn each_collection_of_the_code_is_in_the_page_or_is_filled_by_no_stranger() {
    let rows = rows();
    let listed: BTreeSet<&str> = rows.iter().map(|row| file_of(row)).collect();
    let mut used = BTreeSet::new();
    let mut unknown = Vec::new();
    for (path, text) in code() {
        let all = collections(&text);
        if all.is_empty() || listed.contains(&*path) {
            continue;
        }
        let exempt = OTHERS.iter().find(|(file, _)| *file == path);
        let folder = OTHER_FOLDERS.iter().find(|(folder, _)| path.starts_with(folder));
        match exempt.or(folder) {
            Some((of, _)) => _ = used.insert(*of),
            None => unknown.push(format!("{path}: {all:#?}")),
        }
    }
    assert!(
        unknown.is_empty(),
        "who fills these? If strangers do, give them shares, and a row in docs/tables.md; if not, say so in this test:\n{}",
        unknown.join("\n")
    );
    let stale: Vec<_> = OTHERS.iter().chain(&OTHER_FOLDERS).filter(|(of, _)| !used.contains(of)).collect();
    assert!(stale.is_empty(), "these have no collections any more: {stale:?}");
    assert!(OTHERS.iter().chain(&OTHER_FOLDERS).all(|(_, why)| !why.is_empty()));
}

/// The second test can fail.
#[test]
fn collections_are_found_in_code() {
    let text = "struct Table {\n    /// By address.\n    entries: HashMap<u32, Entry>,\n    pub(super) told: Mutex<BTreeMap<u32, u64>>,\n    \
                count: usize,\n}\nfn read(all: &[u8]) {\n    let found: HashMap<u32, u32> = all.collect();\n}\n\
                pub type Told = HashMap<u16, u64>;\nstruct Shown(Mutex<HashSet<u16>>);\nenum Queue {\n    \
                InOrder(VecDeque<u64>),\n}\nstatic ALL: Mutex<Option<HashMap<u8, u8>>> = Mutex::new(None);\n";
    assert_eq!(collections(text).len(), 6, "{:?}", collections(text));
}
