//! The writer of capture files.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::format::{Endianness, Format, Interface, LinkType, Record, TimestampResolution};
use crate::{pcap, pcapng};

const CAPACITY: usize = 256 << 10;

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputFormat {
    /// Classic pcap with microseconds, which every tool can read.
    #[default]
    PcapMicroseconds,
    /// Classic pcap with nanoseconds.
    PcapNanoseconds,
    /// pcapng, with nanoseconds.
    Pcapng,
}

/// Options of a writer. The default is pcap with microseconds, little-endian, without truncation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WriterOptions {
    /// The format.
    pub format: OutputFormat,
    /// The file's byte order. It matters to readers only for link types whose headers are in the byte order of the
    /// capturing machine (such as [`LinkType::NULL`] and USB): copy those from file to file in the same order.
    pub endianness: Endianness,
    /// The maximum number of bytes to keep of a packet; 0 for the maximum of its link type.
    pub snap_length: u32,
}

impl WriterOptions {
    /// The format of a file that is being read.
    pub fn like(format: Format) -> Self {
        let output = match format {
            Format::Pcap { resolution: TimestampResolution::NANOSECONDS, .. } => OutputFormat::PcapNanoseconds,
            Format::Pcap { .. } => OutputFormat::PcapMicroseconds,
            Format::Pcapng { .. } => OutputFormat::Pcapng,
        };
        Self { format: output, endianness: format.endianness(), snap_length: 0 }
    }
}

/// Writes records to a capture file, through a buffer of 256 KiB.
///
/// Call [`finish`](Self::finish) to learn of write errors. A writer that is dropped writes its buffer, but cannot
/// report errors.
///
/// # Write errors
/// No data is lost: bytes that the sink has not taken stay in the buffer, and the next [`flush`](Self::flush)
/// continues where the last one failed, for example on a disk that has room again. Meanwhile
/// [`records_taken`](Self::records_taken) are complete in the sink. A part of one more may follow them, which
/// [`step_back`](Self::step_back) helps to cut off.
#[derive(Debug)]
pub struct Writer<W: Write> {
    name: Arc<str>,
    options: WriterOptions,
    /// The maximum number of bytes to keep of a packet, and the link type, for each interface.
    interfaces: Vec<(u32, LinkType)>,
    records: u64,
    /// `None` only after it was given back.
    sink: Option<W>,
    /// The next bytes of the file: complete records and blocks.
    buffer: Vec<u8>,
    /// The number of these bytes that the sink has taken.
    sent: usize,
    /// Bytes and records of the file before the buffer.
    base: u64,
    base_records: u64,
}

/// The maximum number of bytes that a format adds to the data of a packet.
const MAX_BLOCK_OVERHEAD: usize = 40;

/// The fill level above which the buffer is flushed first: the largest packets of most link types fit.
const FLUSH_AT: usize = CAPACITY + MAX_BLOCK_OVERHEAD;

impl Writer<File> {
    /// Creates or truncates the file at `path`, and writes the start of a capture of `interfaces`.
    ///
    /// # Errors
    ///
    /// If the file cannot be created or written. Also those of [`Writer::new`]; then no file is touched.
    pub fn create(path: impl AsRef<Path>, options: WriterOptions, interfaces: &[Interface]) -> Result<Self, Error> {
        let name: Arc<str> = path.as_ref().to_string_lossy().into();
        check(options, &[], interfaces).map_err(|kind| Error::new(&name, kind))?;
        let file = File::create(path).map_err(|error| Error::new(&name, ErrorKind::Create(error)))?;
        Self::new(file, &name, options, interfaces)
    }
}

impl<W: Write> Writer<W> {
    /// Starts a capture in `sink`. Errors call it `name`.
    ///
    /// The records' interface numbers are indices into `interfaces`. The `snap_length` of an interface is only written
    /// to the file; packets are truncated to that of `options` alone. `resolution` is that of the format.
    ///
    /// # Errors
    ///
    /// If writing fails; if a link type has more bits than the format allows (16, in pcap 26); for pcap, if there is no
    /// interface or their link types differ.
    pub fn new(
        sink: W,
        name: impl AsRef<str>,
        options: WriterOptions,
        interfaces: &[Interface],
    ) -> Result<Self, Error> {
        let name: Arc<str> = name.as_ref().into();
        check(options, &[], interfaces).map_err(|kind| Error::new(&name, kind))?;
        let mut writer = Self {
            name,
            options,
            interfaces: Vec::new(),
            records: 0,
            sink: Some(sink),
            buffer: Vec::with_capacity(FLUSH_AT),
            sent: 0,
            base: 0,
            base_records: 0,
        };
        match options.format {
            OutputFormat::Pcapng => writer.write_section_header(),
            _ => writer.write_file_header(interfaces)?,
        }
        for interface in interfaces {
            writer.add_interface(interface)?;
        }
        Ok(writer)
    }

