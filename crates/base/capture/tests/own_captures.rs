//! The project's own captures: the files in `tests/captures` are those that the code in `tests/own` makes, and reading
//! each returns the packets that were put in.
//!
//! After a change of that code, write the files anew with `BELLOWS_WRITE_CAPTURES=1 cargo test --test own_captures`.

mod common;
mod own;

use std::collections::BTreeSet;
use std::fs;

use bellows_capture::LinkType;
use bellows_testkit::captures::own_folder;
use common::Transcript;

/// A size limit for the sake of git, clones and fuzzers.
const MAX_BYTES: usize = 300_000;

#[test]
fn the_files_are_those_that_the_generator_makes() {
    let (folder, captures) = (own_folder(), own::all());
    let names: BTreeSet<_> = captures.iter().map(|made| made.name.to_owned()).collect();
    assert_eq!(names.len(), captures.len(), "each name is given once");
    if std::env::var_os("BELLOWS_WRITE_CAPTURES").is_some_and(|value| value == "1") {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder of captures can be made");
        for made in &captures {
            fs::write(folder.join(made.name), &made.bytes).expect("a capture can be written");
        }
    }
    let remedy = "BELLOWS_WRITE_CAPTURES=1 cargo test --test own_captures writes them anew";
    for made in &captures {
        let bytes = fs::read(folder.join(made.name)).unwrap_or_else(|error| panic!("{}: {error}; {remedy}", made.name));
        assert!(bytes == made.bytes, "{} differs from what the generator makes; {remedy}", made.name);
    }
    let found =
        fs::read_dir(&folder).expect("the folder can be read").map(|entry| entry.expect("an entry").file_name());
    let found: BTreeSet<_> = found.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(found, names, "{remedy}");
    let bytes: usize = captures.iter().map(|made| made.bytes.len()).sum();
    assert!(bytes < MAX_BYTES, "{bytes} bytes");
}

#[test]
fn the_written_records_are_read() {
    for made in own::all() {
        let transcript = Transcript::of_bytes(&made.bytes);
        assert_eq!(transcript.error.is_some(), made.is_damaged, "{}: {:?}", made.name, transcript.error);
        assert_eq!(transcript.records.len(), made.records.len(), "records of {}", made.name);
        for (number, (read, written)) in transcript.records.iter().zip(&made.records).enumerate() {
            assert_eq!(read, written, "record {number} of {}", made.name);
        }
        let links: Vec<_> = transcript.interfaces.iter().map(|interface| interface.link_type).collect();
        let written: Vec<_> = made.links.iter().map(|link| LinkType(*link)).collect();
        assert_eq!(links, written, "interfaces of {}", made.name);
    }
}
