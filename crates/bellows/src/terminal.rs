//! The terminal: what it can show, and a screen that is drawn over and over.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Whether standard output goes to a terminal.
pub fn shows_stdout() -> bool {
    io::stdout().is_terminal()
}

/// Whether text to standard output may carry colours and the like.
pub fn stdout_is_rich() -> bool {
    shows_stdout() && wants_colour()
}

/// Whether text to standard error may carry colours and the like.
pub fn stderr_is_rich() -> bool {
    io::stderr().is_terminal() && wants_colour()
}

/// What <https://no-color.org> and the terminal's type say.
fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}

/// Whether the locale can show more than ASCII. One that says nothing can, as today's terminals do.
pub fn shows_unicode() -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    locale.is_none_or(|locale| locale.to_string_lossy().to_ascii_lowercase().contains("utf"))
}

/// Columns and rows of the terminal on standard output.
pub fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Writes to standard output. A reader that has gone away (`bellows apps | head`) is no error.
///
/// # Errors
/// Those of writing, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes to standard error, behind which nobody may be any more.
pub fn complain(text: &str) {
    let _ = Lines.write_all(text.as_bytes());
}

/// Text from another process or file, made harmless for a terminal: control characters but line feeds and tabs
/// become `�`.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// The status line at the bottom of standard error, which log lines must not run into.
static STATUS: Mutex<bool> = Mutex::new(false);

fn status() -> MutexGuard<'static, bool> {
    STATUS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows a line at the bottom of the terminal in place of the one shown before.
pub fn show_status(line: &str) {
    let mut shown = status();
    *shown = true;
    let _ = io::stderr().lock().write_all(format!("\r\x1b[K{line}").as_bytes());
}

/// Takes the status line away.
pub fn clear_status() {
    clear(&mut status());
}

fn clear(shown: &mut bool) {
    if std::mem::take(shown) {
        let _ = io::stderr().lock().write_all(b"\r\x1b[K");
    }
}

/// Standard error for whole lines, written after the status line is out of the way.
#[derive(Debug)]
pub struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        clear(&mut status());
        io::stderr().lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// The terminal as a screen of its own, with keys as they are pressed. Dropping it brings the old one back.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// When standard input is no terminal.
    pub fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        // The other screen, the cursor hidden.
        print("\x1b[?1049h\x1b[?25l")?;
        Ok(Screen { before })
    }

    /// Draws lines from the top, cut to what fits.
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

/// The first `columns` characters of a line; escape sequences take no room.
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

/// Sends each key that is pressed, until nobody listens.
pub fn send_keys<T: Send + 'static>(keys: Sender<T>, event: fn(u8) -> T) {
    std::thread::spawn(move || {
        let mut key = [0];
        while io::Read::read(&mut io::stdin(), &mut key).is_ok_and(|count| count == 1)
            && keys.send(event(key[0])).is_ok()
        {}
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_what_can_be_seen() {
        assert_eq!(cut("\x1b[1mhead\x1b[0m and more", 6), "\x1b[1mhead\x1b[0m a");
        assert_eq!(cut("äöü", 2), "äö");
    }

    #[test]
    fn text_of_others_cannot_drive_the_terminal() {
        assert_eq!(harmless("a\tb\n\x1b[2Jc\r"), "a\tb\n\u{fffd}[2Jc\u{fffd}");
    }
}
