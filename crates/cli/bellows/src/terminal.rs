//! The terminal: its abilities, and a full-screen display.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::charset;
use crate::journal::{self, Record};

/// Whether standard output goes to a terminal.
pub fn shows_stdout() -> bool {
    io::stdout().is_terminal()
}

/// Whether text on standard output may be styled.
pub fn stdout_is_rich() -> bool {
    shows_stdout() && wants_colour()
}

/// Whether text on standard error may be styled.
pub fn stderr_is_rich() -> bool {
    io::stderr().is_terminal() && wants_colour() && format() == TEXT
}

/// The rule of <https://no-color.org>, and the terminal's type.
fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}

/// Columns and rows of the terminal on standard output.
pub fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Writes to standard output, in the characters of the locale. A reader that has closed the pipe (`bellows apps |
/// head`) is not an error.
///
/// # Errors
/// Those of writing, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    print_on(text).map(|_| ())
}

/// Like [`print`], for commands that go on. Returns whether the output still has a reader.
///
/// # Errors
/// Those of writing, such as a full disk.
pub fn print_on(text: &str) -> io::Result<bool> {
    write_stdout(&charset::localized(text))
}

/// Writes the text of a file to standard output, unchanged.
///
/// # Errors
/// Those of writing, such as a full disk.
pub fn print_verbatim(text: &str) -> io::Result<()> {
    write_stdout(text).map(|_| ())
}

fn write_stdout(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether standard output and standard error are the same file or pipe, so that a text in both is there twice.
pub fn stdout_is_stderr() -> bool {
    let same = |out: rustix::fs::Stat, err: rustix::fs::Stat| (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino);
    let stats = (rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr()));
    matches!(stats, (Ok(out), Ok(err)) if same(out, err))
}

/// Writes a notice to standard error and ignores write errors.
pub fn notice(text: &str) {
    say(Level::INFO, text);
}

/// Writes a warning to standard error, like [`notice`].
pub fn warn(text: &str) {
    say(Level::WARN, text);
}

/// Writes the reason for a failed command to standard error, like [`notice`].
pub fn fail(text: &str) {
    say(Level::ERROR, text);
}

fn say(level: Level, text: &str) {
    if text.is_empty() {
        return;
    }
    match format() {
        JSON => deliver(json_record(level, text).into_bytes()),
        JOURNAL => log_to_journal(Record::new(journal::priority(level), text.strip_prefix("error: ").unwrap_or(text))),
        _ => deliver(text.as_bytes().to_vec()),
    }
}

/// The format of what goes to standard error: text, one JSON object per line, or records of the journal.
static FORMAT: AtomicU8 = AtomicU8::new(TEXT);

const TEXT: u8 = 0;
const JSON: u8 = 1;
const JOURNAL: u8 = 2;

/// From now on, everything on standard error is JSON, one object per line.
pub fn write_errors_as_json() {
    FORMAT.store(JSON, Relaxed);
}

/// From now on, everything for standard error goes to the journal that is behind it, as records.
pub fn write_errors_to_journal() {
    FORMAT.store(JOURNAL, Relaxed);
}

fn format() -> u8 {
    FORMAT.load(Relaxed)
}

/// A text as an entry of the JSON log.
fn json_record(level: Level, text: &str) -> String {
    let mut timestamp = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let text = text.trim_end();
    let message = text.strip_prefix("error: ").unwrap_or(text);
    format!("{}\n", serde_json::json!({ "timestamp": timestamp, "level": level.as_str(), "message": message }))
}

/// The status line at the bottom of standard error. Log lines must not run into it.
static STATUS: Mutex<bool> = Mutex::new(false);

fn status() -> MutexGuard<'static, bool> {
    STATUS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the line at the bottom of the terminal.
pub fn show_status(line: &str) {
    if format() != TEXT {
        return;
    }
    match BACKGROUND.get() {
        // If the queue is full, this status line would be out of date before it is shown.
        Some(background) => drop(background.queue(WriterMessage::Status(line.to_owned()))),
        None => draw_status(line),
    }
}

/// Removes the status line.
pub fn clear_status() {
    match BACKGROUND.get() {
        Some(background) => drop(background.queue(WriterMessage::ClearStatus)),
        None => clear(&mut status()),
    }
}

fn draw_status(line: &str) {
    let mut shown = status();
    *shown = true;
    let _ = io::stderr().lock().write_all(format!("\r\x1b[K{}", charset::localized(line)).as_bytes());
}

fn clear(shown: &mut bool) {
    if std::mem::take(shown) {
        let _ = io::stderr().lock().write_all(b"\r\x1b[K");
    }
}

