//! Mistakes in text files that apps read.

use std::ops::Range;
use std::path::Path;

use crate::diagnostics::position;

/// Mistakes of a file that are reported; more are counted.
const MAX_TOLD: usize = 20;

/// A text file with mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongFile {
    /// Its name for messages.
    pub name: String,
    /// Its text, decompressed if it is compressed.
    pub text: String,
    /// The first mistakes.
    pub mistakes: Vec<TextMistake>,
    /// How many more there are.
    pub more: usize,
}

/// A mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextMistake {
    /// The bytes of the text that are wrong.
    pub range: Range<usize>,
    /// The mistake, as one sentence without a full stop.
    pub message: String,
    /// How to fix it, as one sentence without a full stop. May be empty.
    pub help: String,
}

/// Collects the mistakes of a text file.
#[derive(Default)]
pub struct TextMistakes {
    first: Vec<TextMistake>,
    count: usize,
}

impl TextMistakes {
    /// Adds one.
    pub fn add(&mut self, mistake: TextMistake) {
        self.count += 1;
        if self.first.len() < MAX_TOLD {
            self.first.push(mistake);
        }
    }

    /// The file with them, or nothing if there are none.
    pub fn of_file(self, path: &Path, text: String) -> Option<WrongFile> {
        let TextMistakes { first, count } = self;
        let name = path.display().to_string();
        (count > 0).then(|| WrongFile { name, text, more: count - first.len(), mistakes: first })
    }
}

impl WrongFile {
    /// The first mistake with its place, and how to fix it.
    pub(crate) fn first(&self) -> (String, &str) {
        let Some(TextMistake { range, message, help }) = self.mistakes.first() else { return (String::new(), "") };
        let (line, column) = position(&self.text, self.text.floor_char_boundary(range.start));
        (format!("`{}`, line {line}, column {column}: {message}", self.name), help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mistakes_are_told_and_the_others_counted() {
        let text = "a\n".repeat(30);
        let mut mistakes = TextMistakes::default();
        assert_eq!(TextMistakes::default().of_file(Path::new("f"), text.clone()), None);
        for line in 0..30 {
            let range = 2 * line..2 * line + 1;
            mistakes.add(TextMistake { range, message: format!("wrong {line}"), help: "write b".to_owned() });
        }
        let file = mistakes.of_file(Path::new("f"), text).unwrap();
        assert_eq!(file.first(), ("`f`, line 1, column 1: wrong 0".to_owned(), "write b"));
        assert_eq!((file.mistakes.len(), file.more, file.mistakes[19].range.clone()), (20, 10, 38..39));
    }
}
