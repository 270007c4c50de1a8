//! Counting the packets of captures that match.

use std::fs::File;
use std::io;
use std::path::Path;

use bellows_capture::{Error, Interface, Reader, Record};
use bellows_filter::{LinkType, Mistake};
use bellows_inspect::journey::summary;
use bellows_inspect::text::sanitize;
use bellows_sys::FileError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::filters::Compiler;
use crate::text::date_and_time;

/// Why packets are not counted.
pub enum NotCounted {
    /// An error in the expression.
    Mistake(Mistake),
    /// An error of a capture.
    Capture(CommandError),
}

/// The packets of one capture.
pub struct Count {
    pub file: String,
    pub packets: u64,
    pub matches: u64,
    /// The packets that match, if they are listed.
    pub listed: Vec<Listed>,
    /// Where the capture is damaged.
    pub damage: Option<String>,
}

/// A packet that matches.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Matching packet")]
pub struct Listed {
    /// Its number in the capture, from 1.
    pub number: u64,
    /// Its time: nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// A description in tcpdump's format.
    pub summary: String,
}

/// The file name that stands for standard input.
const STDIN: &str = "-";

impl Count {
    /// Counts the packets of a capture, and lists those that match if `list`.
    pub fn of(path: &Path, compiler: &mut Compiler<'_>, list: bool) -> Result<Count, NotCounted> {
        let usage = |message: String| NotCounted::Capture(CommandError::Usage(message));
        let mut reader = open(path).map_err(usage)?;
        let file = reader.name().to_owned();
        let mut count = Count { file, packets: 0, matches: 0, listed: Vec::new(), damage: None };
        // The interfaces of pcapng files come between the packets.
        let mut interfaces: Vec<Interface> = Vec::new();
        loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(count),
                Err(error) => {
                    count.damage = Some(error.to_string());
                    return Ok(count);
                }
            };
            if let Some(interface) = interfaces.get(record.interface as usize) {
                count.add(&record, interface, compiler, list)?;
                continue;
            }
            let data = record.data.to_vec();
            let record = Record { data: &data, ..record };
            interfaces = reader.interfaces().to_vec();
            let Some(interface) = interfaces.get(record.interface as usize) else {
                let number = count.packets + 1;
                count.damage =
                    Some(format!("{}: packet {number} is of an interface that is not described", count.file));
                return Ok(count);
            };
            count.add(&record, interface, compiler, list)?;
        }
    }

    fn add(
        &mut self,
        record: &Record<'_>,
        interface: &Interface,
        compiler: &mut Compiler<'_>,
        list: bool,
    ) -> Result<(), NotCounted> {
        self.packets += 1;
        let link = interface.link_type.0;
        let link_type = LinkType::from_number(link).map_err(|error| {
            let message = format!("{}, packet {}: {error}", self.file, self.packets);
            NotCounted::Capture(CommandError::Usage(message))
        })?;
        let compiled = compiler.get(link_type).map_err(NotCounted::Mistake)?;
        let visible = &record.data[..interface.visible(record.data.len())];
        if !compiled.matches(visible, record.original_length) {
            return Ok(());
        }
        self.matches += 1;
        if list {
            self.listed.push(Listed {
                number: self.packets,
                time_ns: record.timestamp,
                summary: summary(link, record.data, record.original_length),
            });
        }
        Ok(())
    }
}

impl Listed {
    /// The packet on one line.
    pub fn line(&self) -> String {
        sanitize(&format!("{:>6}  {} {}", self.number, date_and_time(self.time_ns), self.summary))
    }
}

fn open(path: &Path) -> Result<Reader, String> {
    let damaged = |error: Error| error.to_string();
    if path == Path::new(STDIN) {
        return Reader::new(io::stdin(), "standard input").map_err(damaged);
    }
    let file = File::open(path).map_err(|error| FileError::reading(path, &error).to_string())?;
    Reader::from_file(file, path.to_string_lossy()).map_err(damaged)
}