    /// Adds an interface, and returns its number. In a pcap file, which has no interface numbers, this writes nothing.
    ///
    /// # Errors
    ///
    /// Like [`new`](Self::new).
    pub fn add_interface(&mut self, interface: &Interface) -> Result<u32, Error> {
        check(self.options, &self.interfaces, std::slice::from_ref(interface))
            .map_err(|kind| Error::new(&self.name, kind))?;
        if self.options.format == OutputFormat::Pcapng {
            self.write_interface_description(interface);
        }
        self.interfaces.push((self.limit(interface.link_type), interface.link_type));
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes a record. Allocates and makes a system call only once in 256 KiB.
    ///
    /// # Errors
    ///
    /// If writing fails, the record's interface is unknown, or (pcap) its time is beyond 2106-02-07. In the latter two
    /// cases the file is unchanged, and further records may be written.
    #[inline]
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Some(&(limit, _)) = self.interfaces.get(record.interface as usize) else {
            return Err(self.unknown_interface(record.interface));
        };
        let data = &record.data[..record.data.len().min(limit as usize)];
        if !self.has_room(data.len()) {
            self.flush()?;
        }
        match self.options.format {
            OutputFormat::Pcapng => self.write_enhanced_packet(record, data),
            OutputFormat::PcapMicroseconds => self.write_pcap_record(record, data, 1000)?,
            OutputFormat::PcapNanoseconds => self.write_pcap_record(record, data, 1)?,
        }
        self.records += 1;
        Ok(())
    }

    /// Whether [`write`](Self::write) can buffer a packet of this many bytes without using the sink. An empty buffer
    /// takes any packet.
    #[inline]
    pub fn has_room(&self, length: usize) -> bool {
        self.buffer.is_empty() || self.buffer.len() + length + MAX_BLOCK_OVERHEAD <= FLUSH_AT
    }

