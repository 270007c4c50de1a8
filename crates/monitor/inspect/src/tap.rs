//! The packets of a link: what a tap sends, read into a sink, which may be a capture file.

use std::io::{BufReader, Read, Write};

use bellows_capture::{Error, Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_engine::TapRecord;

use crate::control::frame::{Frame, TapEnd};

/// Takes the packets of a tap.
pub trait Sink {
    /// Why it cannot take one.
    type Error;

    /// Takes a packet.
    ///
    /// # Errors
    /// They end the tap.
    fn take(&mut self, record: TapRecord) -> Result<TapTaken, Self::Error>;

    /// Has taken all that has arrived. The next packet may take long, so these can be shown.
    ///
    /// # Errors
    /// They end the tap.
    fn pause(&mut self, _: &Counts) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// What a sink has done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapTaken {
    /// It has kept the packet.
    Kept,
    /// It has kept the packet, and takes no more.
    Last,
    /// It has left the packet out: its link type is not that of the first one.
    Foreign,
}

/// The reason why no more packets are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapStop {
    /// The other side has reported it.
    Told(TapEnd),
    /// There are as many packets as were requested.
    Count,
    /// The sink takes no more.
    Full,
}

/// The packets of a tap so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the sink has kept.
    pub packets: u64,
    /// Packets that passed the link and were not copied.
    pub missed: u64,
    /// Packets that were left out because their link type is not that of the first one.
    pub foreign: u64,
    /// Packets that were left out because the filter does not apply to their link type.
    pub undecided: u64,
}

impl Counts {
    /// Gives a sink the packets of a stream as they arrive, `most` of them at most. `is_wanted` is the filter: whether a
    /// packet matches; nothing if the filter does not apply to it. The counts are right after an error, too.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn read<S: Sink>(
        &mut self,
        stream: &mut BufReader<impl Read>,
        most: Option<u64>,
        mut is_wanted: impl FnMut(&TapRecord) -> Option<bool>,
        sink: &mut S,
    ) -> Result<TapStop, S::Error> {
        while most.is_none_or(|most| self.packets < most) {
            // Without a frame, the run is over.
            match Frame::read(stream).ok().flatten().unwrap_or(Frame::End(TapEnd::Over)) {
                Frame::Packet(record) => match is_wanted(&record) {
                    Some(true) => {
                        let taken = sink.take(record)?;
                        let count = if taken == TapTaken::Foreign { &mut self.foreign } else { &mut self.packets };
                        *count += 1;
                        if taken == TapTaken::Last && most.is_none_or(|most| self.packets < most) {
                            return Ok(TapStop::Full);
                        }
                    }
                    Some(false) => {}
                    None => self.undecided += 1,
                },
                Frame::Missed(so_far) => self.missed = so_far,
                Frame::End(why) => return Ok(TapStop::Told(why)),
            }
            if stream.buffer().is_empty() {
                sink.pause(self)?;
            }
        }
        Ok(TapStop::Count)
    }
}

/// A pcap file that is being written, with times in nanoseconds. A file has one link type: that of the first packet, or
/// Ethernet if there is none.
pub struct CaptureFile<W: Write> {
    name: String,
    snap_length: u32,
    /// The destination, until the first packet.
    to: Option<W>,
    /// The file and its link type.
    started: Option<(Writer<W>, u32)>,
}

impl<W: Write> CaptureFile<W> {
    /// Writes to `to`, whose name errors give. Keeps this number of bytes of each packet. Nothing is written yet.
    pub fn new(to: W, name: impl Into<String>, snap_length: u32) -> CaptureFile<W> {
        CaptureFile { name: name.into(), snap_length, to: Some(to), started: None }
    }

    fn start(&mut self, link_type: u32) -> Result<(), Error> {
        if let Some(to) = self.to.take() {
            let format = OutputFormat::PcapNanoseconds;
            let options = WriterOptions { format, snap_length: self.snap_length, ..WriterOptions::default() };
            let writer = Writer::new(to, &self.name, options, &[Interface::new(LinkType(link_type))])?;
            self.started = Some((writer, link_type));
        }
        Ok(())
    }

