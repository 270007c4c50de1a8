//! Commands that change a network, or send it a secret, reach the one that bears the name.

use bellows::SUBCOMMANDS;
use bellows_testkit::eventually;
use bellows_testkit::scratch::write_secret;

use crate::discovery::impostor::Impostor;
use crate::discovery::{Machine, NOBODY, UNNAMED, logged_out, user};

/// The words of a line.
fn words<'l>(machine: &Machine, line: &'l str, name: &'l str) -> Vec<String> {
    let key = machine.sandbox.path("key").display().to_string();
    let word = |word: &'l str| match word {
        "NAME" => name.to_owned(),
        "FILE" => key.clone(),
        "LINK" => "source.output -> end.input".to_owned(),
        word => word.to_owned(),
    };
    line.split(' ').map(word).collect()
}

#[test]
fn no_change_goes_to_another_users_network_by_its_bare_name() {
    let Some(machine) = Machine::of_root("no_change_goes_to_another_users_network_by_its_bare_name") else { return };
    let machine = machine.with_settings();
    let root = logged_out();
    write_secret(machine.sandbox.path("key"), "0123456789abcdef0123456789abcdef01234567\n");
    let impostor = Impostor::start(&machine, NOBODY, "edge");
    let changes: Vec<&str> = SUBCOMMANDS.iter().flat_map(|entry| entry.changes.iter().copied()).collect();
    let refused = |line: &str, name: &str| {
        let words = words(&machine, line, name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = machine.bellows(&root, &words);
        assert!(said.code == Some(2) && said.stderr.contains("nobody/edge"), "{words:?}: {said:?}");
        assert_eq!(impostor.received(), "", "{words:?}");
        said
    };
    for line in &changes {
        let said = refused(line, "edge");
        let is_never = said.stderr.contains("sudo -u nobody bellows");
        assert!(is_never || said.stderr.contains("write `nobody/edge`"), "{line}: {said:?}");
        // Without a name, root's only choice is not chosen.
        refused(&line.replace(" -n NAME", "").replace(" NAME", ""), "");
    }
    // A word behind the action is no network of others.
    refused("route flush edge", "");
    // By its full name, it gets all that it would have got.
    let full = |line: &str, name: &str| {
        let words = words(&machine, line, name);
        machine.bellows(&root, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    full("route add 192.0.2.0/24 blackhole -n NAME", "65534/edge");
    assert!(impostor.received().contains("192.0.2.0/24 blackhole"), "{}", impostor.received());
    full("esp rekey pair --inbound 1 aes-128-gcm FILE -n NAME", "nobody/edge");
    assert!(impostor.received().contains("0123456789abcdef"), "{}", impostor.received());
    for line in ["clear NAME", "clear mac NAME", "place NAME --write"] {
        let before = impostor.received();
        let said = full(line, "nobody/edge");
        assert!(said.code == Some(2) && said.stderr.contains("sudo -u nobody bellows"), "{line}: {said:?}");
        assert_eq!(impostor.received(), before, "{line}");
    }
    drop(impostor);
}

#[test]
fn a_socket_in_roots_folder_is_roots() {
    let Some(machine) = Machine::of_root("a_socket_in_roots_folder_is_roots") else { return };
    let root = logged_out();
    let own = machine.start(&root, "edge");
    let impostor = Impostor::start(&machine, NOBODY, "theirs");
    let script =
        format!("cd /dev/shm/bellows-0/edge; rm control; ln -s /dev/shm/bellows-{NOBODY}/theirs/control control");
    machine.shell(&root, &script);
    for words in [&["stop", "edge"][..], &["route", "flush", "all", "-n", "edge"], &["show", "status", "edge"]] {
        let said = machine.bellows(&root, words);
        assert!(
            said.code == Some(1) && said.stderr.contains("does not answer: permission denied"),
            "{words:?}: {said:?}"
        );
    }
    assert_eq!(impostor.received(), "");
    drop(own);
}

#[test]
fn the_user_of_services_is_named_by_a_file_of_root() {
    let Some(machine) = Machine::of_root("the_user_of_services_is_named_by_a_file_of_root") else { return };
    let machine = machine.with_settings();
    let root = logged_out();
    let service = machine.start(&user(NOBODY), "edge");
    let other = Impostor::start(&machine, UNNAMED, "edge");
    let reload = |name: &str| machine.bellows(&root, &["reload", name]);
    let refused = |why: &str| {
        let said = reload("edge");
        assert!(said.code == Some(2) && said.stderr.contains(why), "{why}: {said:?}");
    };
    refused("write `54321/edge` or `nobody/edge`");
    machine.shell(&root, "mkdir -m 755 /etc/bellows; echo 'user = nobody' > /etc/bellows/service.conf");
    machine.shell(&root, "chmod 644 /etc/bellows/service.conf");
    assert_eq!(reload("edge").success().stderr, "network nobody/edge\n");
    // To read it, too.
    assert_eq!(machine.bellows(&root, &["show", "--json", "edge"]).success().json()["name"], "nobody/edge");
    assert_eq!(machine.bellows(&root, &["show", "--json"]).success().json()["name"], "nobody/edge");
    // Without a name, no network of another user is changed, not even that of services.
    let said = machine.bellows(&root, &["stop"]);
    assert!(said.code == Some(2), "{said:?}");
    // Root's own network of the name comes first.
    let own = machine.start(&root, "edge");
    assert_eq!(reload("edge").success().stderr, "");
    machine.bellows(&root, &["stop", "edge"]).success();
    own.wait();
    // Who else can write the file could name anybody.
    for (spoil, heal) in [
        ("chmod 666 /etc/bellows/service.conf", "chmod 644 /etc/bellows/service.conf"),
        ("chown 54321 /etc/bellows/service.conf", "chown 0 /etc/bellows/service.conf"),
        ("chmod 777 /etc/bellows", "chmod 755 /etc/bellows"),
    ] {
        machine.shell(&root, spoil);
        refused("others than root could have written it");
        machine.shell(&root, heal);
    }
    machine.shell(&root, "echo 'user = nobody x' > /etc/bellows/service.conf");
    refused("write one line: `user = NAME`");
    machine.shell(&root, "echo 'user = 65534' > /etc/bellows/service.conf");
    machine.bellows(&root, &["stop", "edge"]).success();
    service.wait();
    // It has no such network any more.
    eventually("the end", || machine.bellows(&root, &["ps", "nobody/edge"]).code == Some(2));
    refused("write `54321/edge`");
    assert_eq!(other.received(), "");
}
