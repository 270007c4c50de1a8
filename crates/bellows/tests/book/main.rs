//! The book, which is the pages in `docs/`: each command in their blocks of code is run, in its order, or by another
//! test, with the reason. `first_steps.rs` runs the page for newcomers.

mod container;
mod pages;
mod run;

#[path = "../support/mod.rs"]
mod support;

use std::fs;

use bellows_testkit::guest::{self, Setup};
use bellows_testkit::page::{Command, commands};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::{programs, scratch};
use pages::{How, Page};
use support::root;

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
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let commands = commands(&text(name));
        let is_run = name == "first-steps" || PAGES.iter().any(|page| page.name == name);
        if let (Some(Command { line, text }), false) = (commands.first(), is_run) {
            panic!("{}:{line}: no test runs `{text}`: add the page to tests/book/pages.rs", path.display());
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

#[test]
fn the_other_ends_run_in_a_guest_with_linux() {
    let test = "the_other_ends_run_in_a_guest_with_linux";
    let missing = guest::missing().or_else(|| programs::missing(&["ip"]));
    if is_left_out(test) || is_skipped(test, missing) {
        return;
    }
    let folder = scratch();
    let setup = Setup::without_cards(folder.path()).program(&programs::find_program("ip").unwrap());
    // The names of protocols.
    let mut guest = setup.file("etc/protocols", "gre 47 GRE\n".to_owned()).boot();
    guest.load_tunnels();
    guest.load_ipsec();
    for line in pages::GUEST {
        guest.run(line);
    }
    let mut seen = 0;
    for page in PAGES {
        for command in commands(&text(page.name)) {
            let special = page.special(&command);
            if special.is_some_and(|special| special.how == How::InGuest) {
                let (status, said) = guest.try_run(&format!("{}{}", special.unwrap().before, command.text));
                assert_eq!(status, "0", "docs/{}.md:{}: {}\n{said}", page.name, command.line, command.text);
                seen += 1;
            }
        }
    }
    assert!(seen > 15, "{seen} commands");
}
