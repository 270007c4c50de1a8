//! `cargo xtask peers vhost`: Bellows beside DPDK's vhost back end, before the same virtio driver.
//!
//! One DPDK testpmd is the client. It has two ports: one leads to a second testpmd with DPDK's vhost back end, the
//! other to Bellows. The client has one processor, and the back ends share another; a signal stops the one that is not
//! measured. They take turns in windows of a third of a second. A testpmd cannot take turns of a millisecond, because
//! its counters have to be queried.
//!
//! Another build of Bellows can take the place of DPDK's back end, to measure a change.

mod bench;
mod processes;
mod results;

use std::path::PathBuf;
use std::time::Duration;

use crate::TaskError;
use crate::options::{list, number};
use crate::tools::{self, Tool};
use crate::workspace::cargo;

use bench::Point;

pub const TOOLS: &[Tool] = &[
    Tool { programs: &["dpdk-testpmd"], package: "dpdk-dev", purpose: "DPDK's virtio driver and vhost back end" },
    Tool { programs: &["chrt"], package: "util-linux", purpose: "scheduling priorities" },
    Tool { programs: &["kill"], package: "procps", purpose: "ending the measured programs" },
];

/// The options of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub packed: bool,
    pub mergeable: bool,
    pub in_order: bool,
}

impl Cell {
    fn all() -> Vec<Cell> {
        let option = |set: usize, bit: usize| set >> bit & 1 == 1;
        (0..8).map(|set| Cell { packed: option(set, 2), mergeable: option(set, 0), in_order: option(set, 1) }).collect()
    }

    /// As on the command line: `split`, `packed+mergeable+in-order`.
    pub fn name(&self) -> String {
        let mut name = if self.packed { "packed" } else { "split" }.to_owned();
        for (option, is_on) in [("+mergeable", self.mergeable), ("+in-order", self.in_order)] {
            name += if is_on { option } else { "" };
        }
        name
    }
}

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    GuestToHost,
    HostToGuest,
    Looped,
}

impl Direction {
    const ALL: [Direction; 3] = [Direction::GuestToHost, Direction::HostToGuest, Direction::Looped];

    pub fn name(self) -> &'static str {
        match self {
            Direction::GuestToHost => "guest-to-host",
            Direction::HostToGuest => "host-to-guest",
            Direction::Looped => "looped",
        }
    }
}

/// The pages of the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Plain,
    Hugepages,
}

impl Memory {
    pub fn name(self) -> &'static str {
        match self {
            Memory::Plain => "plain",
            Memory::Hugepages => "hugepages",
        }
    }
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Json,
    Markdown,
}

/// The options of the comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    cells: Vec<Cell>,
    directions: Vec<Direction>,
    sizes: Vec<usize>,
    memories: Vec<Memory>,
    /// Windows of each back end at each point.
    windows: usize,
    window: Duration,
    /// Whether the client may use its vectorized loops.
    vectorized: bool,
    client_cpu: usize,
    cpu: usize,
    /// Another build of Bellows, in place of DPDK's back end.
    against: Option<PathBuf>,
    shape: Shape,
}

