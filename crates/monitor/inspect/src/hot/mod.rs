//! Hot spots: the functions and instructions in which an engine spends its time, by samples.
//!
//! Some thousand times a second, a kernel timer interrupts the engine's threads and records the instruction and the top
//! of the stack. [`image`] identifies the function, [`attribution`] the app, [`code`] the instruction,
//! [`uses`] the first instruction that uses packet data.

pub mod attribution;
pub mod code;
pub mod image;
pub mod name;
pub mod uses;

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use bellows_config::nearest;
use bellows_engine::listing::Listing;
use bellows_observe::RuntimeDir;
use bellows_pmu::{SampleError, Sampler};
use schemars::JsonSchema;
use serde::Serialize;

use self::attribution::{Attribution, Owner, StackEvidence, StackSlots};
use self::code::CodeLine;
use self::image::{Image, Location};
use crate::InspectError;
use crate::control::{Reply, Request, ask};
use crate::networks::{self, Access, Sample};
use crate::text::sanitize;

/// The time between two samples of a thread on the processor. Not a multiple of any regular period.
const PERIOD: Duration = Duration::from_nanos(250_673);

/// The interval at which samples are fetched: short enough that the kernel's buffer does not overflow.
const FETCH_INTERVAL: Duration = Duration::from_millis(4);

/// The place of samples, and the evidence of the stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenStack {
    /// The thread, by its position.
    thread: usize,
    instruction: u64,
    in_kernel: bool,
    evidence: StackEvidence,
}

/// The result of sampling.
#[derive(Debug, Default)]
struct HotTally {
    seen: HashMap<SeenStack, u64>,
    /// By the position of the thread: workers call their breaths from different depths.
    slots: HashMap<usize, StackSlots>,
    samples: u64,
    lost: u64,
    /// The time that the threads were on a processor.
    busy: Duration,
    user_only: bool,
}

/// The places where an engine spent its time. `docs/json.md` describes the JSON form.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Hot spots")]
pub struct Report {
    /// The network.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// The schedule in use.
    pub schedule: String,
    /// Duration of the sampling.
    pub seconds: f64,
    /// Number of sampled threads: one for each worker.
    pub threads: usize,
    /// Samples taken.
    pub samples: u64,
    /// Samples lost for lack of room.
    pub lost: u64,
    /// The share of the time that the threads were on a processor, from 0 to 1, on average.
    pub running: f64,
    /// Whether kernel mode is excluded for lack of permission.
    pub user_only: bool,
    /// The requested app (`--app`); null for all.
    pub app: Option<String>,
    /// Number of samples of that app; without `--app`, of all samples.
    pub selected: u64,
    /// The functions of these samples, most samples first; a function appears once for each app that it ran for.
    pub functions: Vec<Function>,
}

/// A function with samples on behalf of the same apps.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Hot function")]
pub struct Function {
    /// Its name without modules; the name of the file, or `[kernel]`, if the function is unknown.
    pub function: String,
    /// Its full name; null if unknown.
    pub symbol: Option<String>,
    /// Its file; `assembled` for the code of the breath, whose functions are its sections.
    pub module: String,
    /// The app; several apps of one type if it is unknown which of them; none if it ran for the engine itself.
    pub apps: Vec<String>,
    /// Its samples.
    pub samples: u64,
    /// Their share of `selected`, from 0 to 1.
    pub share: f64,
    /// The sampled instructions, in the order of their addresses; none if the code cannot be read.
    pub instructions: Vec<CodeLine>,
}

