//! Other programs that take turns with this one.

use std::str::FromStr;

use crate::turns::Peer;

/// Another program, which takes turns by the [protocol](crate::workers) of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProgram {
    pub(crate) name: String,
    /// The program and its arguments.
    command: Vec<String>,
}

impl FromStr for OtherProgram {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherProgram, String> {
        let (name, command) = text.split_once('=').unwrap_or_default();
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        match name.is_empty() || command.is_empty() {
            true => Err("give NAME=PROGRAM ARGUMENT …".to_owned()),
            false => Ok(OtherProgram { name: name.to_owned(), command }),
        }
    }
}

impl OtherProgram {
    /// The program with further arguments.
    pub(crate) fn with(&self, further: impl IntoIterator<Item = String>) -> Peer {
        Peer { program: self.command[0].clone(), arguments: self.command[1..].iter().cloned().chain(further).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_name_and_gets_further_arguments() {
        let program: OtherProgram = "dpdk=target/peer dpdk".parse().unwrap();
        let Peer { program, arguments } = program.with(["1".to_owned(), "tcp port 5555".to_owned()]);
        assert_eq!(program, "target/peer");
        assert_eq!(arguments, ["dpdk", "1", "tcp port 5555"]);
        for text in ["dpdk", "dpdk=", "=target/peer"] {
            assert!(text.parse::<OtherProgram>().is_err(), "{text}");
        }
    }
}