    /// The size of the file so far.
    pub fn size(&self) -> u64 {
        self.started.as_ref().map_or(0, |(writer, _)| writer.bytes_written())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.started.as_mut().map_or(Ok(()), |(writer, _)| writer.flush())
    }

    /// Completes the file, which is a capture without packets if there were none.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<(), Error> {
        self.start(LinkType::ETHERNET.0)?;
        self.flush()
    }
}

impl<W: Write> Sink for CaptureFile<W> {
    type Error = Error;

    /// Writes a packet, unless the file has another link type.
    ///
    /// # Errors
    /// Those of writing; a packet whose time or link type a pcap file cannot have.
    fn take(&mut self, record: TapRecord) -> Result<TapTaken, Error> {
        self.start(record.link_type)?;
        let TapRecord { at: timestamp, length: original_length, link_type, bytes } = record;
        match &mut self.started {
            Some((writer, of_file)) if *of_file == link_type => {
                writer.write(&Record { data: &bytes, timestamp, original_length, interface: 0 })?;
                Ok(TapTaken::Kept)
            }
            _ => Ok(TapTaken::Foreign),
        }
    }

    fn pause(&mut self, _: &Counts) -> Result<(), Error> {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use bellows_capture::Reader;

    use super::*;

    const ETHERNET: u32 = 1;
    const RAW: u32 = 101;

    fn record(at: u64, link_type: u32) -> TapRecord {
        TapRecord { at, length: 1_514, link_type, bytes: vec![at as u8; 64] }
    }

    fn packet(at: u64, link_type: u32) -> Frame {
        Frame::Packet(record(at, link_type))
    }

    fn stream(frames: &[Frame]) -> BufReader<Cursor<Vec<u8>>> {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes));
        BufReader::new(Cursor::new(bytes))
    }

    /// Packets with times that are odd match. The filter does not apply to link types from 1,000.
    fn is_odd(record: &TapRecord) -> Option<bool> {
        (record.link_type < 1_000).then_some(record.at % 2 == 1)
    }

    /// A sink that takes packets until it has `room`, and fails at a time of 99.
    struct Times {
        taken: Vec<u64>,
        room: usize,
        pauses: Vec<Counts>,
    }

    impl Times {
        fn new() -> Times {
            Times { taken: Vec::new(), room: usize::MAX, pauses: Vec::new() }
        }
    }

    impl Sink for Times {
        type Error = &'static str;

        fn take(&mut self, record: TapRecord) -> Result<TapTaken, &'static str> {
            if record.at == 99 {
                return Err("99");
            }
            self.taken.push(record.at);
            Ok(if self.taken.len() < self.room { TapTaken::Kept } else { TapTaken::Last })
        }

        fn pause(&mut self, counts: &Counts) -> Result<(), &'static str> {
            self.pauses.push(*counts);
            Ok(())
        }
    }

    /// What a capture file of these packets has: its link type, and the times of its packets.
    fn written(frames: &[Frame], snap_length: u32) -> (Counts, u32, Vec<u64>) {
        let (mut counts, mut bytes) = (Counts::default(), Vec::<u8>::new());
        let mut file = CaptureFile::new(&mut bytes, "memory", snap_length);
        counts.read(&mut stream(frames), None, is_odd, &mut file).unwrap();
        let size = file.size();
        file.finish().unwrap();
        assert!(size == bytes.len() as u64 || size == 0 && counts.packets == 0);
        let mut reader = Reader::new(Cursor::new(bytes), "memory").unwrap();
        let mut times = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!((record.data.len(), record.original_length), (snap_length.min(64) as usize, 1_514));
            times.push(record.timestamp);
        }
        (counts, reader.interfaces()[0].link_type.0, times)
    }

    #[test]
    fn packets_are_filtered_and_counted() {
        let frames = [
            Frame::Missed(2),
            packet(1, ETHERNET),
            packet(2, ETHERNET),
            packet(3, 1_000),
            packet(5, RAW),
            Frame::Missed(7),
            Frame::End(TapEnd::Gone),
            packet(7, ETHERNET),
        ];
        let (mut counts, mut times) = (Counts::default(), Times::new());
        let end = counts.read(&mut stream(&frames), None, is_odd, &mut times);
        assert_eq!((end, &*times.taken), (Ok(TapStop::Told(TapEnd::Gone)), &[1, 5][..]));
        assert_eq!(counts, Counts { packets: 2, missed: 7, foreign: 0, undecided: 1 });
    }

    #[test]
    fn a_stream_without_an_end_is_that_of_a_run_that_is_over() {
        let mut whole = Vec::new();
        [packet(1, ETHERNET), packet(3, ETHERNET)].iter().for_each(|frame| frame.write(&mut whole));
        for (cut, expected) in [(0, &[1, 3][..]), (1, &[1][..]), (whole.len() / 2, &[1][..]), (whole.len(), &[][..])] {
            let (mut counts, mut times) = (Counts::default(), Times::new());
            let mut stream = BufReader::new(&whole[..whole.len() - cut]);
            let end = counts.read(&mut stream, None, |_| Some(true), &mut times);
            assert_eq!((end, &*times.taken), (Ok(TapStop::Told(TapEnd::Over)), expected), "{cut}");
        }
    }

    #[test]
    fn a_count_a_full_sink_and_an_error_end_a_tap() {
        let frames = [packet(1, RAW), packet(2, RAW), packet(3, RAW), packet(5, RAW), packet(99, RAW)];
        for (most, room, expected, packets) in [
            (Some(2), usize::MAX, Ok(TapStop::Count), 2),
            (Some(0), usize::MAX, Ok(TapStop::Count), 0),
            (Some(2), 2, Ok(TapStop::Count), 2),
            (Some(9), 2, Ok(TapStop::Full), 2),
            (None, 1, Ok(TapStop::Full), 1),
            (None, usize::MAX, Err("99"), 3),
        ] {
            let (mut counts, mut times) = (Counts::default(), Times { room, ..Times::new() });
            let end = counts.read(&mut stream(&frames), most, is_odd, &mut times);
            assert_eq!((end, counts.packets, times.taken.len()), (expected, packets, packets as usize));
        }
    }

    #[test]
    fn a_sink_pauses_when_all_that_has_arrived_is_taken() {
        /// A stream whose packets arrive one by one.
        struct OneByOne(Vec<Vec<u8>>);
        impl Read for OneByOne {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                let Some(next) = (!self.0.is_empty()).then(|| self.0.remove(0)) else { return Ok(0) };
                to[..next.len()].copy_from_slice(&next);
                Ok(next.len())
            }
        }
        let bytes = |frames: &[Frame]| {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.write(&mut bytes));
            bytes
        };
        let arrivals = [&[packet(1, RAW), packet(3, RAW)][..], &[packet(2, RAW)], &[Frame::Missed(4)]].map(bytes);
        let (mut counts, mut times) = (Counts::default(), Times::new());
        let mut stream = BufReader::new(OneByOne(arrivals.to_vec()));
        counts.read(&mut stream, None, is_odd, &mut times).unwrap();
        let pauses: Vec<_> = times.pauses.iter().map(|counts| (counts.packets, counts.missed)).collect();
        assert_eq!(pauses, [(2, 0), (2, 0), (2, 4)]);
    }

    #[test]
    fn a_capture_file_has_the_link_type_of_the_first_packet_that_is_wanted() {
        let frames = [packet(2, ETHERNET), packet(3, 1_000), packet(5, RAW), packet(7, ETHERNET), packet(9, RAW)];
        let counts = Counts { packets: 2, missed: 0, foreign: 1, undecided: 1 };
        assert_eq!(written(&frames, 262_144), (counts, RAW, vec![5, 9]));
        assert_eq!(written(&frames, 20), (counts, RAW, vec![5, 9]));
    }

    #[test]
    fn a_capture_file_without_packets_is_one_of_ethernet() {
        let counts = Counts { missed: 3, ..Counts::default() };
        assert_eq!(written(&[packet(2, RAW), Frame::Missed(3)], 262_144), (counts, ETHERNET, vec![]));
    }

    #[test]
    fn a_link_type_that_a_file_cannot_have_is_an_error() {
        let mut bytes = Vec::<u8>::new();
        let mut file = CaptureFile::new(&mut bytes, "memory", 20);
        assert!(file.take(record(1, u32::MAX)).is_err());
        file.finish().unwrap();
        assert!(bytes.is_empty(), "nothing is written");
    }
}