/// Samples a running network's engine for some time: the functions in which it spends it, for one app or all.
///
/// # Errors
/// If the network is another user's, is not running, does not answer, has no such app or is reloaded meanwhile, or if
/// sampling is not permitted.
pub fn report(runtime_dir: &RuntimeDir, app: Option<&str>, duration: Duration) -> Result<Report, InspectError> {
    networks::refuse_foreign(runtime_dir, "show hot", "sampling reads its program, which is not trusted")?;
    let name = runtime_dir.name();
    let Some(pid) = runtime_dir.process() else {
        return Err(InspectError::Request(format!("`{name}` has crashed; only a running network can be sampled")));
    };
    if let Some(app) = app {
        find_app(runtime_dir, app)?;
    }
    let listing = breath(runtime_dir)?;
    let report = of_process(&name, pid, &listing, app, duration)?;
    let after = breath(runtime_dir)?;
    let code = |listing: &Listing| -> Vec<_> {
        let workers = std::iter::once(listing).chain(&listing.further);
        workers.map(|listing| (listing.calls.clone(), listing.code.clone(), listing.app_code.clone())).collect()
    };
    if code(&after) != code(&listing) {
        return Err(InspectError::Failed(format!("`{name}` was reloaded while it was sampled; sample it again")));
    }
    Ok(report)
}

/// As [`report`], for the engine of a process, given the listing of its breath. Its threads have the names that those of
/// a running network have: `engine`, and `worker` with a name.
///
/// # Errors
/// If there is no such thread, it slept all the time, or sampling is not permitted.
pub fn of_process(
    name: &str,
    pid: u32,
    listing: &Listing,
    app: Option<&str>,
    duration: Duration,
) -> Result<Report, InspectError> {
    let mut image = Image::open(pid, listing).map_err(|why| cannot(name, pid, &why))?;
    let mut attribution = Attribution::new(listing);
    let threads = engine_threads(pid).map_err(|why| cannot(name, pid, &why))?;
    let started = Instant::now();
    let tally = sample(&threads, duration.max(FETCH_INTERVAL), &mut image, &mut attribution)
        .map_err(|error| cannot_sample(name, pid, &error))?;
    let seconds = started.elapsed().as_secs_f64();
    if tally.samples == 0 {
        let lost =
            if tally.lost > 0 { "all samples were lost: the machine is too busy" } else { "it slept all the time" };
        return Err(InspectError::Failed(format!("`{name}` cannot be sampled: {lost} ({seconds:.1} s)")));
    }
    let functions = functions(&tally, app, &mut image, &attribution);
    Ok(Report {
        name: name.to_owned(),
        pid,
        schedule: listing.schedule.clone(),
        seconds,
        threads: threads.len(),
        samples: tally.samples,
        lost: tally.lost,
        running: (tally.busy.as_secs_f64() / seconds / threads.len() as f64).min(1.0),
        user_only: tally.user_only,
        app: app.map(str::to_owned),
        selected: functions.iter().map(|function| function.samples).sum(),
        functions,
    })
}

fn cannot(name: &str, pid: u32, why: &str) -> InspectError {
    InspectError::Failed(format!("`{name}` (process {pid}) cannot be sampled: {}", sanitize(why)))
}

fn cannot_sample(name: &str, pid: u32, error: &SampleError) -> InspectError {
    match error {
        SampleError::NotPermitted { .. } => InspectError::Request(format!("`{name}` (process {pid}): {error}")),
        error => cannot(name, pid, &error.to_string()),
    }
}

fn breath(runtime_dir: &RuntimeDir) -> Result<Listing, InspectError> {
    match ask(runtime_dir, &Request::Breath)? {
        Reply::Breath(listing) => Ok(listing),
        _ => Err(InspectError::Failed(format!("`{}` did not answer with its breath", runtime_dir.name()))),
    }
}

/// Rejects an app that the network does not have.
fn find_app(runtime_dir: &RuntimeDir, app: &str) -> Result<(), InspectError> {
    let name = runtime_dir.name();
    let mut observer = networks::open(networks::pick(Some(&name), Access::Read)?)?;
    let apps: Vec<String> = Sample::take(&mut observer).counters.apps.into_iter().map(|app| app.name).collect();
    if apps.iter().any(|known| known == app) {
        return Ok(());
    }
    let hint = match nearest(app, apps.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", apps.join(", ")),
    };
    Err(InspectError::Request(format!("`{name}` has no app `{app}`; {}", sanitize(&hint))))
}

