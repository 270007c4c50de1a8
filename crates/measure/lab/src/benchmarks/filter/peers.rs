//! Other programs with filters, and the packets that they read.

use std::path::Path;

use bellows_capture::{Interface, LinkType, Record, Writer, WriterOptions};

use super::IN_FLIGHT;
use super::filters::{Filter, Packets};
use crate::programs::OtherProgram;
use crate::turns::Peer;

/// A program for a filter whose packets are in a folder. Its further arguments: the processor to run on, the expression, and
/// a capture for each kind of [`Packets`].
pub(super) fn peer(program: &OtherProgram, filter: Filter, folder: &Path, processor: usize) -> Peer {
    let captures = Packets::MEASURED.map(|packets| folder.join(packets.name()).display().to_string());
    program.with([processor.to_string(), filter.expression()].into_iter().chain(captures))
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
    fn a_program_gets_the_conditions() {
        let program = "dpdk=target/peer dpdk".parse().unwrap();
        let Peer { program, arguments } = peer(&program, Filter::TcpPort, Path::new("/tmp"), 1);
        assert_eq!(program, "target/peer");
        assert_eq!(arguments, ["dpdk", "1", "tcp port 5555", "/tmp/matching", "/tmp/other", "/tmp/mixed"]);
    }
}
