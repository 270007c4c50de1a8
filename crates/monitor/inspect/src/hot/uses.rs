//! The first use of packet data: which instruction of an app it is.
//!
//! The processor's debug registers report each instruction that reads or writes the first bytes of a packet, so nobody
//! has to guess it from the code. Prefetches are no uses.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bellows_engine::listing::Listing;
use bellows_pmu::Sampler;

use super::attribution::{Attribution, StackEvidence, StackSlots};
use super::image::Image;
use super::{FETCH_INTERVAL, Report, cannot, cannot_sample, engine_threads};
use crate::InspectError;

/// The words that are watched: as many as the processor has debug registers. They hold an Ethernet header and more.
const WORDS: usize = 4;

/// An instruction that uses the data of a packet.
struct Use {
    /// The instruction behind it.
    next: u64,
    evidence: StackEvidence,
}

/// Finds the instructions by which an app of this process first uses the data of packets: the address of the instruction
/// behind each, in its module. There are several if the compiler has unrolled a loop, or a packet takes different ways.
///
/// `packets` are the addresses of the first bytes of packets that pass again and again; each is watched for `duration`.
/// The threads of the engine have the names that [`of_process`](super::of_process) expects.
///
/// # Errors
/// If there is no such thread, or the processor or the system does not let a thread be watched.
pub fn first_uses(
    listing: &Listing,
    app: &str,
    packets: &[usize],
    duration: Duration,
) -> Result<BTreeSet<u64>, InspectError> {
    let pid = std::process::id();
    if cfg!(not(target_arch = "x86_64")) {
        return Err(cannot(app, pid, "which instruction uses packet data is found on x86-64 only"));
    }
    let mut image = Image::open(pid, listing).map_err(|why| cannot(app, pid, &why))?;
    let mut attribution = Attribution::new(listing);
    let threads = engine_threads(pid).map_err(|why| cannot(app, pid, &why))?;
    let mut found = BTreeSet::new();
    for packet in packets {
        let first = packet & !(size_of::<u64>() - 1);
        let words: [usize; WORDS] = std::array::from_fn(|word| first + word * size_of::<u64>());
        for &thread in &threads {
            let uses = watch(thread, &words, duration, &mut image, &mut attribution)
                .map_err(|error| cannot_sample(app, pid, &error))?;
            found.extend(firsts(&uses, app, &attribution));
        }
    }
    Ok(found.into_iter().filter_map(|next| Some(image.locate(next)?.address)).collect())
}

/// All uses of some words by a thread, in their order.
fn watch(
    thread: i32,
    words: &[usize],
    duration: Duration,
    image: &mut Image,
    attribution: &mut Attribution,
) -> Result<Vec<Use>, bellows_pmu::SampleError> {
    let mut sampler = Sampler::watch(thread, words)?;
    let (mut uses, end) = (Vec::new(), Instant::now() + duration);
    while Instant::now() < end {
        std::thread::sleep(FETCH_INTERVAL.min(duration));
        sampler.take(|sample| {
            let evidence = attribution.ask(image, sample.instruction, sample.stack);
            uses.push(Use { next: sample.instruction, evidence });
        });
    }
    Ok(uses)
}

/// The uses by an app right after those by another one.
fn firsts(uses: &[Use], app: &str, attribution: &Attribution) -> Vec<u64> {
    let mut slots = StackSlots::default();
    uses.iter().for_each(|used| slots.record(&used.evidence, 1));
    let is_of_app = |used: &Use| {
        slots.owner_of(&used.evidence).is_some_and(|owner| attribution.apps(owner).iter().any(|other| other == app))
    };
    let pairs = uses.windows(2).filter(|pair| !is_of_app(&pair[0]) && is_of_app(&pair[1]));
    pairs.map(|pair| pair[1].next).collect()
}

impl Report {
    /// The samples of an app, and those of them at its first uses of packet data: at the instructions themselves, and at
    /// those behind them, where a timer's samples of a slow instruction are.
    pub fn at_first_uses(&self, app: &str, next: &BTreeSet<u64>) -> (u64, u64) {
        let of_app = self.functions.iter().filter(|function| function.apps.iter().any(|other| other == app));
        of_app.fold((0, 0), |(all, at), function| {
            let lines = &function.instructions;
            let is_at = |place: usize| {
                next.contains(&lines[place].address)
                    || lines.get(place + 1).is_some_and(|line| next.contains(&line.address))
            };
            let here: u64 = (0..lines.len()).filter(|&place| is_at(place)).map(|place| lines[place].samples).sum();
            (all + function.samples, at + here)
        })
    }
}