/// Writes whole lines to standard error, after removing the status line.
fn write_lines(bytes: &[u8]) -> io::Result<()> {
    clear(&mut status());
    if bytes.is_ascii() || charset::is_unicode() {
        return io::stderr().lock().write_all(bytes);
    }
    io::stderr().lock().write_all(charset::localized(&String::from_utf8_lossy(bytes)).as_bytes())
}

/// Limit on queued messages. If standard error falls further behind, lines are lost.
const MAX_QUEUED: usize = 1024;

/// How long the end of the process waits for messages to be written.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// The commands of the writer thread, in order.
enum WriterMessage {
    Lines(Vec<u8>),
    Journal(Record),
    Status(String),
    ClearStatus,
}

impl WriterMessage {
    /// The number of log lines in it.
    fn lines(&self) -> u64 {
        match self {
            WriterMessage::Lines(bytes) => count_lines(bytes),
            WriterMessage::Journal(record) => record.lines(),
            WriterMessage::Status(_) | WriterMessage::ClearStatus => 0,
        }
    }
}

/// The queue in front of standard error. A full pipe or a stopped terminal blocks only the writer thread, never a
/// thread that logs.
struct Background {
    sender: SyncSender<WriterMessage>,
    /// Messages that are queued or being written, and their lines.
    pending: AtomicU64,
    pending_lines: AtomicU64,
    /// Lost lines since the log last reported them, and in all.
    untold: AtomicU64,
    lost: AtomicU64,
}

static BACKGROUND: OnceLock<Background> = OnceLock::new();

impl Background {
    /// Puts a message in the queue. Returns false if there is no room.
    fn queue(&self, message: WriterMessage) -> bool {
        let lines = message.lines();
        self.begin(lines);
        let queued = self.sender.try_send(message).is_ok();
        if !queued {
            self.end(lines);
        }
        queued
    }

    /// Counts a message that starts to wait.
    fn begin(&self, lines: u64) {
        self.pending_lines.fetch_add(lines, Relaxed);
        self.pending.fetch_add(1, Relaxed);
    }

    /// Counts a message that no longer waits.
    fn end(&self, lines: u64) {
        self.pending_lines.fetch_sub(lines, Relaxed);
        self.pending.fetch_sub(1, Relaxed);
    }

    /// Counts lost lines.
    fn lose(&self, lines: u64) {
        self.untold.fetch_add(lines, Relaxed);
        self.lost.fetch_add(lines, Relaxed);
    }

    /// The writer thread.
    fn write(&self, messages: &Receiver<WriterMessage>) {
        for message in messages {
            let lines = message.lines();
            match message {
                WriterMessage::Lines(bytes) => {
                    self.report_losses();
                    if write_lines(&bytes).is_err() {
                        self.lose(lines);
                    }
                }
                WriterMessage::Journal(record) => {
                    self.report_losses();
                    if write_record(&record).is_err() {
                        self.lose(lines);
                    }
                }
                WriterMessage::Status(line) => draw_status(&line),
                WriterMessage::ClearStatus => clear(&mut status()),
            }
            self.end(lines);
        }
    }

