//! `bellows metrics`.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use bellows_config::Registry;
use bellows_metrics::{Build, Collector, Format, reference};
use bellows_observe::TypeEntry;
use bellows_serve::{Address, HttpRequest, Response, Routes, Server, StatusCode, Token};
use bellows_sys::FileError;
use bellows_sys::atomic_file::{self, NotRegular};
use clap::Args;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::watch;

/// Give the counters of all networks to monitoring systems
///
/// Prints every counter, gauge and histogram of the networks that this user can see, in Prometheus's text format or as
/// OpenMetrics (docs/metrics.md has the names). With `--listen` it answers scrapes over HTTP: `/metrics` in the format
/// that the client prefers, and `/health`, with the status 200 while packets move in all networks, or in one with
/// `?network=NAME`, and 503 otherwise. The counters are read from the networks' files, so the engines are never asked.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Serve over HTTP at this address: 127.0.0.1:9400, [::1]:9400, unix:PATH
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["file", "openmetrics", "list"])]
    listen: Option<Address>,
    /// Require the token in this file, as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Write to this file, for node_exporter's textfile collector (*.prom)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["openmetrics", "list"])]
    file: Option<PathBuf>,
    /// Write the file again after each period, such as 15s, until a signal
    #[arg(long, value_name = "PERIOD", requires = "file")]
    every: Option<bellows_config::Duration>,
    /// Print OpenMetrics 1.0 instead of the text format 0.0.4
    #[arg(long)]
    openmetrics: bool,
    /// Print the list of all metrics and drop reasons, in Markdown
    #[arg(long, conflicts_with = "openmetrics")]
    list: bool,
}

/// This program, as `--version` has it.
const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    revision: env!("BELLOWS_BUILT_FROM"),
    features: env!("BELLOWS_FEATURES"),
};

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        if self.list {
            terminal::print(&reference::markdown(&types(&program.registry)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let registry = program.registry.clone();
        let mut collector =
            Collector::new(BUILD, move |kind| registry.get(kind).is_some_and(bellows_config::Entry::is_interface));
        match (self.listen, self.file) {
            (Some(address), _) => listen(collector, &address, self.token_file.as_deref())?,
            (None, Some(path)) => write(&mut collector, &path, self.every)?,
            (None, None) => {
                let format = if self.openmetrics { Format::OpenMetrics } else { Format::Text };
                terminal::print_verbatim(&String::from_utf8_lossy(&collector.scrape(format)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        self.listen.is_none() && self.file.is_none()
    }
}

/// The types of apps of the catalogue, with what they count.
fn types(registry: &Registry) -> Vec<TypeEntry> {
    let entry = |entry: &bellows_config::Entry| {
        let info = entry.info();
        TypeEntry::of(entry.name(), info.drops, info.counters)
    };
    registry.entries().map(entry).collect()
}

fn listen(collector: Collector, address: &Address, token_file: Option<&Path>) -> Result<(), CommandError> {
    let usage = |error: &dyn std::error::Error| CommandError::Usage(error.to_string());
    let token = token_file.map(Token::read).transpose().map_err(|error| usage(&error))?;
    let server = Server::listen(address).map_err(|error| usage(&error))?.with_token(token);
    let at = server.address();
    let place = at.url().unwrap_or_else(|| at.to_string());
    terminal::notice(&format!("metrics at {place}/metrics, health at {place}/health; SIGINT or SIGTERM ends\n"));
    server.run_until_signal(routes(collector)).map_err(|error| CommandError::Failed(error.to_string()))
}

/// The page at `/`.
const INDEX: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Bellows</title></head>\n\
    <body><h1>Bellows</h1>\n<ul><li><a href=\"/metrics\">/metrics</a>: every counter of every network</li>\n\
    <li><a href=\"/health\">/health</a>: whether the networks run as they should</li></ul></body></html>\n";

fn routes(collector: Collector) -> Routes {
    let collector = Rc::new(RefCell::new(collector));
    let health_collector = Rc::clone(&collector);
    Routes::new()
        .get("/", |_| Response::html(INDEX))
        .get("/metrics", move |request| {
            let format = Format::accepted(request.headers("accept"));
            Response::bytes(format.content_type(), collector.borrow_mut().scrape(format))
        })
        .get("/health", move |request| health(&mut health_collector.borrow_mut(), request))
}

/// The health of all networks, or of one.
fn health(collector: &mut Collector, request: &HttpRequest) -> Response {
    if let Some(unknown) = request.query_names().find(|name| *name != "network") {
        let reason =
            format!("`{unknown}` is no parameter of /health; give `network=NAME`, or nothing for all networks");
        return Response::error(StatusCode::BAD_REQUEST, reason);
    }
    let name = request.query("network");
    let health = collector.health(name);
    let status = match (name, health.networks.is_empty()) {
        (Some(_), true) => StatusCode::NOT_FOUND,
        _ if health.moves_packets() => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Response::json(&health).with_status(status)
}

/// Writes the metrics to a file: once, or after each period until a signal, which removes the file.
fn write(collector: &mut Collector, path: &Path, every: Option<bellows_config::Duration>) -> Result<(), CommandError> {
    if path.extension().is_none_or(|extension| extension != "prom") {
        terminal::warn(&format!("{}: node_exporter reads files that end in .prom only\n", path.display()));
    }
    let Some(period) = every.map(bellows_config::Duration::std) else {
        return replace(path, &collector.scrape(Format::Text));
    };
    if period.is_zero() {
        return Err(CommandError::Usage("--every needs a period longer than 0, such as 15s".to_owned()));
    }
    // Before the first file is there, so that no signal leaves it behind.
    let mut signals = watch::catch_signals()?;
    let (signal, signalled) = channel();
    thread::spawn(move || signals.forever().next().map(|number| signal.send(number)));
    replace(path, &collector.scrape(Format::Text))?;
    let mut fails = false;
    while let Err(RecvTimeoutError::Timeout) = signalled.recv_timeout(period) {
        let written = replace(path, &collector.scrape(Format::Text));
        match &written {
            // The same words each time would fill the log.
            Err(error) if !fails => terminal::warn(&format!("{error}; it is tried again after each period\n")),
            _ => {}
        }
        fails = written.is_err();
    }
    // Counters that nobody renews would look like those of a network that stands still.
    if fs::symlink_metadata(path).is_ok_and(|there| there.is_file()) {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Replaces a file by another one, so that a reader finds either. Every user may read it. Other users may be able to
/// create files in the folder: their links are not followed.
fn replace(path: &Path, content: &[u8]) -> Result<(), CommandError> {
    let failed = |error: io::Error| {
        if NotRegular::is_cause_of(&error) {
            let help = "give the path of a file, or write into it with `bellows metrics > PATH`";
            return CommandError::Usage(format!("cannot write `{}`: {error}; {help}", path.display()));
        }
        CommandError::Failed(FileError::writing(path, &error).to_string())
    };
    if path.file_name().is_none() {
        let why = format!("{} is not the path of a file; give one such as bellows.prom", path.display());
        return Err(CommandError::Usage(why));
    }
    atomic_file::write(path, content, Some(0o644)).map_err(failed)
}
