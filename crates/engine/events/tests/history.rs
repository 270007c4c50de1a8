//! What a writer writes is what a follower reads, whatever happens to the files in between.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bellows_events::{Content, ContentFile, Draft, Event, FILE_SIZE, Follower, Item, Level, MAX_FILE, Missing, Writer};
use bellows_testkit::scratch;
use proptest::prelude::*;

/// The files of a network.
struct Files(PathBuf);

impl Files {
    fn part(&self, part: ContentFile) -> PathBuf {
        self.0.join(if part == ContentFile::Current { "edge" } else { "edge@1" })
    }

    fn open(&self) -> (Writer, Option<Event>) {
        Writer::open(self.part(ContentFile::Current), self.part(ContentFile::Older), 1_000_000_000).unwrap()
    }

    fn read(&self) -> Content {
        Content::read(|part| File::open(self.part(part))).unwrap()
    }
}

fn draft(message: String) -> Draft {
    let fields = [("app".to_owned(), "left".into())].into_iter().collect();
    Draft { time_ns: 7, level: Level::Info, name: "link-up".to_owned(), message, fields }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// What a reader of a history must get: each event once, and each number that it does not get.
#[derive(Default)]
struct Reader {
    follower: Follower,
    seen: Vec<Event>,
    missing: u64,
    damaged: u64,
}

impl Reader {
    fn poll(&mut self, content: &Content, is_final: bool) {
        for item in self.follower.read(&content.older, &content.current, is_final) {
            match item {
                Item::Event(event) => {
                    let gap = self.seen.last().map_or(0, |last| event.id.number - last.id.number - 1);
                    assert_eq!(gap, std::mem::take(&mut self.missing), "a gap before {event:?}");
                    self.seen.push(event);
                }
                Item::Missing(Missing { events, damaged_lines }) => {
                    assert!(events + damaged_lines > 0);
                    self.missing += events;
                    self.damaged += damaged_lines;
                }
            }
        }
    }
}

/// What happens to the files.
#[derive(Clone, Debug)]
enum Step {
    /// Events with messages of this length.
    Write(usize, usize),
    /// Events are lost before they get to the files.
    Skip(u64),
    /// The process dies while it writes: this much of a line is there.
    Tear(usize),
    /// The next process goes on.
    Reopen,
    /// The reader looks.
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..25_usize, 0..3_000_usize).prop_map(|(events, length)| Step::Write(events, length)),
        1 => (1..5_u64).prop_map(Step::Skip),
        1 => (1..100_usize).prop_map(Step::Tear),
        1 => Just(Step::Reopen),
        2 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_reader_gets_each_event_once_and_knows_what_it_misses(steps in prop::collection::vec(step(), 1..40)) {
        let folder = scratch();
        let files = Files(folder.path().to_owned());
        let (mut writer, _) = files.open();
        let mut written = BTreeMap::new();
        let mut reader = Reader::default();
        let mut torn = 0;
        for step in steps {
            match step {
                Step::Write(events, length) => for _ in 0..events {
                    let event = writer.write(draft("x".repeat(length))).unwrap();
                    written.insert(event.id.number, event);
                },
                Step::Skip(events) => writer.skip(events),
                Step::Tear(length) => {
                    let line = Event::line(&Event::new("1-1".parse().unwrap(), 1, draft("torn".repeat(30))));
                    let mut file = OpenOptions::new().append(true).open(files.part(ContentFile::Current)).unwrap();
                    file.write_all(&line[..length]).unwrap();
                    torn += 1;
                    writer = files.open().0;
                }
                Step::Reopen => {
                    let (next, last) = files.open();
                    prop_assert_eq!(last.as_ref(), written.values().next_back());
                    writer = next;
                }
                Step::Poll => reader.poll(&files.read(), false),
            }
            prop_assert!(size(&files.part(ContentFile::Current)) <= MAX_FILE && size(&files.part(ContentFile::Older)) <= MAX_FILE);
        }
        reader.poll(&files.read(), true);
        for event in &reader.seen {
            prop_assert_eq!(written.get(&event.id.number), Some(event));
        }
        // The last events are always there.
        let mut length = 0;
        let recent: Vec<&Event> = written.values().rev().take_while(|event| {
            length += event.line().len() as u64 + 200;
            length < FILE_SIZE / 2
        }).collect();
        let seen = &reader.seen[reader.seen.len().saturating_sub(recent.len())..];
        prop_assert!(seen.iter().rev().eq(recent), "the last events are missing");
        prop_assert!(reader.damaged <= torn);
        let again = reader.seen.len();
        reader.poll(&files.read(), false);
        prop_assert_eq!(reader.seen.len(), again);
    }

    #[test]
    fn any_bytes_can_be_followed(
        pieces in prop::collection::vec(prop_oneof![
            any::<Vec<u8>>(),
            (1..9_u64, 1..3_u64, any::<bool>()).prop_map(|(number, log, ends)| {
                let mut line = Event::new(format!("{log:x}-{number}").parse().unwrap(), 1, draft(String::new())).line();
                line.truncate(line.len() - usize::from(!ends));
                line
            }),
        ], 0..20),
        cut in 0..20_usize,
    ) {
        let cut = cut.min(pieces.len());
        let (older, current) = (pieces[..cut].concat(), pieces[cut..].concat());
        let mut follower = Follower::new();
        let items = follower.read(&older, &current, true);
        let numbers: Vec<u64> = items.iter().filter_map(|item| match item {
            Item::Event(event) => Some(event.id.number),
            Item::Missing(_) => None,
        }).collect();
        prop_assert!(numbers.is_sorted_by(|one, other| one < other));
        let again = follower.read(&older, &current, true);
        prop_assert!(again.iter().all(|item| matches!(item, Item::Missing(_))), "an event twice");
    }
}