impl Options {
    /// A description of the program that Bellows is compared with.
    fn reference(&self) -> &'static str {
        if self.against.is_some() { "other build" } else { "DPDK" }
    }

    /// All points, in full length.
    fn full() -> Options {
        Options {
            cells: Cell::all(),
            directions: Direction::ALL.to_vec(),
            sizes: vec![64, 256, 1_518],
            memories: vec![Memory::Hugepages],
            windows: 15,
            window: Duration::from_millis(300),
            vectorized: false,
            client_cpu: 0,
            cpu: 1,
            against: None,
            shape: Shape::Text,
        }
    }

    fn parse(words: &[String]) -> Result<Options, TaskError> {
        let mut options = Options::full();
        if words.iter().any(|word| word == "--brief") {
            options.sizes = vec![64];
            options.windows = 3;
            options.window = Duration::from_millis(300);
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next().map(String::as_str);
                value.ok_or_else(|| TaskError::usage(format!("{word} needs a value; see: cargo xtask help")))
            };
            match word.as_str() {
                "--brief" => {}
                "--json" => options.shape = Shape::Json,
                "--markdown" => options.shape = Shape::Markdown,
                "--vectorized" => options.vectorized = true,
                "--cells" => options.cells = list(word, value()?, &Cell::all(), Cell::name)?,
                "--directions" => {
                    let name = |direction: &Direction| direction.name().to_owned();
                    options.directions = list(word, value()?, &Direction::ALL, name)?;
                }
                "--memory" => {
                    let name = |memory: &Memory| memory.name().to_owned();
                    options.memories = list(word, value()?, &[Memory::Plain, Memory::Hugepages], name)?;
                }
                "--sizes" => {
                    let sizes = value()?.split(',').map(|size| number(word, size, 60..=1_518));
                    options.sizes = sizes.collect::<Result<_, _>>()?;
                }
                "--windows" => options.windows = number(word, value()?, 1..=1_000)?,
                "--window" => options.window = Duration::from_millis(number(word, value()?, 100..=60_000)? as u64),
                "--client-cpu" => options.client_cpu = number(word, value()?, 0..=1_023)?,
                "--cpu" => options.cpu = number(word, value()?, 0..=1_023)?,
                "--against" => options.against = Some(PathBuf::from(value()?)),
                other => return Err(TaskError::usage(format!("peers vhost: '{other}' is not an option"))),
            }
        }
        match options.cpu == options.client_cpu {
            true => {
                Err(TaskError::usage("--cpu and --client-cpu are the same: polling programs cannot share a processor"))
            }
            false => Ok(options),
        }
    }

    fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &memory in &self.memories {
            for &direction in &self.directions {
                for &size in &self.sizes {
                    points.extend(self.cells.iter().map(|&cell| Point { cell, memory, direction, size }));
                }
            }
        }
        points
    }
}

/// Runs the comparison.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    let options = Options::parse(words)?;
    if let Some(program) = options.against.as_ref().filter(|program| !program.is_file()) {
        return Err(TaskError::usage(format!("--against: there is no program {}", program.display())));
    }
    if let Some(tool) = tools::provide(TOOLS).first() {
        return Err(TaskError::failed(format!("missing: {tool}; needed for {}", tool.purpose)));
    }
    let mut build = cargo(&["build", "--release", "--quiet", "--package", "bellows"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(TaskError::failed("the release build of bellows failed: see above"));
    }
    let rows = bench::measure(&options)?;
    let text = match options.shape {
        Shape::Text => results::text(&rows, options.reference()),
        Shape::Json => results::json(&rows, options.reference()),
        Shape::Markdown => results::markdown(&rows),
    };
    print!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, TaskError> {
        Options::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn everything_is_measured_by_default() {
        assert_eq!(parse(&[]).ok(), Some(Options::full()));
        assert_eq!(Options::full().points().len(), 8 * 3 * 3);
        let words = ["--cells", "split,packed+mergeable+in-order", "--directions", "looped", "--sizes", "64,1518"];
        let options = parse(&[&words[..], &["--memory", "plain,hugepages"]].concat()).ok().unwrap();
        assert_eq!(options.points().len(), 2 * 2 * 2);
        let names: Vec<String> = options.cells.iter().map(Cell::name).collect();
        assert_eq!(names, ["split", "packed+mergeable+in-order"]);
    }

    #[test]
    fn brief_shortens_everything_except_given_options() {
        let options = parse(&["--windows", "5", "--brief"]).ok().unwrap();
        assert_eq!((options.sizes, options.windows), (vec![64], 5));
    }

    #[test]
    fn an_invalid_option_is_named() {
        for (words, why) in [
            (&["--cells", "split+magic"] as &[&str], "split+magic"),
            (&["--sizes", "59"], "from 60 to 1518"),
            (&["--windows"], "--windows needs a value"),
            (&["--cpu", "0"], "the same"),
            (&["--fast"], "'--fast'"),
        ] {
            let Err(TaskError::Usage(message)) = parse(words) else { panic!("{words:?} was accepted") };
            assert!(message.contains(why), "{message}");
        }
    }
}
