//! Files of routes: a prefix and a number in each line.

use std::fmt;

use crate::{Prefix, PrefixError, Rib, Route};

/// The routes of both families in a text.
#[derive(Clone, Default)]
pub struct RouteFile {
    /// Those with IPv4 prefixes.
    pub ipv4: Rib<u32>,
    /// Those with IPv6 prefixes.
    pub ipv6: Rib<u128>,
}

/// Why a text is not one of routes.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteFileError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub reason: LineError,
}

/// Why a line is no route.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The first word is no prefix.
    #[error("`{0}` is no prefix: {1}")]
    Prefix(String, PrefixError),
    /// There is no second word.
    #[error("there is no number behind the prefix")]
    Missing,
    /// The second word is no number, or too large.
    #[error("`{0}` is no number of a route; give one up to {max}", max = crate::MAX_NEXT)]
    Number(String),
    /// More words.
    #[error("`{0}` is too much; a line has a prefix and a number")]
    More(String),
    /// The bytes are not UTF-8.
    #[error("the line is not text")]
    Encoding,
}

impl fmt::Display for RouteFileError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for RouteFileError {}

impl RouteFile {
    /// Reads lines of a prefix and a number, such as `192.0.2.0/24 7`. Empty lines, and what follows `#`, do not count. Of
    /// two lines with the same prefix, the later one counts.
    ///
    /// # Errors
    /// With the first line that is no route.
    pub fn parse(text: &[u8]) -> Result<RouteFile, RouteFileError> {
        // Files are mostly sorted, and sorted routes make a table at once.
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for (line, bytes) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let parsed = parse_line(bytes).map_err(|reason| RouteFileError { line, reason })?;
            match parsed {
                Some(Line::Ipv4(prefix, route)) => ipv4.push((prefix, route)),
                Some(Line::Ipv6(prefix, route)) => ipv6.push((prefix, route)),
                None => {}
            }
        }
        Ok(RouteFile { ipv4: Rib::of(ipv4), ipv6: Rib::of(ipv6) })
    }
}

enum Line {
    Ipv4(Prefix<u32>, Route),
    Ipv6(Prefix<u128>, Route),
}

fn parse_line(bytes: &[u8]) -> Result<Option<Line>, LineError> {
    let bytes = bytes.split(|&byte| byte == b'#').next().unwrap_or_default();
    let line = std::str::from_utf8(bytes).map_err(|_| LineError::Encoding)?;
    let mut words = line.split_ascii_whitespace();
    let Some(prefix) = words.next() else { return Ok(None) };
    let number = words.next().ok_or(LineError::Missing)?;
    let next = number.parse().ok().filter(|&next| next <= crate::MAX_NEXT);
    let route = Route { metric: 0, next: next.ok_or_else(|| LineError::Number(number.to_owned()))? };
    if let Some(more) = words.next() {
        return Err(LineError::More(more.to_owned()));
    }
    let error = |error| LineError::Prefix(prefix.to_owned(), error);
    Ok(Some(if prefix.contains(':') {
        Line::Ipv6(prefix.parse().map_err(error)?, route)
    } else {
        Line::Ipv4(prefix.parse().map_err(error)?, route)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_routes_comments_or_errors() {
        let text = b"# a table\n192.0.2.0/24 7\r\n\n 2001:db8::/32\t8 # documentation\n192.0.2.0/24 9\n198.51.100.1 3";
        let routes = RouteFile::parse(text).unwrap();
        let next = |prefix: &str| routes.ipv4.best(prefix.parse().unwrap()).map(|route| route.next);
        assert_eq!((next("192.0.2.0/24"), next("198.51.100.1/32"), routes.ipv4.len()), (Some(9), Some(3), 2));
        assert_eq!(routes.ipv6.best("2001:db8::/32".parse().unwrap()), Some(Route { metric: 0, next: 8 }));
        for (text, said) in [
            ("10.0.0.0/8 1\n10.0.0.0/33 1", "line 2: `10.0.0.0/33` is no prefix: "),
            ("10.0.0.1/8 1", "line 1: `10.0.0.1/8` is no prefix: "),
            ("10.0.0.0/8", "line 1: there is no number behind the prefix"),
            ("10.0.0.0/8 -1", "line 1: `-1` is no number of a route; give one up to 1073741822"),
            ("10.0.0.0/8 1073741823", "line 1: `1073741823` is no number"),
            ("10.0.0.0/8 1 2", "line 1: `2` is too much"),
        ] {
            let error = RouteFile::parse(text.as_bytes()).err().unwrap().to_string();
            assert!(error.starts_with(said), "{error}");
        }
        assert_eq!(RouteFile::parse(b"\xff").err().unwrap().reason, LineError::Encoding);
    }

    proptest! {
        #[test]
        fn any_bytes_are_routes_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RouteFile::parse(&text);
        }

        #[test]
        fn what_is_written_is_read(routes in proptest::collection::btree_map((any::<u32>(), 0..=32_u8), 0..9_u32, 0..50)) {
            let routes: std::collections::BTreeMap<Prefix<u32>, u32> = routes
                .into_iter()
                .filter_map(|((address, length), next)| Some((Prefix::of(address, length)?, next)))
                .collect();
            let text: String = routes.iter().map(|(prefix, next)| format!("{prefix} {next}\n")).collect();
            let read = RouteFile::parse(text.as_bytes()).unwrap().ipv4;
            prop_assert!(read.iter().map(|(prefix, route)| (prefix, route.next)).eq(routes));
        }
    }
}
