//! Targets of requests: paths and queries.

/// A target that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    /// The segments of the path, decoded; none for `/`. A segment may have slashes; nothing in them leads out of a
    /// folder.
    pub(crate) segments: Vec<String>,
    /// The pairs of the query, decoded.
    pub(crate) query: Vec<(String, String)>,
}

impl RequestTarget {
    /// Reads a path that begins with `/`, and a query. `None` if the path has empty segments, `.` or `..`, also between
    /// escaped slashes, if either has a malformed escape, or if decoding yields control characters, a backslash in the
    /// path, or anything but UTF-8.
    pub(crate) fn read(path: &str, query: Option<&str>) -> Option<RequestTarget> {
        let path = path.strip_prefix('/')?;
        let segment = |segment: &str| {
            let segment = decode(segment, false)?;
            let is_bad = segment.contains('\\') || segment.split('/').any(|part| matches!(part, "" | "." | ".."));
            (!is_bad).then_some(segment)
        };
        let segments =
            if path.is_empty() { Vec::new() } else { path.split('/').map(segment).collect::<Option<_>>()? };
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        };
        let pairs = query.unwrap_or("").split('&').filter(|pair| !pair.is_empty());
        Some(RequestTarget { segments, query: pairs.map(pair).collect::<Option<_>>()? })
    }
}

/// Decodes the escapes of a URL. In a query, `+` stands for a space.
fn decode(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                (high << 4 | low) as u8
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Escapes a text for a segment of a path or a value of a query.
    fn encode(text: &str) -> String {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let encode = |byte: u8| if fits(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        text.bytes().map(encode).collect()
    }

    #[test]
    fn paths_are_decoded_and_those_that_lead_elsewhere_refused() {
        let read = |path: &str| RequestTarget::read(path, None).map(|target| target.segments);
        assert_eq!(read("/"), Some(vec![]));
        assert_eq!(read("/a/b%20c/%C3%A4"), Some(vec!["a".into(), "b c".into(), "ä".into()]));
        // A name may contain a slash, but does not become two segments.
        assert_eq!(read("/root%2Fone"), Some(vec!["root/one".into()]));
        let bad = [
            "",
            "a",
            "//",
            "/a//b",
            "/a/",
            "/../etc",
            "/%2e%2e/etc",
            "/a/./b",
            "/x/..%2F..%2Fetc",
            "/x/a%2F..",
            "/x/a%2f.%2fb",
            "/x/%2Fetc",
            "/x/a%2F%2Fb",
            "/x/a%2F",
            "/%2F",
            "/a%00",
            "/a%0a",
            "/a\\b",
            "/a%5Cb",
            "/%",
            "/%4",
            "/%zz",
            "/%ff",
            "/%C3",
        ];
        for path in bad {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn queries_are_pairs() {
        let read = |query: &str| RequestTarget::read("/", Some(query)).map(|target| target.query);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("a=1&&b=x+y%26z&c"), Some(vec![pair("a", "1"), pair("b", "x y&z"), pair("c", "")]));
        assert_eq!(read("a=%0"), None);
        assert_eq!(read("a=%0d%0a"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_escaped_is_read_back(name in "[^\\p{Cc}]{1,20}", value in "[^\\p{Cc}]{0,20}") {
            let path = format!("/x/{}", encode(&name));
            let query = format!("{}={}", encode(&name), encode(&value));
            let target = RequestTarget::read(&path, Some(&query));
            if name.contains('\\') || name.split('/').any(|part| ["", ".", ".."].contains(&part)) {
                prop_assert_eq!(target, None);
            } else {
                let target = target.unwrap();
                prop_assert_eq!(&target.segments[1], &name);
                prop_assert_eq!(&target.query[0], &(name, value));
            }
        }

        /// Any text is read or refused, and what is read leads nowhere else.
        #[test]
        fn any_text_is_read_or_refused(
            path in "(/|\\.|%2[fFeE]|[%a-f0-9\\\\]){0,20}",
            query in any::<String>(),
        ) {
            if let Some(target) = RequestTarget::read(&format!("/{path}"), Some(&query)) {
                for segment in target.segments {
                    for part in segment.split('/') {
                        prop_assert!(!["", ".", ".."].contains(&part) && !part.contains('\\'), "{}", segment);
                    }
                    prop_assert!(!segment.chars().any(char::is_control));
                }
            }
        }
    }
}