    /// Passes all buffered bytes to the sink, and flushes it.
    ///
    /// # Errors
    ///
    /// If writing fails. Bytes that the sink has not taken are kept for the next call.
    pub fn flush(&mut self) -> Result<(), Error> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        let mut done = Ok(());
        while done.is_ok() && self.sent < self.buffer.len() {
            match sink.write(&self.buffer[self.sent..]) {
                Ok(0) => done = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => done = Err(error),
            }
        }
        if let Err(source) = done.and_then(|()| sink.flush()) {
            return Err(self.write_failed(source));
        }
        self.base += self.buffer.len() as u64;
        self.base_records = self.records;
        self.sent = 0;
        self.buffer.clear();
        self.buffer.shrink_to(FLUSH_AT);
        Ok(())
    }

    /// Moves the part of a record that the sink took before it failed, if any, back to the buffer. Returns the end of
    /// the last complete record in the file: the caller must cut the sink there and continue there.
    pub fn step_back(&mut self) -> u64 {
        let (whole, records) = self.whole();
        self.buffer.drain(..whole);
        self.base += whole as u64;
        self.base_records += records;
        self.sent = 0;
        self.base
    }

    /// Of the bytes sent from the buffer, those of complete records and blocks, and the number of these records.
    fn whole(&self) -> (usize, u64) {
        let (mut end, mut records) = (0, 0);
        loop {
            let rest = &self.buffer[end..self.sent];
            let field = |at: usize| Some(self.options.endianness.u32(rest.get(..at + 4)?, at));
            let (length, is_record) = match self.options.format {
                OutputFormat::Pcapng => (field(4), field(0) == Some(pcapng::ENHANCED_PACKET)),
                _ if self.base == 0 && end == 0 => (Some(pcap::FILE_HEADER as u32), false),
                _ => (field(8).map(|captured| captured + pcap::RECORD_HEADER as u32), true),
            };
            let Some(length) = length.map(|length| length as usize).filter(|&length| length <= rest.len()) else {
                return (end, records);
            };
            end += length;
            records += u64::from(is_record);
            if length == 0 {
                return (end, records);
            }
        }
    }

    /// The sink, for operations other than writing, such as truncating it.
    ///
    /// # Panics
    ///
    /// Never: the sink exists until the writer is given up.
    pub fn sink_mut(&mut self) -> &mut W {
        let Some(sink) = &mut self.sink else { unreachable!("the sink is there") };
        sink
    }

    /// Gives the sink back as it is, and discards the buffer.
    ///
    /// # Panics
    ///
    /// Never, like [`sink_mut`](Self::sink_mut).
    pub fn abandon(mut self) -> W {
        let Some(sink) = self.sink.take() else { unreachable!("the sink is there") };
        sink
    }

    /// Flushes, and gives the sink back.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        Ok(self.abandon())
    }

    /// Size of the file so far, including the buffer.
    pub fn bytes_written(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Records written so far, including those in the buffer.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Complete records in the sink.
    pub fn records_taken(&self) -> u64 {
        self.base_records + if self.sent == 0 { 0 } else { self.whole().1 }
    }

    /// The number of interfaces in the file.
    pub fn interfaces(&self) -> usize {
        self.interfaces.len()
    }

    /// The file's name, as in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    fn write_pcap_record(&mut self, record: &Record<'_>, data: &[u8], unit: u64) -> Result<(), Error> {
        const SECOND: u64 = 1_000_000_000;
        let Ok(seconds) = u32::try_from(record.timestamp / SECOND) else {
            return Err(self.timestamp_out_of_range(record.timestamp));
        };
        let fraction = (record.timestamp % SECOND / unit) as u32;
        let e = self.options.endianness;
        let mut header = [0; pcap::RECORD_HEADER];
        header[0..4].copy_from_slice(&e.put_u32(seconds));
        header[4..8].copy_from_slice(&e.put_u32(fraction));
        header[8..12].copy_from_slice(&e.put_u32(data.len() as u32));
        header[12..16].copy_from_slice(&e.put_u32(original_length(record, data)));
        self.put(&header);
        self.put(data);
        Ok(())
    }

    #[inline]
    fn write_enhanced_packet(&mut self, record: &Record<'_>, data: &[u8]) {
        let e = self.options.endianness;
        let padding = data.len().wrapping_neg() & 3;
        // A header of 28 bytes, the packet, padding, the length again.
        let total = e.put_u32((32 + data.len() + padding) as u32);
        let mut header = [0; 28];
        header[0..4].copy_from_slice(&e.put_u32(pcapng::ENHANCED_PACKET));
        header[4..8].copy_from_slice(&total);
        header[8..12].copy_from_slice(&e.put_u32(record.interface));
        header[12..16].copy_from_slice(&e.put_u32((record.timestamp >> 32) as u32));
        header[16..20].copy_from_slice(&e.put_u32(record.timestamp as u32));
        header[20..24].copy_from_slice(&e.put_u32(data.len() as u32));
        header[24..28].copy_from_slice(&e.put_u32(original_length(record, data)));
        let mut trailer = [0; 8];
        trailer[padding..padding + 4].copy_from_slice(&total);
        self.put(&header);
        self.put(data);
        self.put(&trailer[..padding + 4]);
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn write_file_header(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        let e = self.options.endianness;
        let magic = match self.options.format {
            OutputFormat::PcapNanoseconds => pcap::MAGIC_NANOSECONDS,
            _ => pcap::MAGIC_MICROSECONDS,
        };
        let Some(first) = interfaces.first() else { return Err(Error::new(&self.name, ErrorKind::NoInterface)) };
        // pcap cannot express "no limit".
        let snap_length = interfaces
            .iter()
            .map(|interface| match self.declared_snap_length(interface) {
                0 => interface.link_type.max_length(),
                snap_length => snap_length,
            })
            .max()
            .unwrap_or_default();
        let flags = u32::from(first.link_flags) << pcap::LINK_TYPE_BITS;
        let mut header = [0; pcap::FILE_HEADER];
        header[0..4].copy_from_slice(&e.put_u32(magic));
        header[4..6].copy_from_slice(&e.put_u16(2));
        header[6..8].copy_from_slice(&e.put_u16(4));
        header[16..20].copy_from_slice(&e.put_u32(snap_length));
        header[20..24].copy_from_slice(&e.put_u32(first.link_type.0 | flags));
        self.put(&header);
        Ok(())
    }

    fn write_section_header(&mut self) {
        let e = self.options.endianness;
        let mut body = Vec::with_capacity(16);
        body.extend(e.put_u32(pcapng::BYTE_ORDER_MAGIC));
        body.extend(e.put_u16(1));
        body.extend(e.put_u16(0));
        // Section length: not given.
        body.extend([0xff; 8]);
        self.write_block(pcapng::SECTION_HEADER, &body);
    }

    fn write_interface_description(&mut self, interface: &Interface) {
        let e = self.options.endianness;
        let mut body = Vec::new();
        body.extend(e.put_u16(interface.link_type.0 as u16));
        body.extend([0; 2]);
        body.extend(e.put_u32(self.declared_snap_length(interface)));
        let mut option = |code: u16, value: &[u8]| {
            body.extend(e.put_u16(code));
            body.extend(e.put_u16(value.len() as u16));
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        };
        if let Some(name) = &interface.name {
            option(pcapng::OPTION_IF_NAME, &name.as_bytes()[..name.floor_char_boundary(pcapng::MAX_NAME)]);
        }
        option(pcapng::OPTION_IF_TSRESOL, &[9]);
        if let Some(length) = interface.fcs_length() {
            option(pcapng::OPTION_IF_FCSLEN, &[length]);
        }
        option(0, &[]);
        self.write_block(pcapng::INTERFACE_DESCRIPTION, &body);
    }

    /// The length of `body` is a multiple of 4.
    fn write_block(&mut self, block_type: u32, body: &[u8]) {
        let e = self.options.endianness;
        let total = e.put_u32(body.len() as u32 + 12);
        self.put(&e.put_u32(block_type));
        self.put(&total);
        self.put(body);
        self.put(&total);
    }

    /// The maximum number of bytes to keep of a packet.
    fn limit(&self, link_type: LinkType) -> u32 {
        match self.options.snap_length {
            0 => link_type.max_length(),
            snap_length => snap_length.min(link_type.max_length()),
        }
    }

    /// The snap length that the file gives for an interface.
    fn declared_snap_length(&self, interface: &Interface) -> u32 {
        match (self.options.snap_length, interface.snap_length) {
            (0, length) | (length, 0) => length,
            (own, interface) => own.min(interface),
        }
    }

    #[cold]
    fn write_failed(&self, source: io::Error) -> Error {
        Error::new(&self.name, ErrorKind::Write { offset: self.base + self.sent as u64, source })
    }

    #[cold]
    fn unknown_interface(&self, interface: u32) -> Error {
        Error::new(&self.name, ErrorKind::UnknownInterface { interface, known: self.interfaces.len() as u32 })
    }

    #[cold]
    fn timestamp_out_of_range(&self, timestamp: u64) -> Error {
        Error::new(&self.name, ErrorKind::TimestampOutOfRange { timestamp })
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// The original length of a record's packet, but at least the captured length: readers take a smaller one for damage.
#[inline]
fn original_length(record: &Record<'_>, data: &[u8]) -> u32 {
    record.original_length.max(data.len() as u32)
}

/// Whether a file of this kind with the interfaces `present` can also have those of `more`.
fn check(options: WriterOptions, present: &[(u32, LinkType)], more: &[Interface]) -> Result<(), ErrorKind> {
    let link_type_bits = if options.format == OutputFormat::Pcapng { 16 } else { pcap::LINK_TYPE_BITS };
    if let Some(interface) = more.iter().find(|interface| interface.link_type.0 >> link_type_bits != 0) {
        return Err(ErrorKind::LinkTypeTooLarge(interface.link_type, link_type_bits));
    }
    if options.format == OutputFormat::Pcapng {
        return Ok(());
    }
    let mut link_types = present.iter().map(|&(_, link_type)| link_type).chain(more.iter().map(|i| i.link_type));
    let Some(first) = link_types.next() else { return Err(ErrorKind::NoInterface) };
    match link_types.find(|&link_type| link_type != first) {
        Some(other) => Err(ErrorKind::LinkTypesDiffer(first, other)),
        None => Ok(()),
    }
}