    /// Reports the number of lost lines as soon as standard error can be written.
    fn report_losses(&self) {
        let lost = self.untold.load(Relaxed);
        if lost == 0 {
            return;
        }
        let text = format!("{lost} lines of the log were lost: standard error could not be written\n");
        let result = match format() {
            JSON => write_lines(json_record(Level::WARN, &text).as_bytes()),
            JOURNAL => write_record(&Record::new(journal::priority(Level::WARN), &text)),
            _ => write_lines(text.as_bytes()),
        };
        if result.is_ok() {
            self.untold.fetch_sub(lost, Relaxed);
        }
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count().max(1) as u64
}

/// Starts the thread that writes to standard error, so that no other thread waits for its reader. If the thread cannot
/// be created, callers go on writing directly.
pub fn write_in_background() {
    let (sender, messages) = sync_channel(MAX_QUEUED);
    let (start, started) = sync_channel::<&'static Background>(1);
    let work = move || {
        if let Ok(background) = started.recv() {
            background.write(&messages);
        }
    };
    if std::thread::Builder::new().name("log".to_owned()).spawn(work).is_ok() {
        let count = || AtomicU64::new(0);
        let background =
            Background { sender, pending: count(), pending_lines: count(), untold: count(), lost: count() };
        let _ = start.send(BACKGROUND.get_or_init(|| background));
    }
}

/// Waits for a limited time until all queued messages are written to standard error.
pub fn flush() {
    let Some(background) = BACKGROUND.get() else { return };
    let deadline = Instant::now() + FLUSH_LIMIT;
    while background.pending.load(Relaxed) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    if background.pending.load(Relaxed) == 0 {
        background.report_losses();
    }
}

/// The number of lost log lines, including those still queued after a last [`flush`]: nobody will read them.
pub fn lost_log_lines() -> u64 {
    flush();
    BACKGROUND.get().map_or(0, |background| background.lost.load(Relaxed) + background.pending_lines.load(Relaxed))
}

/// Passes whole lines to standard error, and counts them as lost if they cannot be written.
fn deliver(bytes: Vec<u8>) {
    match BACKGROUND.get() {
        Some(background) => {
            let lines = count_lines(&bytes);
            if !background.queue(WriterMessage::Lines(bytes)) {
                background.lose(lines);
            }
        }
        None => drop(write_lines(&bytes)),
    }
}

/// Sends a record to the journal, or counts its lines as lost.
pub fn log_to_journal(record: Record) {
    match BACKGROUND.get() {
        Some(background) => {
            let lines = record.lines();
            if !background.queue(WriterMessage::Journal(record)) {
                background.lose(lines);
            }
        }
        None => drop(write_record(&record)),
    }
}

/// Sends a record to the journal, or through standard error if its socket cannot be reached.
fn write_record(record: &Record) -> io::Result<()> {
    record.send().or_else(|_| write_lines(record.text().as_bytes()))
}

/// The log's writer to standard error: each write is one record. It never fails, because the subscriber would answer an
/// error with a panic in the thread that logs.
#[derive(Debug)]
pub struct Records;

impl Write for Records {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        deliver(indented(record));
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record with all lines after the first indented: a line at the margin starts a record.
fn indented(record: &[u8]) -> Vec<u8> {
    let body = record.strip_suffix(b"\n").unwrap_or(record);
    let mut text = Vec::with_capacity(record.len());
    for (number, line) in body.split(|&byte| byte == b'\n').enumerate() {
        if number > 0 && !line.is_empty() {
            text.extend_from_slice(b"    ");
        }
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text
}

/// The controlling terminal of the process, watched for its end.
pub struct ControllingTerminal {
    gone_since: Option<Instant>,
    had_one: bool,
    hangup_ignored: bool,
}

/// The meaning of a SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// A request for a reload.
    Request,
    /// The terminal has gone away.
    Terminal,
    /// The terminal has gone away, and the process was started to survive that (`nohup`).
    Ignored,
}

impl ControllingTerminal {
    /// A SIGHUP that comes later than this after the terminal's end is a request: a background job outlives its shell
    /// without a signal.
    const DELAY: Duration = Duration::from_secs(2);

    /// The current terminal. Must be called before SIGHUP gets a handler.
    pub fn new() -> ControllingTerminal {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
        let mask = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        let hangup_ignored = mask & (1 << (signal_hook::consts::SIGHUP - 1)) != 0;
        ControllingTerminal { gone_since: None, had_one: Self::exists(), hangup_ignored }
    }

    fn exists() -> bool {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
    }

    /// Checks whether the terminal is gone. To be called several times a second.
    pub fn check(&mut self) {
        if self.had_one && self.gone_since.is_none() && !Self::exists() {
            self.gone_since = Some(Instant::now());
        }
    }

    /// The meaning of a SIGHUP that has just come.
    pub fn meaning(&mut self) -> Hangup {
        self.check();
        match self.gone_since {
            Some(since) if since.elapsed() < Self::DELAY => {
                if self.hangup_ignored {
                    Hangup::Ignored
                } else {
                    Hangup::Terminal
                }
            }
            _ => Hangup::Request,
        }
    }
}

/// The terminal in full-screen mode, with keys read one by one. Dropping it restores the terminal.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// When standard input is not a terminal.
    pub fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        // The alternate screen, with the cursor hidden.
        print("\x1b[?1049h\x1b[?25l")?;
        Ok(Screen { before })
    }

