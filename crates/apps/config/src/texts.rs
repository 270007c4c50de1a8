//! The texts of a network's files, kept so that the network can be read again as it was.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_sys::private_file;
use zeroize::Zeroizing;

use crate::text_file::open_text;

/// Longer texts are read again when they are needed. All network files together and most texts of apps are shorter.
const MAX_KEPT: usize = 2 << 20;

/// The maximum length of a secret, in bytes.
pub(crate) const MAX_SECRET: usize = 4_096;

/// What a fingerprint says of a text.
pub(crate) fn text_mark(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!(" with a text of {} bytes {:x}", bytes.len(), hasher.finish())
}

/// A file's text, decompressed.
#[derive(Clone)]
enum Text {
    Kept(Arc<Zeroizing<Vec<u8>>>),
    /// What distinguishes it from other texts.
    Long(String),
    /// The same of a secret, which is not to stay in memory.
    Secret(String),
}

impl Text {
    /// Reads it again, if its file still has it.
    fn read_again(&self, path: &Path) -> Result<Arc<Zeroizing<Vec<u8>>>, String> {
        let (mark, read) = match self {
            Text::Kept(text) => return Ok(Arc::clone(text)),
            Text::Long(mark) => {
                let mut text = Zeroizing::new(Vec::new());
                let read = open_text(path).and_then(|mut file| file.read_to_end(&mut text));
                (mark, read.map(|_| text).map_err(|error| format!("cannot be read again: {error}")))
            }
            Text::Secret(mark) => {
                let read = private_file::read(path, MAX_SECRET);
                (mark, read.map_err(|error| format!("cannot be read again: {}", error.message())))
            }
        };
        let text = read.and_then(|text| match text_mark(&text) == *mark {
            true => Ok(text),
            false => Err("has changed since it was read".to_owned()),
        });
        let reason = match self {
            Text::Secret(_) => "texts of keys are not kept; write a new key into a new file".to_owned(),
            _ => format!("texts of more than {} MiB are not kept", MAX_KEPT >> 20),
        };
        text.map(Arc::new).map_err(|why| format!("`{}` {why}, and {reason}", path.display()))
    }
}

/// The texts of the files that a network was read from, by the paths that they were read at.
#[derive(Clone, Default)]
pub struct Texts {
    texts: Arc<Mutex<BTreeMap<PathBuf, Text>>>,
    /// Whether files are read from here.
    is_source: bool,
}

impl fmt::Debug for Texts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.lock().keys()).finish()
    }
}

impl Texts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Text>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same texts, in place of those that the files have by now.
    #[must_use]
    pub fn in_place_of_files(&self) -> Texts {
        Texts { texts: Arc::clone(&self.texts), is_source: true }
    }

    /// Keeps the text of a file that was read.
    pub fn keep(&self, path: &Path, text: &[u8]) {
        let kept = match text.len() {
            0..=MAX_KEPT => Text::Kept(Arc::new(Zeroizing::new(text.to_vec()))),
            _ => Text::Long(text_mark(text)),
        };
        self.lock().insert(path.to_owned(), kept);
    }

    /// Notes that a file with a secret was read.
    pub(crate) fn note_secret(&self, path: &Path, text: &[u8]) {
        let mut texts = self.lock();
        // While the texts are the source, it is among them.
        if !matches!(texts.get(path), Some(Text::Kept(_))) {
            texts.insert(path.to_owned(), Text::Secret(text_mark(text)));
        }
    }

    /// The same texts without the secrets that [`Texts::complete`] has read again.
    #[must_use]
    pub fn without_secrets(&self, secrets: &Texts) -> Texts {
        let mut texts = self.lock().clone();
        for (path, text) in secrets.lock().iter().filter(|(_, text)| !matches!(text, Text::Kept(_))) {
            texts.insert(path.clone(), text.clone());
        }
        Texts { texts: Arc::new(Mutex::new(texts)), is_source: false }
    }

    /// The text to take in place of what a file has by now.
    pub fn of(&self, path: &Path) -> Option<Arc<Zeroizing<Vec<u8>>>> {
        match self.lock().get(path).filter(|_| self.is_source)? {
            Text::Kept(text) => Some(Arc::clone(text)),
            Text::Long(_) | Text::Secret(_) => None,
        }
    }

    /// A copy that also has the long texts and the secrets, whose files are read again for it.
    ///
    /// # Errors
    /// If such a file has changed: a sentence.
    pub fn complete(&self) -> Result<Texts, String> {
        let mut texts = self.lock().clone();
        for (path, text) in &mut texts {
            *text = Text::Kept(text.read_again(path)?);
        }
        Ok(Texts { texts: Arc::new(Mutex::new(texts)), is_source: false })
    }

    /// What a fingerprint says of text files with their present contents; those that cannot be read differ from all
    /// others.
    pub(crate) fn marks(&self, paths: &[PathBuf]) -> String {
        let read = |path: &PathBuf| -> io::Result<String> {
            if let Some(text) = self.of(path) {
                return Ok(text_mark(&text));
            }
            let mut text = Zeroizing::new(Vec::new());
            open_text(path)?.read_to_end(&mut text)?;
            self.keep(path, &text);
            Ok(text_mark(&text))
        };
        paths.iter().map(|path| read(path).unwrap_or_else(|error| format!(" {error}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bellows_testkit::scratch;

    use super::*;

    #[test]
    fn long_texts_are_kept_only_where_they_are_unchanged() {
        let folder = scratch();
        let path = folder.path().join("routes");
        let long = vec![b'x'; MAX_KEPT + 1];
        fs::write(&path, &long).unwrap();
        let texts = Texts::default();
        texts.keep(&path, &long);
        assert!(texts.in_place_of_files().of(&path).is_none());
        let complete = texts.complete().unwrap();
        fs::write(&path, "other").unwrap();
        assert_eq!(complete.in_place_of_files().of(&path).unwrap().len(), long.len());
        let why = texts.complete().unwrap_err();
        assert!(why.contains("has changed since it was read") && why.contains("routes"), "{why}");
        fs::remove_file(&path).unwrap();
        assert!(texts.complete().unwrap_err().contains("cannot be read again"));
    }

    #[test]
    fn secrets_stay_in_memory_only_while_they_are_to_be_put_back() {
        let folder = scratch();
        let path = scratch::write_secret(folder.path().join("key"), "70a1b2");
        let texts = Texts::default();
        texts.note_secret(&path, b"70a1b2");
        let complete = texts.complete().unwrap();
        scratch::write_secret(&path, "71a1b2");
        let source = complete.in_place_of_files();
        assert_eq!(***source.of(&path).unwrap(), *b"70a1b2");
        source.note_secret(&path, b"70a1b2");
        assert!(source.without_secrets(&texts).in_place_of_files().of(&path).is_none());
        let why = texts.complete().unwrap_err();
        assert!(why.contains("has changed since it was read") && why.contains("new file"), "{why}");
    }

    #[test]
    fn secrets_are_not_printed() {
        let texts = Texts::default();
        texts.keep(Path::new("/key"), b"70a1b2");
        assert_eq!(format!("{texts:?}"), "{\"/key\"}");
    }
}
