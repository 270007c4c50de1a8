//! Text files, plain or compressed with gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// The bytes to read from a file at a time.
const CAPACITY: usize = 256 << 10;

/// The first bytes of a gzip file (RFC 1952) and of a zstd file (RFC 8878).
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What can be read of a text, decompressed if its first bytes are those of gzip. The name does not matter.
///
/// # Errors
/// If it cannot be read, or is compressed with zstd.
pub fn plain_text(from: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut reader = BufReader::with_capacity(CAPACITY, from);
    let start = reader.fill_buf()?;
    if start.starts_with(&ZSTD) {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is compressed with zstd; decompress it with `zstd -d`"));
    }
    if !start.starts_with(&GZIP) {
        return Ok(Box::new(reader));
    }
    let plain = Gzip(MultiGzDecoder::new(reader));
    Ok(Box::new(BufReader::with_capacity(CAPACITY, plain)))
}

/// Opens a text file and decompresses it as [`plain_text`] does.
///
/// # Errors
/// If it cannot be read, or is compressed with zstd.
pub fn open_text(path: &Path) -> io::Result<Box<dyn BufRead>> {
    plain_text(File::open(path)?)
}

/// Names the format in errors.
struct Gzip<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, format!("its gzip data is damaged or not whole ({error})")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: Vec<u8>) -> Result<String, String> {
        let mut text = String::new();
        let reader = plain_text(io::Cursor::new(bytes)).map_err(|error| error.to_string());
        reader?.read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    #[test]
    fn texts_are_the_same_compressed_or_not() {
        for text in [String::new(), "x".to_owned(), "192.0.2.0/24 via 198.51.100.1\n".repeat(50_000)] {
            assert_eq!(read(text.clone().into_bytes()), Ok(text.clone()));
            assert_eq!(read(gzip(text.as_bytes())), Ok(text));
        }
        let several = [gzip(b"one\n"), gzip(b""), gzip(b"two\n")].concat();
        assert_eq!(read(several), Ok("one\ntwo\n".to_owned()));
    }

    #[test]
    fn damage_and_other_formats_are_named() {
        let whole = gzip("192.0.2.0/24 dev lan\n".repeat(1000).as_bytes());
        for end in [2, 9, whole.len() / 2, whole.len() - 1] {
            let error = read(whole[..end].to_vec()).unwrap_err();
            assert!(error.contains("its gzip data is damaged or not whole"), "{end}: {error}");
        }
        let mut damaged = whole;
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        assert!(read(damaged).is_err());
        assert!(read([&ZSTD[..], b"more"].concat()).unwrap_err().contains("`zstd -d`"));
    }
}