    /// Draws lines from the top, cut to the size of the terminal, in the characters of the locale.
    ///
    /// # Errors
    /// Those of writing.
    pub fn draw(&self, text: &str) -> io::Result<()> {
        let (columns, rows) = size().unwrap_or((80, 24));
        let mut frame = String::from("\x1b[H");
        for (row, line) in text.lines().take(rows).enumerate() {
            frame += if row > 0 { "\r\n" } else { "" };
            frame += &cut(line, columns);
            frame += "\x1b[0m\x1b[K";
        }
        frame += "\x1b[J";
        print(&frame)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = print("\x1b[?25h\x1b[?1049l");
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The first `columns` characters of a line. Escape sequences have no width.
fn cut(line: &str, columns: usize) -> String {
    let mut cut = String::with_capacity(line.len());
    let mut room = columns;
    let mut in_escape = false;
    for c in line.chars() {
        if in_escape {
            in_escape = !c.is_ascii_alphabetic();
        } else if c == '\x1b' {
            in_escape = true;
        } else if room == 0 {
            break;
        } else {
            room -= 1;
        }
        cut.push(c);
    }
    cut
}

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
    Other,
}

/// Decodes keys from bytes. The bytes of one key may arrive in pieces.
#[derive(Default)]
struct Keys {
    sequence: Vec<u8>,
}

impl Keys {
    /// The key that this byte completes, if any.
    fn add(&mut self, byte: u8) -> Option<KeyPress> {
        match (self.sequence.as_slice(), byte) {
            (_, 0x1b) => {
                self.sequence = vec![byte];
                return None;
            }
            ([0x1b], b'[' | b'O') => {
                self.sequence.push(byte);
                return None;
            }
            // Parameters, as many as any key has.
            ([0x1b, b'[', ..], b'0'..=b'9' | b';') if self.sequence.len() < 16 => {
                self.sequence.push(byte);
                return None;
            }
            _ => {}
        }
        let sequence = std::mem::take(&mut self.sequence);
        Some(match (sequence.as_slice(), byte) {
            ([0x1b, b'[' | b'O', ..], b'A') => KeyPress::Up,
            ([0x1b, b'[' | b'O', ..], b'B') => KeyPress::Down,
            ([0x1b, b'[' | b'O', ..], b'C') => KeyPress::Right,
            ([0x1b, b'[' | b'O', ..], b'D') => KeyPress::Left,
            ([0x1b, b'[' | b'O'], b'H') | ([0x1b, b'[', b'1' | b'7'], b'~') => KeyPress::Home,
            ([0x1b, b'[' | b'O'], b'F') | ([0x1b, b'[', b'4' | b'8'], b'~') => KeyPress::End,
            ([0x1b, b'[', b'5'], b'~') => KeyPress::PageUp,
            ([0x1b, b'[', b'6'], b'~') => KeyPress::PageDown,
            ([0x1b, b'[' | b'O', ..], _) => KeyPress::Other,
            (_, 3 | 4) => KeyPress::Interrupt,
            (_, b'\t') => KeyPress::Tab,
            (_, b' '..=b'~') => KeyPress::Char(byte.into()),
            _ => KeyPress::Other,
        })
    }
}

/// Sends each pressed key until the receiver is gone.
pub fn send_keys<T: Send + 'static>(sender: Sender<T>, event: fn(KeyPress) -> T) {
    std::thread::spawn(move || {
        let (mut keys, mut byte) = (Keys::default(), [0]);
        while io::Read::read(&mut io::stdin(), &mut byte).is_ok_and(|count| count == 1) {
            if let Some(key) = keys.add(byte[0])
                && sender.send(event(key)).is_err()
            {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_visible_width() {
        assert_eq!(cut("\x1b[1mhead\x1b[0m and more", 6), "\x1b[1mhead\x1b[0m a");
        assert_eq!(cut("äöü", 2), "äö");
    }

    #[test]
    fn keys_are_known_by_their_sequences() {
        let mut keys = Keys::default();
        let mut pressed = |bytes: &[u8]| bytes.iter().filter_map(|byte| keys.add(*byte)).collect::<Vec<_>>();
        assert_eq!(pressed(b"j\tq"), [KeyPress::Char('j'), KeyPress::Tab, KeyPress::Char('q')]);
        assert_eq!(
            pressed(b"\x1b[A\x1bOB\x1b[1;5C\x1b[D"),
            [KeyPress::Up, KeyPress::Down, KeyPress::Right, KeyPress::Left]
        );
        assert_eq!(
            pressed(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
            [KeyPress::PageUp, KeyPress::PageDown, KeyPress::Home, KeyPress::End]
        );
        // A sequence may arrive in pieces; a lone escape does not swallow the next key.
        assert_eq!((pressed(b"\x1b["), pressed(b"B")), (vec![], vec![KeyPress::Down]));
        assert_eq!(pressed(b"\x1bq\x03"), [KeyPress::Char('q'), KeyPress::Interrupt]);
        assert_eq!(pressed(b"\x1b[200~x\x7f"), [KeyPress::Other, KeyPress::Char('x'), KeyPress::Other]);
    }

    #[test]
    fn later_lines_of_a_record_are_indented() {
        assert_eq!(indented(b"INFO reloaded\n+ app\n\n- link\n"), b"INFO reloaded\n    + app\n\n    - link\n");
        assert_eq!(indented(b"INFO one\n"), b"INFO one\n");
    }
}
