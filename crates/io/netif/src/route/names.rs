//! The names of the kernel's routing tables, and of the programs that enter routes (`rt_tables` and `rt_protos` of
//! iproute2).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The names of tables that every system knows.
const TABLES: [(&str, u32); 3] = [("main", 254), ("default", 253), ("local", 255)];

/// The names of protocols in `linux/rtnetlink.h`.
const PROTOCOLS: [(&str, u32); 24] = [
    ("unspec", 0),
    ("redirect", 1),
    ("kernel", 2),
    ("boot", 3),
    ("static", 4),
    ("gated", 8),
    ("ra", 9),
    ("mrt", 10),
    ("zebra", 11),
    ("bird", 12),
    ("dnrouted", 13),
    ("xorp", 14),
    ("ntk", 15),
    ("dhcp", 16),
    ("mrouted", 17),
    ("keepalived", 18),
    ("babel", 42),
    ("ovn", 84),
    ("openr", 99),
    ("bgp", 186),
    ("isis", 187),
    ("ospf", 188),
    ("rip", 189),
    ("eigrp", 192),
];

/// The names of all protocols, read once: many routes have few.
static PROTOCOL_NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let known: Vec<(String, u32)> = entries("rt_protos", &PROTOCOLS).collect();
    let name = |number: u32| known.iter().find(|(_, known)| *known == number).map(|(name, _)| name.clone());
    (0..=u32::from(u8::MAX)).map(|number| name(number).unwrap_or_else(|| number.to_string())).collect()
});

/// The name of who enters routes, or the number if it has none.
pub fn protocol_name(number: u8) -> &'static str {
    &PROTOCOL_NAMES[usize::from(number)]
}

/// The number of who enters routes, by a name or a number; `None` if there is no such name.
pub fn protocol_number(name: &str) -> Option<u8> {
    let named = (0..=u8::MAX).find(|&number| protocol_name(number) == name);
    named.or_else(|| name.parse().ok())
}

/// Where names are kept: the administrator's files come before the distribution's.
const FOLDERS: [&str; 2] = ["/etc/iproute2", "/usr/share/iproute2"];

/// The number of a table by its name or number; `None` if there is no such name, or the number is 0.
pub fn table_number(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number).filter(|&number| number != 0);
    }
    entries("rt_tables", &TABLES).find(|(entry, _)| entry == name).map(|(_, number)| number)
}

/// The name of a table, or its number if it has none.
pub fn table_name(number: u32) -> String {
    let mut known = entries("rt_tables", &TABLES);
    known.find(|(_, entry)| *entry == number).map_or_else(|| number.to_string(), |(name, _)| name)
}

/// The names that are known, then those of files.
fn entries(list: &'static str, known: &'static [(&'static str, u32)]) -> impl Iterator<Item = (String, u32)> {
    let of_files = FOLDERS.iter().flat_map(move |folder| files(Path::new(folder), list)).flat_map(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        parse(&text).collect::<Vec<_>>()
    });
    known.iter().map(|(name, number)| ((*name).to_owned(), *number)).chain(of_files)
}

fn files(folder: &Path, list: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder.join(format!("{list}.d"))).into_iter().flatten().flatten();
    let more = listed.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "conf"));
    std::iter::once(folder.join(list)).chain(more).collect()
}

/// The lines of a file: a number, decimal or hexadecimal, and a name; `#` begins a comment.
fn parse(text: &str) -> impl Iterator<Item = (String, u32)> {
    text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let number = words.next()?;
        let number = match number.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        Some((words.next()?.to_owned(), number.ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_names_and_numbers() {
        assert_eq!((table_number("main"), table_number("4711"), table_number("0")), (Some(254), Some(4711), None));
        assert_eq!((table_number("no-such-table"), table_number("-1")), (None, None));
        assert_eq!((table_name(254), table_name(4711)), ("main".to_owned(), "4711".to_owned()));
    }

    #[test]
    fn protocols_have_names_and_numbers() {
        let names = [188, 186, 11, 4, 2, 16, 9].map(protocol_name);
        assert_eq!(names, ["ospf", "bgp", "zebra", "static", "kernel", "dhcp", "ra"]);
        assert_eq!((protocol_name(251), protocol_number("251")), ("251", Some(251)));
        assert_eq!((protocol_number("bgp"), protocol_number("bpg"), protocol_number("256")), (Some(186), None, None));
    }

    #[test]
    fn lines_are_read() {
        let text = "# reserved\n255\tlocal\n0x64 uplink # the other one\n\n#1 inr.ruhep\nno number\n7\n";
        let read: Vec<_> = parse(text).collect();
        assert_eq!(read, [("local".to_owned(), 255), ("uplink".to_owned(), 100)]);
    }
}
