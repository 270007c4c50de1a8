//! Arbitrary bytes as a capture file: everything that can be read is written back in the same format, and must be the
//! same when it is read again. Nothing panics, and nothing loops forever.

#![no_main]

use std::io::Cursor;

use bellows_capture::{ErrorKind, Interface, Reader, Record, Writer, WriterOptions};
use libfuzzer_sys::fuzz_target;

/// A file of a few bytes can decompress to gigabytes; this many records are enough.
const MAX_RECORDS: u64 = 10_000;

#[derive(Debug, PartialEq)]
struct Owned {
    data: Vec<u8>,
    timestamp: u64,
    original_length: u32,
    interface: u32,
}

impl Owned {
    fn borrow(&self) -> Record<'_> {
        let Self { ref data, timestamp, original_length, interface } = *self;
        Record { data, timestamp, original_length, interface }
    }
}

fn read_all(reader: &mut Reader) -> (Vec<Owned>, Vec<Interface>) {
    let mut records = Vec::new();
    while reader.records() < MAX_RECORDS {
        match reader.next_record() {
            Ok(Some(Record { data, timestamp, original_length, interface })) => {
                records.push(Owned { data: data.to_vec(), timestamp, original_length, interface });
                assert!((interface as usize) < reader.interfaces().len());
            }
            Ok(None) => break,
            Err(error) => {
                assert!(error.offset().is_some() && error.to_string().starts_with("input: "));
                assert!(matches!(reader.next_record(), Ok(None)));
                break;
            }
        }
    }
    (records, reader.interfaces().to_vec())
}

fuzz_target!(|bytes: &[u8]| {
    let mut reader = match Reader::new(Cursor::new(bytes.to_vec()), "input") {
        Ok(reader) => reader,
        Err(error) => {
            assert!(error.to_string().starts_with("input: "));
            return;
        }
    };
    let (records, interfaces) = read_all(&mut reader);
    let Some(format) = reader.format() else { return };
    let options = WriterOptions::like(format);

    if reader.rewind().is_ok() {
        assert_eq!(read_all(&mut reader), (records.iter().map(copy).collect(), interfaces.clone()));
    }

    let mut writer = Writer::new(Vec::new(), "output", options, &interfaces).expect("what was read can be written");
    let mut written = Vec::new();
    for record in records {
        match writer.write(&record.borrow()) {
            // A packet is written as no shorter than its bytes.
            Ok(()) => {
                written.push(Owned { original_length: record.original_length.max(record.data.len() as u32), ..record })
            }
            // Fractions of more than a second may overflow the 32-bit seconds.
            Err(error) => assert!(matches!(error.kind(), ErrorKind::TimestampOutOfRange { .. }), "{error}"),
        }
    }
    let length = writer.bytes_written();
    let file = writer.finish().expect("memory can be written");
    assert_eq!(file.len() as u64, length);

    let mut again = Reader::new(Cursor::new(file), "output").expect("what was written can be read");
    let (records, described) = read_all(&mut again);
    assert_eq!(records, written);
    assert_eq!(described.len(), interfaces.len());
    for (after, before) in described.iter().zip(&interfaces) {
        assert_eq!(
            (after.link_type, after.link_flags, &after.name),
            (before.link_type, before.link_flags, &before.name)
        );
    }
});

fn copy(record: &Owned) -> Owned {
    Owned { data: record.data.clone(), ..*record }
}
