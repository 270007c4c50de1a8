//! The command's modules are layered as `src/lib.rs` says: each uses only those below it in the table.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// The modules in the order of the table, each with its files.
fn layers(source: &Path) -> Vec<String> {
    let text = fs::read_to_string(source.join("lib.rs")).unwrap();
    let table = text.split("//! | module | what it holds |").nth(1).unwrap();
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("//! | `"));
    let names = rows.flat_map(|row| row.split(" | ").next().unwrap().split("`, `"));
    names.map(|name| name.trim_end_matches('`').to_owned()).collect()
}

/// The files of a module: one, and those of its folder.
fn files(source: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![source.join(format!("{module}.rs"))];
    let mut folders = vec![source.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|file| file.is_file());
    files
}

/// The modules of the crate that a text names.
fn used(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn modules_use_only_those_below_them() {
    let source = root().join("crates/cli/bellows/src");
    let layers = layers(&source);
    let mut wrong = Vec::new();
    let mut uses = 0;
    for (height, module) in layers.iter().enumerate() {
        for file in files(&source, module) {
            for other in used(&fs::read_to_string(&file).unwrap()) {
                uses += 1;
                match layers.iter().position(|layer| layer == other) {
                    Some(below) if below >= height => {}
                    _ => wrong.push(format!("{} uses {other}", file.display())),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "against the table of src/lib.rs:\n{}", wrong.join("\n"));
    assert!(uses > 100, "{uses}");
}

#[test]
fn every_module_has_a_layer() {
    let source = root().join("crates/cli/bellows/src");
    let layers = layers(&source);
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap();
        let is_root = ["lib", "main"].contains(&module);
        assert!(is_root || layers.iter().any(|layer| layer == module), "the table of src/lib.rs has no `{module}`");
    }
    for module in &layers {
        assert!(!files(&source, module).is_empty(), "there is no module `{module}`");
    }
}
