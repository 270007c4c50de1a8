//! `bench esp`: what the app `esp` costs beside its cipher alone.
//!
//! A process has two ends of a tunnel whose packets go round: one end seals them, the other opens them, so that they are
//! what they were. Around each end the clock is read for each vector. The bare cipher seals and opens the same lengths in
//! packets of its own, in the same turns, by each library that can be chosen; the reference is the fastest one.

mod bare;
mod contender;

use bellows_esp::{Algorithm, Cipher};
use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::report::{BenchError, Measurement, chosen};
use crate::timing::median_or_nan;
use crate::turns::{self, Match};
use crate::workers;
use contender::{DIRECTIONS, EspTask, lay_out};

/// Measure what the app esp costs beside its cipher alone
///
/// Clocks a packet in tunnel mode over IPv6, with extended sequence numbers, in vectors of 128 with 256 packets in flight.
/// `seal` and `open` are the app, `bare seal` and `bare open` the cipher over as many bytes as the app encrypts, in the
/// same turns; the ratios are those of the app to the cipher. The bare cipher is that of ring, which the app uses, or of
/// graviola, whichever is faster at this length; the table names it, and the instructions that the app's AES-GCM uses on
/// this processor. Cases: the ciphers.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = whole(1..=10_000))]
    rounds: usize,
}

/// Bytes of the packets that are sealed.
const LENGTHS: [usize; 3] = [128, 512, 1_500];

/// The library that the app uses.
const APP_LIBRARY: &str = "ring";

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let algorithms = chosen(Algorithm::ALL, Algorithm::name, &options.figures.case)?;
    let groups: Vec<(Algorithm, usize)> =
        algorithms.into_iter().flat_map(|algorithm| LENGTHS.map(|length| (algorithm, length))).collect();
    let mut series = lab.series(options, groups.len(), options.figures.processes);
    for (algorithm, length) in groups {
        let task = EspTask { algorithm: algorithm.name().to_owned(), length, cpu: options.common.cpu };
        let measured = |matches: &[Match]| measured(algorithm, length, matches);
        series.group(&[options.rounds], &[], |_| vec![task.clone()], measured)?;
    }
    Ok(Finished::after_rows(series.report()))
}

fn labels(algorithm: Algorithm, length: usize, library: &str, what: &str) -> Vec<(&'static str, Value)> {
    let mut labels = vec![("bytes", length.into()), ("library", json!(library)), ("what", json!(what))];
    if algorithm != Algorithm::ChaCha20Poly1305 {
        labels.push(("instructions", json!(Cipher::instructions())));
    }
    labels
}

/// The library whose cipher is the fastest in a direction: its name and its figure.
fn fastest(algorithm: Algorithm, matches: &[Match], direction: usize) -> Option<(&'static str, usize)> {
    let libraries = bare::ciphers(algorithm).into_iter().map(|(library, _)| library);
    let figures = libraries.zip((DIRECTIONS.len() + direction..).step_by(DIRECTIONS.len()));
    let clocks = |figure| median_or_nan(&turns::figures(matches, 0, figure));
    figures.min_by(|one, other| clocks(one.1).total_cmp(&clocks(other.1)))
}

/// The clocks of the app and of the fastest cipher, and their ratios.
fn measured(algorithm: Algorithm, length: usize, matches: &[Match]) -> Vec<Measurement> {
    let clocks = |figure, library: &str, what: &str| {
        let values = turns::figures(matches, 0, figure);
        Measurement::of(algorithm.name(), "clocks/packet", &values, labels(algorithm, length, library, what))
    };
    let app = DIRECTIONS.iter().enumerate().filter_map(|(direction, what)| clocks(direction, APP_LIBRARY, what));
    let mut found: Vec<Measurement> = app.collect();
    let mut ratios = Vec::new();
    for (direction, what) in DIRECTIONS.into_iter().enumerate() {
        let Some((library, bare)) = fastest(algorithm, matches, direction) else { continue };
        found.extend(clocks(bare, library, &format!("bare {what}")));
        let values = turns::ratios(matches, (0, direction), (0, bare));
        let labels = labels(algorithm, length, library, &format!("{what} to bare"));
        ratios.extend(Measurement::of(algorithm.name(), "ratio", &values, labels));
    }
    found.extend(ratios);
    found
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &["bytes", "library", "what"],
    rows: &[
        CaseRow::of(&["aes-128-gcm", "aes-256-gcm"], "clocks/packet", "a packet through the app, or the cipher alone")
            .with(&["instructions"]),
        CaseRow::of(&["aes-128-gcm", "aes-256-gcm"], "ratio", "the app relative to the cipher alone")
            .with(&["instructions"]),
        CaseRow::of(&["chacha20-poly1305"], "clocks/packet", "as of the other ciphers"),
        CaseRow::of(&["chacha20-poly1305"], "ratio", "as of the other ciphers"),
    ],
    labels: &[
        label("bytes", LabelKind::Integer, "bytes of the packets that are sealed"),
        label(
            "library",
            LabelKind::Word(&["ring", "graviola"]),
            "the library of the cipher: `ring` for the app; for the cipher alone and for ratios the faster one at this length, `ring` or `graviola`",
        ),
        label(
            "what",
            LabelKind::Word(&["seal", "open", "bare seal", "bare open", "seal to bare", "open to bare"]),
            "the app (`seal`, `open`), or the cipher alone over as many bytes (`bare seal`, `bare open`); of ratios, \
             `seal to bare` or `open to bare`",
        ),
        label("instructions", LabelKind::Text, "the instructions that AES-GCM uses on this processor"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "esp";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --case aes-128";
    const MORE: &'static [&'static str] =
        &["--processes 1 --rounds 1 --case 256", "--processes 1 --rounds 1 --case chacha"];
    const REFUSED: &'static [RefusedOptions] =
        &[(&["--case", "nonsense"], "no case has `nonsense` in its name; there are aes-128-gcm")];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}
