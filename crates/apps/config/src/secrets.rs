//! Keys in the texts of files that diagnostics and reports show.

/// Digits in a row that may be a key or most of one: more than those of numbers of 64 bits.
const MIN_DIGITS: usize = 20;

/// A text with what may be a key hidden: the value of each key `key`, as far as it is in quotes, and long rows of
/// hexadecimal digits. It has as many bytes in each line as before.
pub(crate) fn hidden(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for line in bytes.split_mut(|&byte| byte == b'\n') {
        hide_digits(line);
        hide_values(line);
    }
    // Whole characters were replaced: those between quotes, and digits.
    String::from_utf8(bytes).unwrap_or_default()
}

fn hide_digits(line: &mut [u8]) {
    for row in line.chunk_by_mut(|one, other| one.is_ascii_hexdigit() == other.is_ascii_hexdigit()) {
        if row.len() >= MIN_DIGITS && row[0].is_ascii_hexdigit() {
            row.fill(b'*');
        }
    }
}

/// Hides what follows the word `key` in quotes, or from the quote to the end of the line if it is the only one.
fn hide_values(line: &mut [u8]) {
    let mut from = 0;
    while let Some(value) = next_value(line, from) {
        let quote = line[value];
        let end = line[value + 1..].iter().position(|&byte| byte == quote).map_or(line.len(), |at| value + 1 + at);
        line[value + 1..end].fill(b'*');
        from = end;
    }
}

/// Where the quote of the next value is.
fn next_value(line: &[u8], from: usize) -> Option<usize> {
    const KEY: &[u8] = b"key";
    (from..line.len()).find_map(|at| {
        let rest = line.get(at..)?.strip_prefix(KEY)?;
        let is_word = at == 0 || !is_of_word(line[at - 1]);
        let quote = rest.iter().position(|byte| !b" \t=[\"'".contains(byte) || b"\"'".contains(byte))?;
        let is_value = rest[..quote].contains(&b'=') && b"\"'".contains(&rest[quote]);
        (is_word && is_value).then_some(at + KEY.len() + quote)
    })
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hidden_and_nothing_else() {
        for (text, expected) in [
            ("a = 1\nkey = \"ab é\" # c", "a = 1\nkey = \"*****\" # c"),
            ("{ spi = 3, key='00', esn = 5 }", "{ spi = 3, key='**', esn = 5 }"),
            ("key = [ \"zz\", \"00\" ]", "key = [ \"**\", \"00\" ]"),
            ("key = \"abc", "key = \"***"),
            (
                "key = 7, name = \"x\", monkey = \"y\", key_file = \"z\"",
                "key = 7, name = \"x\", monkey = \"y\", key_file = \"z\"",
            ),
            ("kye = 0x0123456789abcdef0123, b", "kye = 0x********************, b"),
            ("cookie = \"0123456789abcdef\"", "cookie = \"0123456789abcdef\""),
            ("mac = \"02:00:00:00:00:01\", v6 = \"2001:db8::1\"", "mac = \"02:00:00:00:00:01\", v6 = \"2001:db8::1\""),
            ("", ""),
        ] {
            assert_eq!(hidden(text), expected);
        }
    }
}