/// The threads of a process that take breaths.
fn engine_threads(pid: u32) -> Result<Vec<i32>, String> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).map_err(|error| format!("{folder} cannot be read: {error}"))?;
    let is_engine = |task: &fs::DirEntry| {
        // The kernel cuts long names.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.trim_end() == "engine" || name.starts_with("worker ")
    };
    let threads = tasks.flatten().filter(is_engine).filter_map(|task| task.file_name().to_str()?.parse().ok());
    let threads: Vec<i32> = threads.collect();
    if threads.is_empty() { Err("it has no thread named `engine`".to_owned()) } else { Ok(threads) }
}

/// Samples the threads, and attributes each sample to an app.
fn sample(
    threads: &[i32],
    duration: Duration,
    image: &mut Image,
    attribution: &mut Attribution,
) -> Result<HotTally, SampleError> {
    let samplers: Result<Vec<Sampler>, _> = threads.iter().map(|thread| Sampler::open(*thread, PERIOD)).collect();
    let mut samplers = samplers?;
    let mut tally = HotTally::default();
    let end = Instant::now().checked_add(duration);
    while let left = end.map_or(FETCH_INTERVAL, |end| end.saturating_duration_since(Instant::now()))
        && !left.is_zero()
    {
        std::thread::sleep(left.min(FETCH_INTERVAL));
        for (thread, sampler) in samplers.iter_mut().enumerate() {
            sampler.take(|sample| {
                let evidence = attribution.ask(image, sample.instruction, sample.stack);
                tally.slots.entry(thread).or_default().record(&evidence, 1);
                let seen = SeenStack { thread, instruction: sample.instruction, in_kernel: sample.in_kernel, evidence };
                *tally.seen.entry(seen).or_default() += 1;
                tally.samples += 1;
            });
        }
    }
    tally.lost = samplers.iter().map(Sampler::lost).sum();
    tally.busy = samplers.iter().filter_map(Sampler::busy).sum();
    tally.user_only = samplers.iter().any(Sampler::is_user_only);
    Ok(tally)
}

/// The key of a function in the report: `None` for the kernel, the indices of module and function, and the apps.
type FunctionKey = (Option<(usize, Option<usize>)>, Option<Owner>);

/// The samples of one function on behalf of one app.
#[derive(Default)]
struct Spot {
    samples: u64,
    addresses: HashMap<u64, u64>,
}

/// The functions with samples, in descending order, for one app or all.
fn functions(tally: &HotTally, app: Option<&str>, image: &mut Image, attribution: &Attribution) -> Vec<Function> {
    let mut spots: HashMap<FunctionKey, Spot> = HashMap::new();
    for (seen, samples) in &tally.seen {
        let location = if seen.in_kernel { None } else { image.locate(seen.instruction) };
        let assembled = location.filter(|_| image.is_assembled(seen.instruction));
        let stretch = assembled.and_then(|location| attribution.stretch(&image.function(location)?.name()));
        let owner = stretch.or_else(|| tally.slots.get(&seen.thread)?.owner_of(&seen.evidence));
        let apps = owner.map_or(&[][..], |owner| attribution.apps(owner));
        if app.is_some_and(|app| apps.iter().all(|other| other != app)) {
            continue;
        }
        let key = (location.map(|Location { module, function, .. }| (module, function)), owner);
        let spot = spots.entry(key).or_default();
        spot.samples += samples;
        if let Some(location) = location {
            *spot.addresses.entry(location.address).or_default() += samples;
        }
    }
    let total: u64 = spots.values().map(|spot| spot.samples).sum();
    let apps = |owner: Option<Owner>| owner.map_or_else(Vec::new, |owner| attribution.apps(owner).to_vec());
    let mut functions: Vec<Function> = spots
        .into_iter()
        .map(|((place, owner), spot)| Function {
            samples: spot.samples,
            share: spot.samples as f64 / total as f64,
            apps: apps(owner),
            ..describe(place, &spot, image)
        })
        .collect();
    functions.sort_by(|one, other| {
        let key = |function: &Function| {
            (std::cmp::Reverse(function.samples), function.function.clone(), function.apps.clone())
        };
        key(one).cmp(&key(other))
    });
    functions
}

