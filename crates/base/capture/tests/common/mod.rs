//! Shared parts of the tests: naive writers of every variant, and a transcript of a reader's results.

#![allow(dead_code)] // Each test uses its own part of this.

use bellows_capture::{Interface, Reader, Record};

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub data: Vec<u8>,
    pub timestamp: u64,
    pub original_length: u32,
    pub interface: u32,
}

impl Owned {
    pub fn borrow(&self) -> Record<'_> {
        let Self { ref data, timestamp, original_length, interface } = *self;
        Record { data, timestamp, original_length, interface }
    }
}

impl From<Record<'_>> for Owned {
    fn from(record: Record<'_>) -> Self {
        let Record { data, timestamp, original_length, interface } = record;
        Self { data: data.to_vec(), timestamp, original_length, interface }
    }
}

/// All results of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcript {
    pub interfaces: Vec<Interface>,
    pub records: Vec<Owned>,
    /// The error at the end, if there was one.
    pub error: Option<String>,
}

impl Transcript {
    pub fn of(reader: Result<Reader, bellows_capture::Error>) -> Self {
        match reader {
            Ok(mut reader) => Self::rest_of(&mut reader),
            Err(error) => Self { interfaces: Vec::new(), records: Vec::new(), error: Some(error.to_string()) },
        }
    }

    pub fn rest_of(reader: &mut Reader) -> Self {
        let mut records = Vec::new();
        let error = loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push(record.into()),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        assert!(matches!(reader.next_record(), Ok(None)), "the end stays the end");
        assert_eq!(reader.records(), records.len() as u64);
        Self { interfaces: reader.interfaces().to_vec(), records, error }
    }

    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::of(Reader::new(std::io::Cursor::new(bytes.to_vec()), "memory"))
    }
}

/// Numbers in one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub big: bool,
}

impl Order {
    pub fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn u64(self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

/// The header of a pcap file.
pub fn pcap_header(order: Order, magic: u32, minor_version: u16, snap_length: u32, link: u32) -> Vec<u8> {
    [
        &order.u32(magic)[..],
        &order.u16(2),
        &order.u16(minor_version),
        &[0; 8],
        &order.u32(snap_length),
        &order.u32(link),
    ]
    .concat()
}

/// A record of a pcap file; `extra` goes between its header and its bytes.
pub fn pcap_record(order: Order, seconds: u32, fraction: u32, original: u32, extra: &[u8], data: &[u8]) -> Vec<u8> {
    let captured = data.len() as u32;
    let fields = [seconds, fraction, captured, original].map(|field| order.u32(field));
    [&fields.concat(), extra, data].concat()
}

/// A pcapng block.
pub fn block(order: Order, block_type: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0xaa);
    let length = order.u32(body.len() as u32 + 12);
    [&order.u32(block_type)[..], &length, &body, &length].concat()
}

pub fn section_header(order: Order) -> Vec<u8> {
    let body = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(0), &[0xff; 8]].concat();
    block(order, 0x0a0d_0d0a, &body)
}

pub fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut option = [&order.u16(code)[..], &order.u16(value.len() as u16), value].concat();
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

pub fn interface_description(order: Order, link_type: u16, snap_length: u32, options: &[u8]) -> Vec<u8> {
    block(order, 1, &[&order.u16(link_type)[..], &[0; 2], &order.u32(snap_length), options].concat())
}

pub fn enhanced_packet(order: Order, interface: u32, ticks: u64, original: u32, data: &[u8]) -> Vec<u8> {
    let fields = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original];
    block(order, 6, &[&fields.map(|field| order.u32(field)).concat(), data].concat())
}

pub fn obsolete_packet(order: Order, interface: u16, ticks: u64, original: u32, data: &[u8]) -> Vec<u8> {
    let fields = [(ticks >> 32) as u32, ticks as u32, data.len() as u32, original];
    let drops = order.u16(7);
    block(order, 2, &[&order.u16(interface)[..], &drops, &fields.map(|field| order.u32(field)).concat(), data].concat())
}

pub fn simple_packet(order: Order, original: u32, data: &[u8]) -> Vec<u8> {
    block(order, 3, &[&order.u32(original), data].concat())
}
