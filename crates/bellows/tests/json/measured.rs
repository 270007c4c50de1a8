//! Benchmarks. What cases they have is compared where all of them run (`bench.rs`).

use bellows::forms::{Chapter, Found};

use crate::assert_met;
use crate::support::{Sandbox, forms};

#[test]
fn what_benchmarks_report() {
    let sandbox = Sandbox::new();
    let mut found = Found::new();
    let mut print = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        forms::compare(&words, &sandbox.bellows(&words).stdout, &mut found);
    };
    print("bench engine --case source-sink --processes 1 --rounds 2 --schedule flat");
    print("bench history --case mix --processes 1 --rounds 2 --idle-seconds 0.01 --schedule flat");
    print("bench reload --processes 1 --apps 8 --reloads 2 --schedule flat");
    print("breathsim --processes 1 --iterations 1000 --schedule flat --busy-after 0");
    // Unit tests have these, too.
    let rare = [("Benchmark", "interrupted"), ("Benchmark", "failed"), ("Figure", "undecided")];
    assert_met(Chapter::Measured, &found, &[], &rare);
}
