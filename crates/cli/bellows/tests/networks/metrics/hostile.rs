//! Places that metrics cannot be given at.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, symlink};

use crate::support::Sandbox;

#[test]
fn a_pipe_is_not_replaced() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("pipe.prom");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let (pipe, link) = (path.display().to_string(), sandbox.path("link.prom"));
    symlink(&path, &link).unwrap();
    for words in [&[&pipe[..]][..], &[&pipe, "--every", "15s"], &[link.to_str().unwrap()]] {
        let said = sandbox.bellows(&[&["metrics", "--file"], words].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(words[0]) && said.stderr.contains("named pipe"), "{said:?}");
        assert!(said.stderr.contains("bellows metrics > PATH"), "{said:?}");
    }
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn an_address_that_cannot_be_used_starts_nothing() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let nowhere = format!("unix:{}", sandbox.path("none/s").display());
    for command in ["metrics", "web"] {
        let said = sandbox.bellows(&[command, "--listen", &address]);
        assert_eq!((said.code, said.stderr.matches("cannot listen").count()), (Some(2), 1), "{said:?}");
        assert!(said.stderr.contains("give another address or port"), "{said:?}");
        let said = sandbox.bellows(&[command, "--listen", &nowhere]);
        assert_eq!((said.code, said.stderr.matches("cannot listen").count()), (Some(2), 1), "{said:?}");
        assert!(said.stderr.contains("folders above it exist") && !said.stderr.contains("port"), "{said:?}");
    }
}
