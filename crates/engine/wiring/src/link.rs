//! Links and their text form.

use std::fmt;

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkEnd {
    /// The app's name.
    pub app: String,
    /// The port's name.
    pub port: String,
}

impl LinkEnd {
    /// The maximum length of a name, in bytes.
    pub const MAX_NAME: usize = 255;

    /// The rule for names, for messages.
    pub const NAMES: &str = "use at most 255 bytes of letters, digits, `-`, `_` and `.`";

    /// Whether an app, a port or a worker can have this name. A name may be part of a command, a line or a page, so it
    /// has no blanks, no invisible characters and none that shells or markup interpret.
    pub fn is_name(name: &str) -> bool {
        // Letters without a shape.
        const FILLERS: [char; 6] = ['\u{115f}', '\u{1160}', '\u{17b4}', '\u{17b5}', '\u{3164}', '\u{ffa0}'];
        let fits = |c: char| c.is_alphanumeric() && !FILLERS.contains(&c) || "-_./:@+%,=#".contains(c);
        (1..=LinkEnd::MAX_NAME).contains(&name.len()) && name.chars().all(fits)
    }
}

impl std::str::FromStr for LinkEnd {
    type Err = LinkSyntaxError;

    /// Parses `app.port`. App names may contain dots; the port follows the last dot.
    fn from_str(text: &str) -> Result<LinkEnd, LinkSyntaxError> {
        let end = text.rsplit_once('.').filter(|(app, port)| LinkEnd::is_name(app) && LinkEnd::is_name(port));
        let end = end.map(|(app, port)| LinkEnd { app: app.to_owned(), port: port.to_owned() });
        end.ok_or_else(|| LinkSyntaxError(text.to_owned()))
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.app, self.port)
    }
}

/// A link: packets go from an output of one app to an input of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkSpec {
    /// The output.
    pub from: LinkEnd,
    /// The input.
    pub to: LinkEnd,
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} -> {}", self.from, self.to)
    }
}

/// A text is not a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a link; write it as `app.output -> app.input`")]
pub struct LinkSyntaxError(pub String);

impl std::str::FromStr for LinkSpec {
    type Err = LinkSyntaxError;

    /// Parses `app.output -> app.input`.
    fn from_str(text: &str) -> Result<LinkSpec, LinkSyntaxError> {
        let end = |text: &str| text.trim().parse().ok();
        let parsed = text.split_once("->").and_then(|(from, to)| Some(LinkSpec { from: end(from)?, to: end(to)? }));
        parsed.ok_or_else(|| LinkSyntaxError(text.to_owned()))
    }
}

impl LinkSpec {
    /// One end of the link: the output that it starts at, or the input that it leads to.
    pub fn end(&self, side: Side) -> &LinkEnd {
        match side {
            Side::Output => &self.from,
            Side::Input => &self.to,
        }
    }
}

/// The direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Packets enter the app.
    Input,
    /// Packets leave the app.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Side::Input => "input",
            Side::Output => "output",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_parsed_and_displayed() {
        let link: LinkSpec = " a.b.output->c.input ".parse().unwrap();
        assert_eq!(link.to_string(), "a.b.output -> c.input");
        for text in ["", "a.b", "a -> b.c", "a.b -> ", ".b -> c.d", "a. -> c.d", "a.b -> c.d -> e.f", "a b.c -> d.e"] {
            assert!(text.parse::<LinkSpec>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_are_harmless_wherever_they_are_written() {
        for name in ["a", "router/arp.lan", "eth0:1", "größe", "a@b", "x=1,2", "%1", "+", "名前", &"x".repeat(255)]
        {
            assert!(LinkEnd::is_name(name), "{name:?}");
        }
        let wrong = "\u{1b}\u{7f}\u{9b}\u{a0}\u{ad}\u{115f}\u{200b}\u{202e}\u{2066}\u{3164}\u{fe0f}\u{feff}\u{e0041} \t\n\r\
                     <>\"'`$\\;&|(){}[]*?!~^";
        for c in wrong.chars() {
            assert!(!LinkEnd::is_name(&format!("a{c}b")), "{c:?}");
        }
        for name in ["", &"x".repeat(256)] {
            assert!(!LinkEnd::is_name(name), "{name:?}");
        }
    }
}
