//! Measures how fast a capture file is read: `cargo run --release -p bellows-capture --example read_speed FILE
//! [ROUNDS]`.
//!
//! Each round opens the file anew; the first also brings it into the page cache. `write_speed` makes such a file.

use std::hint::black_box;
use std::time::Instant;

use bellows_capture::Reader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: read_speed FILE [ROUNDS]")?;
    let rounds: usize = arguments.next().map_or(Ok(9), |text| text.parse())?;

    let mut times = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        let start = Instant::now();
        let mut reader = Reader::open(&path)?;
        let mut bytes = 0;
        while let Some(record) = reader.next_record()? {
            // A consumer reads at least the first byte.
            black_box(record.data.first());
            bytes += record.data.len();
        }
        let nanoseconds = start.elapsed().as_nanos() as f64 / reader.records().max(1) as f64;
        if round == 0 {
            let format = reader.format().map(|format| format.to_string()).unwrap_or_default();
            println!("{path}: {format}, {} records, {bytes} bytes", reader.records());
        } else {
            times.push(nanoseconds);
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("median of {rounds}: {median:.2} ns a record, {:.1} Mpps; best {:.2} ns", 1000.0 / median, times[0]);
    Ok(())
}
