//! Other programs with filters, and the packets that they read.

use std::path::Path;
use std::str::FromStr;

use bellows_capture::{Interface, LinkType, Record, Writer, WriterOptions};

use super::IN_FLIGHT;
use super::filters::{Filter, Packets};
use crate::turns::Peer;

/// Another program with filters, which takes turns by the [protocol](crate::workers) of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProgram {
    pub(super) name: String,
    /// The program and its arguments. Appended: the processor to run on, the expression, and a capture for each kind of
    /// [`Packets`].
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
    /// The program for a filter whose packets are in a folder.
    pub(super) fn peer(&self, filter: Filter, folder: &Path, processor: usize) -> Peer {
        let captures = Packets::MEASURED.map(|packets| folder.join(packets.name()).display().to_string());
        let conditions = [processor.to_string(), filter.expression()];
        let arguments = self.command[1..].iter().cloned().chain(conditions).chain(captures);
        Peer { program: self.command[0].clone(), arguments: arguments.collect() }
    }
}

/// Writes the packets for a filter to a folder.
pub(super) fn write_packets(filter: Filter, folder: &Path) -> Result<(), bellows_capture::Error> {
    for packets in Packets::MEASURED {
        let path = folder.join(packets.name());
        let mut writer = Writer::create(path, WriterOptions::default(), &[Interface::new(LinkType::ETHERNET)])?;
        for (frame, _) in packets.frames(filter, IN_FLIGHT) {
            writer.write(&Record { data: &frame, timestamp: 0, original_length: frame.len() as u32, interface: 0 })?;
        }
        writer.finish()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_name_and_gets_the_conditions() {
        let program: OtherProgram = "dpdk=target/peer dpdk".parse().unwrap();
        let Peer { program, arguments } = program.peer(Filter::TcpPort, Path::new("/tmp"), 1);
        assert_eq!(program, "target/peer");
        assert_eq!(arguments, ["dpdk", "1", "tcp port 5555", "/tmp/matching", "/tmp/other", "/tmp/mixed"]);
        for text in ["dpdk", "dpdk=", "=target/peer"] {
            assert!(text.parse::<OtherProgram>().is_err(), "{text}");
        }
    }
}
