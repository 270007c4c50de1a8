//! Commands with apps of their own, which hang, panic, are slow or lose count.
//!
//! This program is also the command that it tests: it runs as the command if the variable `COMMAND` is set, which
//! Rust's test harness cannot. Its own one runs one test after another, because some of them measure times, and prints
//! the same lines.

/// The tests of a module, by name. `by` wraps each of them.
macro_rules! tests {
    (by $wrap:ident: $($test:ident,)*) => {
        pub const TESTS: &[crate::Test] = &[$((stringify!($test), || $wrap(stringify!($test), $test)),)*];
    };
    ($($(#[$condition:meta])? $test:ident,)*) => {
        pub const TESTS: &[crate::Test] = &[$($(#[$condition])? (stringify!($test), $test),)*];
    };
}

mod hangs;
mod misbehaving;
mod slow;
#[path = "../support/mod.rs"]
mod support;
mod workers;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

/// A test and its name.
type Test = (&'static str, fn());

/// The modules with tests.
const MODULES: [(&str, &[Test]); 4] =
    [("hangs", hangs::TESTS), ("misbehaving", misbehaving::TESTS), ("slow", slow::TESTS), ("workers", workers::TESTS)];

/// The exit code of Rust's test harness for failed tests.
const FAILED: u8 = 101;

fn main() -> ExitCode {
    if std::env::var_os("COMMAND").is_some() {
        let adders = [hangs::add, misbehaving::add, slow::add, workers::add];
        return adders.iter().fold(bellows::Command::new("own-apps"), |command, add| add(command)).main();
    }
    let (options, filters): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let tests = MODULES
        .iter()
        .flat_map(|(module, tests)| tests.iter().map(move |(name, test)| (format!("{module}::{name}"), test)));
    let is_exact = options.iter().any(|option| option == "--exact");
    let is_wanted = |name: &str| {
        let is_named = |filter: &String| if is_exact { name == filter } else { name.contains(filter.as_str()) };
        filters.is_empty() || filters.iter().any(is_named)
    };
    let (wanted, others): (Vec<_>, Vec<_>) = tests.partition(|(name, _)| is_wanted(name));
    if options.iter().any(|option| option == "--list") {
        wanted.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let (count, start, mut failed) = (wanted.len(), Instant::now(), 0);
    for (name, test) in wanted {
        let is_ok = catch_unwind(test).is_ok();
        failed += usize::from(!is_ok);
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        count - failed,
        others.len(),
        start.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}
