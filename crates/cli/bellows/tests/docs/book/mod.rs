//! The book, which is the pages in `docs/`: each command in their blocks of code is run, in its order, or by another
//! test, with the reason. `first_steps.rs` runs the page for newcomers.

mod container;
mod neighbours;
mod pages;
mod run;

use std::fs;

use crate::support::root;
use bellows_testkit::page::{Command, commands};
use pages::{How, Page};

/// A test for each page, and the list of these pages.
macro_rules! tests {
    ($($test:ident: $page:ident,)*) => {
        $(#[test]
        fn $test() {
            run::page(stringify!($test), &pages::$page);
        })*

        const PAGES: &[&Page] = &[$(&pages::$page),*];
    };
}

tests! {
    campaigns: CAMPAIGNS,
    filtering: FILTERING,
    installing: INSTALLING,
    interfaces: INTERFACES,
    ipsec: IPSEC,
    ipv6_links: IPV6_LINKS,
    l2vpn: L2VPN,
    metrics: METRICS,
    operating: OPERATING,
    reading_the_numbers: READING_THE_NUMBERS,
    reproductions: REPRODUCTIONS,
    router: ROUTER,
    switching: SWITCHING,
    tunnels: TUNNELS,
    vhost_user: VHOST_USER,
    web: WEB,
    workers: WORKERS,
    writing_an_app: WRITING_AN_APP,
}

/// The text of a page.
fn text(page: &str) -> String {
    let path = root().join("docs").join(format!("{page}.md"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn each_page_with_commands_is_run() {
    let mut seen = 0;
    let docs = root().join("docs");
    let folders = [docs.clone(), docs.join("design")];
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let name = path.with_extension("");
        let name = name.strip_prefix(&docs).unwrap().to_str().unwrap();
        let commands = commands(&text(name));
        let is_run = name == "first-steps" || PAGES.iter().any(|page| page.name == name);
        if let (Some(Command { line, text }), false) = (commands.first(), is_run) {
            panic!("{}:{line}: no test runs `{text}`: add the page to tests/docs/book/pages.rs", path.display());
        }
        seen += commands.len();
    }
    assert!(seen > 150, "{seen} commands");
}

#[test]
fn what_is_special_about_commands_is_of_commands_that_there_are() {
    for page in PAGES {
        let commands = commands(&text(page.name));
        for special in page.specials {
            let is_there = commands.iter().any(|command| page.special(command).is_some_and(|one| one == special));
            assert!(is_there, "docs/{}.md has no command that is only `{}`", page.name, special.command);
            if let How::Elsewhere { file, test, .. } = special.how {
                let code = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
                assert!(
                    code.contains(&format!("fn {test}(")),
                    "{file} has no `{test}`, which is to run what is left out"
                );
            }
        }
    }
}
