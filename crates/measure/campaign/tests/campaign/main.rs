//! Campaigns from their file to their results, with real programs.

mod builds;
mod compare;
mod crash;
mod examples;
mod figures;
mod file;
mod import;
mod journal;
mod pairs;
mod plan;
mod register;
mod run;
mod scores;
mod support;
mod verdict;
