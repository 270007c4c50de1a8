//! Links and their text form.

use std::fmt;

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// The app's name.
    pub app: String,
    /// The port's name.
    pub port: String,
}

impl End {
    /// Whether an app or a port can have this name.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || "<>".contains(c))
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.app, self.port)
    }
}

/// A link: packets go from an output of one app to an input of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkSpec {
    /// The output.
    pub from: End,
    /// The input.
    pub to: End,
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

    /// Parses `app.output -> app.input`. App names may contain dots; the port follows the last dot.
    fn from_str(text: &str) -> Result<LinkSpec, LinkSyntaxError> {
        let end = |text: &str| {
            let (app, port) = text.trim().rsplit_once('.')?;
            (End::is_name(app) && End::is_name(port)).then(|| End { app: app.to_owned(), port: port.to_owned() })
        };
        let parsed = text.split_once("->").and_then(|(from, to)| Some(LinkSpec { from: end(from)?, to: end(to)? }));
        parsed.ok_or_else(|| LinkSyntaxError(text.to_owned()))
    }
}

impl LinkSpec {
    /// One end of the link: the output that it starts at, or the input that it leads to.
    pub fn end(&self, side: Side) -> &End {
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
}
