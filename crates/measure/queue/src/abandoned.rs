//! Results of claims that were abandoned: those that a worker delivered before it died, of a block that another one
//! made as a whole.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::QueueError;
use crate::messages::{Delivery, bytes};

/// The file in the results folder.
pub const ABANDONED: &str = "abandoned.jsonl";

/// The file in the results folder, which has each result once.
pub(crate) struct AbandonedFile {
    path: PathBuf,
    file: Option<File>,
    known: HashSet<String>,
}

impl AbandonedFile {
    pub(crate) fn open(folder: &Path) -> Result<AbandonedFile, QueueError> {
        let path = folder.join(ABANDONED);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(QueueError::Io { doing: "read", path, error }),
        };
        // A line that was written in part is written again.
        let deliveries = text.lines().filter_map(|line| serde_json::from_str::<Delivery>(line).ok());
        let known = deliveries.map(|delivery| key(&delivery)).collect();
        Ok(AbandonedFile { path, file: None, known })
    }

    /// Adds a result, unless the file has it.
    pub(crate) fn add(&mut self, delivery: &Delivery) -> Result<(), QueueError> {
        if !self.known.insert(key(delivery)) {
            return Ok(());
        }
        let fail = |doing| {
            let path = self.path.clone();
            move |error| QueueError::Io { doing, path, error }
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                let mut file = options.read(true).append(true).create(true).open(&self.path).map_err(fail("open"))?;
                // After a part of a line.
                let ends = fs::read(&self.path).map_err(fail("read"))?;
                if ends.last().is_some_and(|byte| *byte != b'\n') {
                    file.write_all(b"\n").map_err(fail("write"))?;
                }
                self.file.insert(file)
            }
        };
        let mut line = bytes(delivery);
        line.push(b'\n');
        file.write_all(&line).map_err(fail("write"))
    }
}

fn key(delivery: &Delivery) -> String {
    format!("{} {}", delivery.claim, delivery.row.run)
}

#[cfg(test)]
mod tests {
    use bellows_campaign::RunId;

    use super::*;
    use crate::test_rows::delivery;

    #[test]
    fn each_result_is_in_the_file_once() {
        let folder = bellows_testkit::scratch();
        let run = |combination| RunId { block: 1, combination };
        for _ in 0..2 {
            let mut file = AbandonedFile::open(folder.path()).unwrap();
            for combination in [1, 2, 1] {
                file.add(&delivery("a", 3, run(combination))).unwrap();
            }
        }
        let path = folder.path().join(ABANDONED);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        // A part of a line, as after a crash.
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        AbandonedFile::open(folder.path()).unwrap().add(&delivery("a", 3, run(2))).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let whole = text.lines().filter(|line| serde_json::from_str::<Delivery>(line).is_ok()).count();
        assert_eq!((text.lines().count(), whole), (3, 2));
    }
}
