//! Campaigns of measurements: a matrix of factors from a file, runs in random order within blocks, and a journal of
//! results.
//!
//! A [`Campaign`] is read from a file by [`load`]. Its [`Plan`] has all combinations of the factors' levels, less those
//! that are excluded. Each block has every combination once, in random order, so that a slow hour of the machine
//! affects all combinations. [`run`] makes the runs that a [`Journal`] lacks: an [`Executor`] makes each of them and
//! gives a [`Row`], also for a run that failed. [`Results`] are the rows as columns.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bellows_campaign::{Journal, LocalExecutor, Results, Stop, load, run};
//! use std::path::Path;
//!
//! let loaded = load(Path::new("sizes.toml"))?;
//! let folder = Path::new("sizes.results");
//! let mut journal = Journal::open(folder, &loaded.campaign, &loaded.text)?;
//! let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder)?.with_journal(&journal);
//! let summary = run(&mut journal, &mut executor, &Stop::new()?, &mut ())?;
//! println!("{} of {} runs, {} without a score", summary.done, summary.all, summary.failed);
//! let results = Results::read(folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `campaign` | the data model of a campaign |
//! | `file`, `table`, `diagnostics` | reads a campaign file; typed access to TOML; errors with their places |
//! | `template` | placeholders in commands |
//! | `plan` | the order of runs, and the hash of a campaign |
//! | `executor` | makes one run |
//! | `processes`, `pipe`, `strays` | commands with a time limit and bounded output; those that a killed runner left |
//! | `score` | reads scores from outputs |
//! | `machine` | what the machine is, and what it did during a run |
//! | `row` | the result of a run |
//! | `folder` | the files of a results folder |
//! | `lines`, `line`, `scan` | reads JSON Lines one by one; a row whose texts are those of its line; its usual form |
//! | `observed` | counts the runs of each machine and version |
//! | `journal` | appends rows to a results folder |
//! | `sheet` | the table that follows the journal |
//! | `register` | hypotheses and when they were stated |
//! | `runner` | makes all runs that are missing |
//! | `status` | how far a campaign is |
//! | `compare` | two versions of a thing, by pairs of runs |
//! | `evidence` | results beside the register: which runs can confirm a hypothesis |
//! | `cells` | which combination of levels rows have |
//! | `queued` | what a queue of its runs has |
//! | `sample` | the difference of two means |
//! | `needed` | how many runs show an effect |
//! | `exercise` | arbitrary bytes as each kind of file |
//! | `verdict` | what results say of hypotheses |
//! | `results`, `words` | results as columns, from a results folder; words by their numbers |
//! | `import`, `imported` | the same from CSV; a results folder from CSV |
//! | `time` | the present time |
#![forbid(unsafe_code)]

mod campaign;
mod cells;
mod compare;
mod diagnostics;
mod evidence;
mod executor;
mod exercise;
mod file;
mod folder;
mod import;
mod imported;
mod journal;
mod line;
mod lines;
mod machine;
mod needed;
mod observed;
mod pipe;
mod plan;
mod processes;
mod queued;
mod register;
mod results;
mod row;
mod runner;
mod sample;
mod scan;
mod score;
mod sheet;
mod status;
mod strays;
mod table;
mod template;
mod time;
mod verdict;
mod words;

pub use campaign::{
    Better, Build, Campaign, Command, Disturbance, Exclusion, Factor, Hypothesis, Level, Read, ScoreDirection,
    ScoreSpec, Stream, Version,
};
pub use compare::{
    CompareError, Compared, Comparison, ComparisonOptions as CompareOptions, Conclusion as PairConclusion,
    Effect as PairEffect, Failures, Folders, LostPair, Scale, Undisturbed, build_versions, parse_margin,
};
pub use diagnostics::{Diagnostics, visible};
pub use evidence::{Evidence, Use};
pub use executor::{ExecuteError, Executor, LocalExecutor};
pub use exercise::exercise;
pub use file::{Loaded, load, parse};
pub use folder::{FactorInfo, Info, JOURNAL, JournalError, Origin, REGISTER, ScoreInfo, TABLE, is_results_file};
pub use import::{ColumnNames, ImportError, import, import_columns, import_file};
pub use imported::{ImportFolderError, Imported, import_folder};
pub use journal::Journal;
pub use needed::{Effect, NeededError, NeededRuns, Question, needed_runs};
pub use observed::{Counts, Observed};
pub use plan::{Hash, Plan, RunId};
pub use processes::Stop;
pub use queued::{CoordinatorStatus, QueueStatus, WorkerState, WorkerStatus};
pub use register::{HypothesisRecord, Register, Standing, register, text_hash};
pub use results::{FactorColumn, Results, each_row, read_rows};
pub use row::{Failure, FailureKind, Machine, Row, Score};
pub use runner::{CampaignProgress, Observer, RunError, Summary, run};
pub use sample::Estimate;
pub use score::{Captured, Output, ScoreReader};
pub use status::{Planned, Status};
pub use template::{PlaceholderValue, Template};
pub use time::now;
pub use verdict::{Conclusion, RunCounts, Verdict, verdicts, verdicts_of};
pub use words::Words;