/// The writer begins hundreds of files while the reader looks at them.
#[test]
fn a_reader_that_follows_a_fast_writer_gets_nothing_twice() {
    const EVENTS: u64 = 60_000;
    let folder = scratch();
    let files = Files(folder.path().to_owned());
    let (mut writer, last) = files.open();
    assert_eq!(last, None);
    let is_over = AtomicBool::new(false);
    let mut reader = Reader::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EVENTS {
                writer.write(draft(number.to_string())).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        loop {
            let ends = is_over.load(Ordering::Acquire);
            reader.poll(&files.read(), ends);
            if ends {
                break;
            }
        }
    });
    let last = reader.seen.last().unwrap();
    assert_eq!((last.id.number, reader.damaged, reader.missing), (EVENTS, 0, 0));
    assert!(reader.seen.iter().all(|event| event.message == (event.id.number - 1).to_string()));
}

#[test]
fn what_a_dead_writer_has_left_is_a_line_of_its_own() {
    let folder = scratch();
    let files = Files(folder.path().to_owned());
    let (mut writer, _) = files.open();
    writer.write(draft("one".to_owned())).unwrap();
    writer.skip(2);
    writer.write(draft("four".to_owned())).unwrap();
    let mut file = OpenOptions::new().append(true).open(files.part(ContentFile::Current)).unwrap();
    file.write_all(b"{\"id\":").unwrap();
    let (mut writer, last) = files.open();
    assert_eq!(last.unwrap().message, "four");
    writer.write(draft("five".to_owned())).unwrap();
    let content = files.read();
    let missing = |events, damaged_lines| Item::Missing(Missing { events, damaged_lines });
    let items = Follower::new().read(&content.older, &content.current, false);
    assert_eq!(items.len(), 5);
    assert_eq!((&items[1], &items[3]), (&missing(2, 0), &missing(0, 1)));
}

#[test]
fn files_that_were_removed_are_made_again() {
    let folder = scratch();
    let events = folder.path().join("events");
    fs::create_dir(&events).unwrap();
    let files = Files(events.clone());
    let (mut writer, _) = files.open();
    let messages = |files: &Files| {
        let content = files.read();
        let items = Follower::new().read(&content.older, &content.current, true);
        let message = |item: Item| match item {
            Item::Event(event) => event.message,
            Item::Missing(missing) => panic!("{missing:?}"),
        };
        items.into_iter().map(message).collect::<Vec<_>>()
    };
    writer.write(draft("one".to_owned())).unwrap();
    fs::remove_file(files.part(ContentFile::Current)).unwrap();
    writer.write(draft("two".to_owned())).unwrap();
    assert_eq!(messages(&files), ["two"]);
    fs::remove_dir_all(&events).unwrap();
    writer.write(draft("three".to_owned())).unwrap();
    assert_eq!(messages(&files), ["three"]);
    // Also while it is not open: a full file is to become the older one, and could not.
    let long = "x".repeat(4_000);
    fs::create_dir(files.part(ContentFile::Older)).unwrap();
    while writer.write(draft(long.clone())).is_ok() {}
    fs::remove_dir_all(&events).unwrap();
    let before = writer.write(draft("four".to_owned())).unwrap().id.number;
    assert_eq!(messages(&files), ["four"]);
    assert_eq!(writer.write(draft("five".to_owned())).unwrap().id.number, before + 1);
    assert_eq!(messages(&files), ["four", "five"]);
}
