//! Counting the packets of captures that match.

use std::io;
use std::path::Path;

use bellows_capture::{Error, Reader, Record};
use bellows_filter::{LinkType, Mistake};
use bellows_inspect::journey::summary;
use bellows_inspect::text::sanitize;

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
pub struct Listed {
    /// Its position in the capture, from 1.
    pub number: u64,
    pub time_ns: u64,
    pub summary: String,
}

/// The file name that stands for standard input.
const STDIN: &str = "-";

impl Count {
    /// Counts the packets of a capture, and lists those that match if `list`.
    pub fn of(path: &Path, compiler: &mut Compiler<'_>, list: bool) -> Result<Count, NotCounted> {
        let usage = |message: String| NotCounted::Capture(CommandError::Usage(message));
        let mut reader = open(path).map_err(|error| usage(error.to_string()))?;
        let file = reader.name().to_owned();
        let mut count = Count { file, packets: 0, matches: 0, listed: Vec::new(), damage: None };
        // The link types of the interfaces; the interfaces of pcapng files come between the packets.
        let mut links = Vec::new();
        loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(count),
                Err(error) => {
                    count.damage = Some(error.to_string());
                    return Ok(count);
                }
            };
            if let Some(&link) = links.get(record.interface as usize) {
                count.add(&record, link, compiler, list)?;
                continue;
            }
            let data = record.data.to_vec();
            let record = Record { data: &data, ..record };
            links = reader.interfaces().iter().map(|interface| interface.link_type.0).collect();
            let Some(&link) = links.get(record.interface as usize) else {
                let number = count.packets + 1;
                count.damage =
                    Some(format!("{}: packet {number} is of an interface that is not described", count.file));
                return Ok(count);
            };
            count.add(&record, link, compiler, list)?;
        }
    }

    fn add(
        &mut self,
        record: &Record<'_>,
        link: u32,
        compiler: &mut Compiler<'_>,
        list: bool,
    ) -> Result<(), NotCounted> {
        self.packets += 1;
        let link_type = LinkType::from_number(link).map_err(|error| {
            let message = format!("{}, packet {}: {error}", self.file, self.packets);
            NotCounted::Capture(CommandError::Usage(message))
        })?;
        let compiled = compiler.get(link_type).map_err(NotCounted::Mistake)?;
        if !compiled.matches(record.data, record.original_length) {
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

fn open(path: &Path) -> Result<Reader, Error> {
    if path == Path::new(STDIN) { Reader::new(io::stdin(), "standard input") } else { Reader::open(path) }
}
