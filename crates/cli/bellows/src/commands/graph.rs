//! `bellows graph`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_config::Registry;
use bellows_graph::Graph;
use bellows_inspect::networks::{self, Access, Change, Sample, State};
use bellows_inspect::picture::Picture;
use bellows_sys::FileError;
use clap::{Args, ValueEnum};

use crate::arguments::{NameOption, NetworkFile};
use crate::charset;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Draw a network, or a running one with its rates
///
/// If apps have several workers, each worker's apps are framed, or named with it after an `@` in text, and links between
/// workers are dashed. The parts of a compound app are framed as well; in text their names begin with that of the compound
/// app.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Network file (TOML), or - for standard input; optional with -n, which shows the rates of a running network
    #[arg(value_name = "NETWORK", required_unless_present = "named")]
    network: Option<PathBuf>,
    /// Override a key of the file, such as `engine.burst=32` (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "network")]
    overrides: Vec<String>,
    #[command(flatten)]
    option: NameOption,
    /// Draw each compound app as one box, whose ports are called after those of its parts
    #[arg(long)]
    collapse: bool,
    /// The picture's format [default: that of the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to this file: .txt, .dot, .gv or .svg [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The formats of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Box characters, for the terminal
    Text,
    /// For Graphviz
    Dot,
    /// For documents and browsers
    Svg,
}

impl Format {
    /// The format for a file's extension. A file without an extension gets text.
    fn of_file(path: &Path) -> Result<Format, CommandError> {
        let Some(extension) = path.extension() else { return Ok(Format::Text) };
        let extension = extension.to_string_lossy().to_lowercase();
        match &*extension {
            "svg" => Ok(Format::Svg),
            "dot" | "gv" => Ok(Format::Dot),
            "txt" | "text" => Ok(Format::Text),
            other => Err(CommandError::Usage(unknown_extension(path, other))),
        }
    }
}

/// The error for an extension without a format. It suggests commands that make the usual formats.
fn unknown_extension(path: &Path, extension: &str) -> String {
    let path = path.display();
    let remedy = match extension {
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" | "pdf" | "ps" | "eps" => {
            let dot = format!("`bellows graph … --format dot | dot -T{extension} -o {path}`");
            match extension {
                "png" => format!("`bellows graph … --format svg | rsvg-convert -o {path}` or {dot} draws it"),
                "pdf" | "ps" | "eps" => {
                    format!("`bellows graph … --format svg | rsvg-convert -f {extension} -o {path}` or {dot} draws it")
                }
                _ => format!("{dot} draws it"),
            }
        }
        _ => "--format overrides the file's extension".to_owned(),
    };
    format!("cannot draw {path}: the formats are .svg, .dot (or .gv) and .txt; {remedy}")
}

/// The file name that stands for standard output.
const STDOUT: &str = "-";

/// The time over which rates are measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum width of a text picture without a terminal.
const DEFAULT_WIDTH: usize = 120;

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["graph -n NAME"];

    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        let output = self.output.as_deref().filter(|path| *path != Path::new(STDOUT));
        let format = match (self.format, output) {
            (Some(format), _) => format,
            (None, Some(path)) => Format::of_file(path)?,
            (None, None) => Format::Text,
        };
        let file = self.network.as_ref();
        let from_file = file.map(|path| draft(path, &self.overrides, self.collapse, &program.registry)).transpose()?;
        let graph = match (self.option.or(None), from_file) {
            (Some(name), from_file) => {
                let mut observer = networks::open(network(Some(name), Access::Read)?)?;
                let before = Sample::take(&mut observer);
                if networks::state(observer.runtime_dir()).is_alive() {
                    thread::sleep(RATE_INTERVAL);
                }
                let change = Change::between(before, Sample::take(&mut observer));
                let mut drawn =
                    from_file.unwrap_or_else(|| Picture::of_counters(&change.after.counters, self.collapse));
                match networks::state(observer.runtime_dir()) {
                    State::Running | State::Stopped => {
                        drawn.graph.title = Some(name.to_owned());
                        drawn.add_rates(&change);
                    }
                    State::Crashed => {
                        drawn.graph.title = Some(format!("{name} (crashed)"));
                        terminal::warn(&format!("`{name}` has crashed; its rates are not known\n"));
                    }
                }
                drawn.graph
            }
            (None, Some(drawn)) => drawn.graph,
            (None, None) => {
                return Err(CommandError::Usage("name a network file, or a running network with `-n NAME`".to_owned()));
            }
        };
        let picture = match format {
            Format::Svg => bellows_graph::svg(&graph).ok_or_else(|| too_large(&graph))?,
            Format::Dot => bellows_graph::dot(&graph),
            Format::Text => {
                let width = terminal::size().filter(|_| output.is_none()).map_or(DEFAULT_WIDTH, |(columns, _)| columns);
                bellows_graph::text(&graph, width, charset::is_unicode())
            }
        };
        let picture = if picture.ends_with('\n') { picture } else { picture + "\n" };
        match (output, format) {
            // SVG and DOT are always UTF-8, wherever they are stored.
            (Some(path), Format::Svg | Format::Dot) => write(path, &picture)?,
            (Some(path), Format::Text) => write(path, &charset::localized(&picture))?,
            (None, Format::Svg | Format::Dot) => terminal::print(&charset::shown_markup(&picture))?,
            (None, Format::Text) => terminal::print(&picture)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(path: &Path, picture: &str) -> Result<(), CommandError> {
    fs::write(path, picture).map_err(|error| CommandError::Usage(FileError::writing(path, &error).to_string()))
}

fn too_large(graph: &Graph) -> CommandError {
    CommandError::Usage(format!(
        "{} and {} are too many for a picture; `--format text` lists them, `--format dot` leaves the layout to Graphviz",
        plural(graph.apps.len() as u64, "app"),
        plural(graph.links.len() as u64, "link")
    ))
}

/// The network of a file, without rates.
fn draft(path: &Path, overrides: &[String], collapse: bool, registry: &Registry) -> Result<Picture, CommandError> {
    let file = NetworkFile { path: path.to_owned(), overrides: overrides.to_vec(), for_perf: false };
    let is_network = || path.to_str().is_some_and(|word| networks::pick(Some(word), Access::Read).is_ok());
    if !file.is_stdin() && !path.exists() && is_network() {
        let name = path.display();
        let message = format!("there is no file `{name}`; `bellows graph -n {name}` draws the running network");
        return Err(CommandError::Usage(message));
    }
    match file.load(registry) {
        Ok(loaded) => Ok(Picture::of_network(&loaded.network, collapse)),
        Err(mistakes) => Err(CommandError::Diagnosed(mistakes.render(terminal::stderr_is_rich()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_names_the_format() {
        let of = |name: &str| Format::of_file(Path::new(name)).ok();
        assert_eq!(["a.svg", "A.SVG", "a.dot", "a.gv", "a.txt", "a"].map(of), {
            use Format::{Dot, Svg, Text};
            [Svg, Svg, Dot, Dot, Text, Text].map(Some)
        });
        for (name, remedy) in
            [("c.png", "rsvg-convert -o c.png"), ("c.gif", "dot -Tgif -o c.gif"), ("c.doc", "--format")]
        {
            let Err(CommandError::Usage(message)) = Format::of_file(Path::new(name)) else {
                panic!("{name} is accepted")
            };
            assert!(message.contains(remedy) && message.contains(".svg"), "{message}");
        }
    }
}
