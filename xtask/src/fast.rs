//! `cargo xtask test --fast`: what is tested within two minutes once it is built, and what is not.

use std::collections::BTreeSet;

use crate::{TaskError, programs};

/// The test programs that it leaves out, each with the reason. All others have unit tests, property tests, and tests of
/// the command line.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("apps/l2vpn", "networks of two sites under random losses"),
    ("bellows/docs", "all commands of the documentation"),
    ("bellows/guests", "guests"),
    ("bellows/interfaces", "network namespaces"),
    ("bellows/measure", "benchmarks"),
    ("bellows/networks", "whole runs of networks"),
    ("bellows/own_apps", "networks that hang"),
    ("bellows/web", "a browser"),
    ("campaign/campaign", "whole campaigns"),
    ("config/mutations", "thousands of damaged network files"),
    ("custom-app/guide", "a build of a user's program"),
    ("engine/books", "books of random networks"),
    ("engine/starvation", "patterns that starve workers"),
    ("fib/real", "tables of real routers"),
    ("filter/libpcap", "filters beside libpcap"),
    ("lab/callgrind", "runs under valgrind"),
    ("netif/interfaces", "network namespaces"),
    ("placement/limits", "all shapes of a network"),
    ("queue/queue", "servers of NATS"),
    ("report/million", "a million rows"),
    ("report/report", "a browser"),
    ("serve/hostile", "clients that are slow on purpose"),
    ("testkit/netns", "network namespaces"),
    ("virtio/combinations", "all combinations of a device's features"),
];

/// The options that make `cargo test` build the programs that are not left out, and few others.
///
/// # Errors
///
/// Cargo cannot list the workspace.
pub fn targets() -> Result<Vec<String>, TaskError> {
    let names = programs::in_workspace()?;
    let wanted = names.iter().filter(|name| why_left_out(name).is_none());
    let targets: BTreeSet<&str> = wanted.filter_map(|name| name.split_once('/')).map(|(_, target)| target).collect();
    let options = ["--lib", "--bins"].into_iter().chain(targets.into_iter().flat_map(|name| ["--test", name]));
    Ok(options.map(str::to_owned).collect())
}

/// Why a test program is left out, if it is.
pub fn why_left_out(name: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(left_out, _)| *left_out == name).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_there_and_is_not_built() {
        let all = programs::in_workspace().ok().unwrap();
        let targets = targets().ok().unwrap();
        let is_built = |name: &str| targets.iter().any(|target| target == name);
        for (name, why) in LEFT_OUT {
            assert!(all.iter().any(|known| known == name) && !why.is_empty(), "there is no test program {name}");
        }
        for (name, is_wanted) in [("cli", true), ("schedules", true), ("networks", false), ("guests", false)] {
            assert_eq!(is_built(name), is_wanted, "{name}");
        }
    }
}
