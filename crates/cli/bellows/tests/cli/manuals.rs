//! The command's help, manuals and schema.

use std::fs;

use crate::support::Sandbox;
use serde_json::json;

#[test]
fn every_app_has_a_manual() {
    let sandbox = Sandbox::new();
    let list = sandbox.bellows(&["apps"]).success().stdout;
    let manuals = sandbox.bellows(&["apps", "--json"]).success().json();
    let manuals = manuals.as_array().unwrap();
    assert!(manuals.len() >= 15, "{list}");
    for manual in manuals {
        let name = manual["name"].as_str().unwrap();
        assert!(list.lines().any(|line| line.starts_with(name)), "{name} is not in {list}");
        assert!(!manual["summary"].as_str().unwrap().is_empty(), "{name}");
        let text = sandbox.bellows(&["apps", name]).success().stdout;
        assert!(text.contains('┌') && text.contains("KEYS"), "{text}");
        for key in manual["keys"].as_array().unwrap() {
            // Those of tables inside stand in sections of their own.
            let name = key["name"].as_str().unwrap().rsplit('.').next().unwrap();
            assert!(text.contains(name), "{key} is not in {text}");
        }
        assert_eq!(&sandbox.bellows(&["apps", name, "--json"]).success().json(), manual);
    }
    assert!(sandbox.bellows(&["apps", "engine"]).success().stdout.contains("lossless"));
}

#[test]
fn an_unknown_app_is_a_mistake_with_the_nearest_name() {
    let said = Sandbox::new().bellows(&["apps", "pcap-raeder"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("did you mean `pcap-reader`?"), "{said:?}");
}

#[test]
fn a_check_can_be_read_by_programs() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("n.toml", "links = []\n[apps.a]\napp = \"sink\"\n");
    let said = sandbox.bellows(&["check", &network, "--json"]);
    assert_eq!(said.code, Some(2));
    let result = said.json();
    assert_eq!(result["ok"], json!(false));
    assert_eq!(result["diagnostics"][0]["severity"], json!("error"), "{result:#}");
}

#[test]
fn the_help_documents_the_exit_codes() {
    let sandbox = Sandbox::new();
    for words in [&["--help"][..], &["run", "--help"]] {
        assert!(sandbox.bellows(words).success().stdout.contains("Exit codes:"));
    }
}

#[test]
fn there_are_completions_and_man_pages_of_the_subcommands() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = sandbox.bellows(&["completions", shell]).success().stdout;
        assert!(script.contains("bellows") && script.contains("BELLOWS_COMPLETE"), "{shell}");
    }
    assert!(sandbox.bellows(&["man"]).success().stdout.contains(".TH bellows 1"));
    sandbox.bellows(&["man", "-o", "pages"]).success();
    let page = fs::read_to_string(sandbox.path("pages/bellows-run.1")).unwrap();
    assert!(page.contains("\\-\\-duration") && page.contains("Exit codes"), "{page}");
    let page = fs::read_to_string(sandbox.path("pages/bellows-breathsim.1")).unwrap();
    assert!(page.contains("\\-\\-busy\\-after") && page.contains("Snabb issue 1414"), "{page}");
    let said = sandbox.bellows(&["man", "-o", "pages/bellows-run.1"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.stderr.contains("pages/bellows-run.1") && said.stderr.contains("check the permissions of the folder"),
        "{said:?}"
    );
}

#[test]
fn a_reader_that_hangs_up_is_not_an_error() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.command(&["completions", "zsh"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
