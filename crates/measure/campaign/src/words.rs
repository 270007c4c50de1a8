//! Words by their numbers: a million rows have few different ones.

use std::collections::HashMap;

/// Up to this number of words are compared one by one.
const MAX_COMPARED: usize = 12;

/// Distinct words, each with its number.
#[derive(Clone, Debug, Default)]
pub struct Words {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
    last: u32,
}

impl Words {
    /// The number of a word, which is added if it is new.
    pub fn intern(&mut self, word: &str) -> u32 {
        // Neighbouring rows often have the same word.
        if self.words.get(self.last as usize).is_some_and(|last| last == word) {
            return self.last;
        }
        // Few words are compared faster than hashed.
        let known = match self.words.len() <= MAX_COMPARED {
            true => self.words.iter().position(|known| known == word).map(|place| place as u32),
            false => self.numbers.get(word).copied(),
        };
        self.last = match known {
            Some(number) => number,
            None => {
                let number = self.words.len() as u32;
                self.words.push(word.to_owned());
                self.numbers.insert(word.to_owned(), number);
                number
            }
        };
        self.last
    }

    /// The word of a number.
    pub fn word(&self, number: u32) -> &str {
        self.words.get(number as usize).map_or("", String::as_str)
    }

    /// The number of a word that is known.
    pub fn number(&self, word: &str) -> Option<u32> {
        self.numbers.get(word).copied()
    }

    /// All words, by number.
    pub fn all(&self) -> &[String] {
        &self.words
    }
}
