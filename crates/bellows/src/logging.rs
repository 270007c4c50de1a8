//! The log: messages about the command's own doings, on standard error.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

use crate::cli::{LogFormat, LogLevel, Logging};
use crate::terminal::Lines;

/// Starts logging. A second call in one process changes nothing.
pub fn init(logging: Logging) {
    let level = match logging.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = fmt().with_max_level(level).with_writer(|| Lines).with_ansi(false).with_target(false);
    let _ = match logging.log_format {
        LogFormat::Json => tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish()),
        // A person at a terminal knows what time it is.
        LogFormat::Text if stderr().is_terminal() => {
            tracing::subscriber::set_global_default(builder.without_time().finish())
        }
        LogFormat::Text => tracing::subscriber::set_global_default(builder.finish()),
    };
}

/// Reports panics as one line of the log, and with a backtrace if RUST_BACKTRACE asks for one.
pub fn log_panics() {
    let with_backtrace = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let place = panic.location().map(|location| format!(" at {}:{}", location.file(), location.line()));
        let message = panic.payload_as_str().unwrap_or("no message");
        let who = match thread.name() {
            Some("engine") => "an app panicked",
            _ => "bellows panicked",
        };
        tracing::error!("{who}: {message}{}", place.unwrap_or_default());
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            with_backtrace(panic);
        }
    }));
}
