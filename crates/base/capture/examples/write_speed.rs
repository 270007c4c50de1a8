//! Measures how fast a capture file is written: `cargo run --release -p bellows-capture --example write_speed FILE
//! [RECORDS]`.
//!
//! The packets have 60 bytes. The file is pcapng if its name ends with `.pcapng`.

use std::time::Instant;

use bellows_capture::{Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: write_speed FILE [RECORDS]")?;
    let records: u64 = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let format = if path.ends_with(".pcapng") { OutputFormat::Pcapng } else { OutputFormat::PcapMicroseconds };

    let start = Instant::now();
    let options = WriterOptions { format, ..WriterOptions::default() };
    let mut writer = Writer::create(&path, options, &[Interface::new(LinkType::ETHERNET)])?;
    let mut data = [0; 60];
    for number in 0..records {
        data[..8].copy_from_slice(&number.to_be_bytes());
        writer.write(&Record { data: &data, timestamp: number * 1000, original_length: 60, interface: 0 })?;
    }
    let bytes = writer.bytes_written();
    writer.finish()?;
    let nanoseconds = start.elapsed().as_nanos() as f64 / records.max(1) as f64;
    println!(
        "{path}: {records} records, {bytes} bytes, {nanoseconds:.2} ns a record, {:.1} Mpps",
        1000.0 / nanoseconds
    );
    Ok(())
}
