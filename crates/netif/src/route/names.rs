//! The names of the kernel's routing tables (`rt_tables` of iproute2).

use std::fs;
use std::path::{Path, PathBuf};

/// The names that every system knows.
const KNOWN: [(&str, u32); 3] = [("main", 254), ("default", 253), ("local", 255)];

/// Where names are kept: the administrator's files come before the distribution's.
const FOLDERS: [&str; 2] = ["/etc/iproute2", "/usr/share/iproute2"];

/// The number of a table by its name or number; `None` if there is no such name, or the number is 0.
pub fn table_number(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number).filter(|&number| number != 0);
    }
    entries().find(|(entry, _)| entry == name).map(|(_, number)| number)
}

/// The name of a table, or its number if it has none.
pub fn table_name(number: u32) -> String {
    entries().find(|(_, entry)| *entry == number).map_or_else(|| number.to_string(), |(name, _)| name)
}

fn entries() -> impl Iterator<Item = (String, u32)> {
    let of_files = FOLDERS.iter().flat_map(|folder| files(Path::new(folder))).flat_map(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        parse(&text).collect::<Vec<_>>()
    });
    KNOWN.into_iter().map(|(name, number)| (name.to_owned(), number)).chain(of_files)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder.join("rt_tables.d")).into_iter().flatten().flatten();
    let more = listed.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "conf"));
    std::iter::once(folder.join("rt_tables")).chain(more).collect()
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
    fn lines_are_read() {
        let text = "# reserved\n255\tlocal\n0x64 uplink # the other one\n\n#1 inr.ruhep\nno number\n7\n";
        let read: Vec<_> = parse(text).collect();
        assert_eq!(read, [("local".to_owned(), 255), ("uplink".to_owned(), 100)]);
    }
}
