//! The stream after the reply to a tap: frames, each a type byte followed by little-endian numbers.
//!
//! | type byte | contents |
//! |---|---|
//! | 1 | a packet: time (8 bytes, nanoseconds since the Unix epoch), length (4), link type as numbered by pcap (4), number of captured bytes (4), these bytes |
//! | 2 | the number of packets missed so far (8) |
//! | 3 | the end: 0 if the client requested it, 1 if the link is gone, 2 if the run is over (1) |

use std::io::{self, Read};

use bellows_engine::TapRecord;

/// The maximum length of a packet: that of the largest buffers.
const MAX_PACKET: usize = 1 << 20;

const PACKET: u8 = 1;
const MISSED: u8 = 2;
const END: u8 = 3;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A packet that passed the link.
    Packet(TapRecord),
    /// Missed packets: the total number that passed the link and were not copied.
    Missed(u64),
    /// The end of the stream.
    End(TapEnd),
}

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapEnd {
    /// The client requested it.
    Requested,
    /// The link no longer exists.
    Gone,
    /// The run is over.
    Over,
}

impl Frame {
    /// Appends the frame.
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            Frame::Packet(TapRecord { at, length, link_type, bytes }) => {
                to.push(PACKET);
                to.extend(at.to_le_bytes());
                to.extend(length.to_le_bytes());
                to.extend(link_type.to_le_bytes());
                to.extend((bytes.len() as u32).to_le_bytes());
                to.extend(bytes);
            }
            Frame::Missed(packets) => {
                to.push(MISSED);
                to.extend(packets.to_le_bytes());
            }
            Frame::End(why) => to.extend([END, *why as u8]),
        }
    }

    /// Reads a frame; `None` at the end of the stream.
    ///
    /// # Errors
    /// Those of reading, an end within a frame, or an invalid frame.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut kind = [0];
        loop {
            match from.read(&mut kind) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(match kind[0] {
            PACKET => {
                let (at, length, link_type) = (number(from)?, short_number(from)?, short_number(from)?);
                let kept = short_number(from)? as usize;
                if kept > MAX_PACKET {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
                }
                let mut bytes = vec![0; kept];
                from.read_exact(&mut bytes)?;
                Frame::Packet(TapRecord { at, length, link_type, bytes })
            }
            MISSED => Frame::Missed(number(from)?),
            END => {
                let mut why = [0];
                from.read_exact(&mut why)?;
                Frame::End(match why[0] {
                    0 => TapEnd::Requested,
                    1 => TapEnd::Gone,
                    _ => TapEnd::Over,
                })
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "not a frame")),
        }))
    }
}

fn number(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn short_number(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let packet = TapRecord { at: u64::MAX, length: 1_514, link_type: 101, bytes: (0..64).collect() };
        let ends = [TapEnd::Requested, TapEnd::Gone, TapEnd::Over].map(Frame::End);
        let frames = [Frame::Packet(packet), Frame::Missed(7)].into_iter().chain(ends);
        let mut bytes = Vec::new();
        frames.clone().for_each(|frame| frame.write(&mut bytes));
        let mut rest = &bytes[..];
        for frame in frames {
            assert_eq!(Frame::read(&mut rest).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn invalid_frames_are_errors() {
        let mut endless = vec![PACKET; 17];
        endless[13..].fill(0xff);
        for bytes in [&[0][..], &[9], &[PACKET, 1, 2], &[MISSED], &[END], &endless] {
            assert!(Frame::read(&mut &*bytes).is_err(), "{bytes:?}");
        }
    }
}