/// A function's names and its instructions.
fn describe(place: Option<(usize, Option<usize>)>, spot: &Spot, image: &mut Image) -> Function {
    let unknown = |module: &str| Function {
        function: module.to_owned(),
        symbol: None,
        module: module.to_owned(),
        apps: Vec::new(),
        samples: 0,
        share: 0.0,
        instructions: Vec::new(),
    };
    let Some((module, function)) = place else { return unknown("[kernel]") };
    let location = Location { module, function, address: 0 };
    let Some(function) = image.function(location).cloned() else { return unknown(&image.module(module).name) };
    Function {
        function: name::short(&function.name()),
        symbol: Some(function.name()),
        instructions: code::instructions(image, module, &function, &spot.addresses),
        ..unknown(&image.module(module).name)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use bellows_engine::listing;

    /// A breath of two apps of one type.
    fn listing() -> Listing {
        let call = |app: &str| listing::ListedCall {
            entry: "push".to_owned(),
            app: app.to_owned(),
            function: "a::Walk::push".to_owned(),
            tests: Vec::new(),
        };
        let line = |address: u64, label: &str| listing::CodeLine {
            address,
            bytes: "e800000000".to_owned(),
            text: "call a::Walk::push".to_owned(),
            label: Some(label.to_owned()),
        };
        Listing {
            calls: vec![call("left"), call("right")],
            code: vec![line(0x1000, "push left [a]"), line(0x1005, "push right [b]"), line(0x100a, "tail")],
            ..Listing::default()
        }
    }

    /// The instruction, whether in the kernel, the return addresses, and the number of samples.
    type Row<'a> = (u64, bool, &'a [(u64, Owner)], u64);

    fn tally(seen: &[Row<'_>]) -> HotTally {
        let mut tally = HotTally::default();
        for &(instruction, in_kernel, returns, samples) in seen {
            let evidence =
                if returns.is_empty() { StackEvidence::None } else { StackEvidence::Returns(returns.to_vec()) };
            tally.slots.entry(0).or_default().record(&evidence, samples);
            tally.samples += samples;
            tally.seen.insert(SeenStack { thread: 0, instruction, in_kernel, evidence }, samples);
        }
        tally
    }

    #[test]
    fn one_function_is_listed_for_each_app_that_it_works_for() {
        let listing = listing();
        let mut image = Image::open(std::process::id(), &listing).unwrap();
        let attribution = Attribution::new(&listing);
        let owner = |app: &str| attribution.stretch(&format!("breath: push {app}")).unwrap();
        let (left, right) = (owner("left [a]"), owner("right [b]"));
        let here = name::short as *const () as u64;
        let tally = tally(&[
            (here, false, &[(0x7000, left)], 10),
            (here + 1, false, &[(0x7000, left)], 20),
            (here, false, &[(0x7000, right)], 40),
            (0x1005, false, &[], 5),
            (0x100a, false, &[], 4),
            (3, true, &[(0x7000, right)], 15),
            (3, false, &[], 6),
        ]);
        let summary = |app| -> Vec<(String, String, u64)> {
            let functions =
                functions(&tally, app, &mut Image::open(std::process::id(), &listing).unwrap(), &attribution);
            let row = |function: &Function| {
                (
                    function.function.clone(),
                    match &function.apps[..] {
                        [] => "(engine)".to_owned(),
                        apps => apps.join(" or "),
                    },
                    function.samples,
                )
            };
            functions.iter().map(row).collect()
        };
        let row = |function: &str, app: &str, samples| (function.to_owned(), app.to_owned(), samples);
        assert_eq!(
            summary(None),
            [
                row("name::short", "right", 40),
                row("name::short", "left", 30),
                row("[kernel]", "right", 15),
                row("[kernel]", "(engine)", 6),
                row("breath: push right [b]", "right", 5),
                row("breath: tail", "(engine)", 4),
            ]
        );
        assert_eq!(summary(Some("left")), [row("name::short", "left", 30)]);
        let first = &functions(&tally, None, &mut image, &attribution)[0];
        assert_eq!(first.share, 0.4);
        assert_eq!(first.instructions.iter().map(|line| line.samples).sum::<u64>(), 40);
    }
}
