//! Loading a network finds inaccessible files and sockets, and conflicts between apps.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellows_config::{Configure, Context, Overrides, Registry, Resource, SettingError, load};
use bellows_engine::{App, Port, Ports};
use bellows_testkit::{programs, scratch};
use expect_test::expect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Uses the files and sockets that its keys name.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserConfig {
    /// A file to read.
    read: Option<PathBuf>,
    /// A file to write.
    write: Option<PathBuf>,
    /// Whether the written file is rotated.
    #[serde(default)]
    rotate: bool,
    /// A socket to create.
    listen: Option<PathBuf>,
    /// A socket to connect to.
    connect: Option<PathBuf>,
    /// The queues of the created socket, if others share it.
    queues: Option<Vec<u16>>,
    /// A key that is equal in all that share it.
    mode: Option<String>,
}

struct User;

impl App for User {
    const INPUTS: Ports = Ports::Named(&[Port::optional("input", "nothing")]);
}

impl Configure for User {
    const NAME: &'static str = "user";
    type Config = UserConfig;

    fn configure(_: UserConfig, _: &Context) -> Result<User, SettingError> {
        Ok(User)
    }

    fn resources(config: &UserConfig, context: &Context) -> Vec<Resource> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| context.path(path));
        let writes = if config.rotate { Resource::writes_numbered } else { Resource::writes };
        let mut resources = Vec::new();
        resources.extend(path(&config.read).map(|path| Resource::reads("read", path)));
        resources.extend(path(&config.write).map(|path| writes("write", path)));
        let listens = |path| {
            let resource = Resource::listens("listen", path);
            let Some(queues) = &config.queues else { return resource };
            let keys = config.mode.iter().map(|mode| ("mode".to_owned(), mode.clone().into())).collect();
            resource.shared(queues, keys).without_gaps()
        };
        resources.extend(path(&config.listen).map(listens));
        resources.extend(path(&config.connect).map(|path| Resource::connects("connect", path)));
        resources
    }
}

/// The report on a network with apps `a`, `b`, …, each with these keys. The report calls the folder `DIR`.
fn said(folder: &Path, apps: &[&str]) -> String {
    let names = "abcdefgh".chars();
    let tables: String =
        names.zip(apps).map(|(name, keys)| format!("[apps.{name}]\napp = \"user\"\n{keys}\n")).collect();
    let file = folder.join("net.toml");
    fs::write(&file, tables).unwrap();
    let registry = Registry::new().with::<User>();
    let said = match load(&file, &registry, &Overrides::default()) {
        Ok(loaded) => loaded.warnings.render(false),
        Err(diagnostics) => diagnostics.render(false),
    };
    let said: Vec<&str> = said.split("\n\n").filter(|text| !text.contains("is linked to nothing")).collect();
    said.join("\n\n").replace(&folder.display().to_string(), "DIR")
}

/// Asserts that the report contains these texts, or is empty if there are none.
#[track_caller]
fn check(folder: &Path, apps: &[&str], texts: &[&str]) {
    let said = said(folder, apps);
    assert_eq!(said.is_empty(), texts.is_empty(), "{apps:?}: {said}");
    for text in texts {
        assert!(said.contains(text), "{apps:?}: no {text:?} in\n{said}");
    }
}

fn is_root() -> bool {
    fs::read_dir("/root").is_ok()
}

#[test]
fn two_apps_on_one_file_are_shown_at_both_places() {
    let folder = scratch();
    fs::write(folder.path().join("old"), "").unwrap();
    let report = said(folder.path(), &["write = \"new\"", "write = \"./new\""]);
    expect![[r#"
        error: `b`: `a` and `b` write the same file, `DIR/./new`
         --> DIR/net.toml:6:9
          |
        3 | write = "new"
          |         ----- written here, too
        ...
        6 | write = "./new"
          |         ^^^^^^^
          |
          = help: give one of them another path
    "#]]
    .assert_eq(&report);
    symlink("old", folder.path().join("link")).unwrap();
    symlink("new", folder.path().join("link-to-new")).unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let check = |apps: &[&str], texts: &[&str]| check(folder.path(), apps, texts);
    check(&["read = \"old\"", "write = \"link\""], &["would be overwritten while `a` reads it", "read here"]);
    check(&["write = \"link-to-new\"", "write = \"sub/../new\""], &["write the same file"]);
    check(&["write = \"old\"", "read = \"link\""], &["is read while `a` writes it"]);
    check(&["read = \"old\"\nwrite = \"old\""], &["`a`: `DIR/old` would be overwritten while `a` reads it"]);
    check(&["read = \"old\"", "read = \"old\"", "write = \"new\""], &[]);
    check(&["write = \"/dev/null\"", "write = \"/dev/null\"", "read = \"/dev/null\""], &[]);
    check(&["write = \"net.toml\""], &["is the network file itself", "would be overwritten"]);
    let three = said(folder.path(), &["write = \"new\""; 3]);
    assert_eq!(three.matches("error: ").count(), 2, "{three}");
}

#[test]
fn names_of_rotated_files_are_reserved() {
    let folder = scratch();
    fs::write(folder.path().join("out.2.pcap"), "").unwrap();
    let check = |apps: &[&str], texts: &[&str]| check(folder.path(), apps, texts);
    let rotates = "write = \"out.pcap\"\nrotate = true";
    check(&[rotates, "read = \"out.2.pcap\""], &["is a name that `a` gives to its rotated files", "rotates this file"]);
    check(&["write = \"out.17.pcap\"", rotates], &["`a`: `DIR/out.17.pcap` is a name that `b` gives"]);
    check(&[rotates, "write = \"out.x.pcap\"", "write = \"other.1.pcap\""], &[]);
    check(&["write = \"out.pcap\"", "read = \"out.2.pcap\""], &[]);
}

#[test]
fn apps_share_a_socket_if_each_uses_other_queues() {
    let folder = scratch();
    let check = |apps: &[&str], texts: &[&str]| {
        let apps: Vec<String> = apps.iter().map(|keys| format!("listen = \"s\"\n{keys}")).collect();
        check(folder.path(), &apps.iter().map(String::as_str).collect::<Vec<_>>(), texts);
    };
    check(&["queues = [0, 2]", "queues = [1]", "queues = [3]"], &[]);
    check(
        &["queues = [0]", "queues = [2, 1]", "queues = [3, 2]"],
        &["`c`: `b` and `c` use the same queue 2 of `DIR/s`"],
    );
    check(&["queues = [0, 1]", "queues = [3]"], &["no app uses queue 2 of `DIR/s`, but there is a queue 3"]);
    check(&["queues = [1]"], &["no app uses queue 0"]);
    let with = |mode: &str, queue: u16| format!("mode = \"{mode}\"\nqueues = [{queue}]");
    check(&[&with("x", 0), &with("x", 1)], &[]);
    let differ = ["`a` and `b` share `DIR/s`, but have different values of `mode`"];
    check(&[&with("x", 0), &with("y", 1)], &differ);
    check(&[&with("x", 0), "queues = [1]"], &differ);
    check(&["queues = [0]", ""], &["`DIR/s` is the socket that `a` uses"]);
}

#[test]
fn inaccessible_files_are_found_without_opening_them() {
    let folder = scratch();
    let check = |apps: &[&str], texts: &[&str]| check(folder.path(), apps, texts);
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    check(&["write = \"no/out\""], &["cannot write `DIR/no/out`: there is no folder `DIR/no`", "create the folder"]);
    check(&["write = \"sub\""], &["`DIR/sub` is a folder"]);
    check(&["write = \"file/out\""], &["cannot write `DIR/file/out` in the folder `DIR/file`"]);
    check(&["read = \"none\""], &["cannot read `DIR/none`: it does not exist", "check the path, or create the file"]);
    check(&["write = \"sub/out\"", "write = \"file\""], &[]);
    assert!(!folder.path().join("sub/out").exists());
}

/// Root starts this test again as another user, because permissions do not apply to root.
#[test]
fn permissions_are_checked() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("closed")).unwrap();
    fs::write(path("kept"), "precious").unwrap();
    for (name, mode) in [("closed", 0o555), ("kept", 0o444)] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    if is_root() {
        // The same test again as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let copy = folder.path().join("test");
        programs::install(std::env::current_exe().unwrap(), &copy);
        let run = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&copy)
            .args(["--exact", "permissions_are_checked"])
            .env("TMPDIR", folder.path())
            .output();
        match run {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(error) => eprintln!("left out, since there is no setpriv: {error}"),
        }
        return;
    }
    check(
        folder.path(),
        &["write = \"closed/out\""],
        &["in the folder `DIR/closed`: permission denied", "permissions"],
    );
    check(folder.path(), &["write = \"kept\""], &["cannot write `DIR/kept`: permission denied"]);
    check(folder.path(), &["listen = \"closed/socket\""], &["the folder `DIR/closed`: permission denied"]);
    assert_eq!(fs::read_to_string(path("kept")).unwrap(), "precious");
}

#[test]
fn sockets_are_checked_without_connecting() {
    let folder = scratch();
    let check = |apps: &[&str], texts: &[&str]| check(folder.path(), apps, texts);
    fs::write(folder.path().join("file"), "").unwrap();
    check(&["listen = \"s\"", "listen = \"./s\""], &["is the socket that `a` uses", "created here, too"]);
    check(&["connect = \"s\"", "connect = \"s\""], &["connect to the same socket", "one of them at a time"]);
    check(&["listen = \"s\"", "connect = \"s\""], &[]);
    check(&["listen = \"no/s\""], &["error: `a`: cannot create `DIR/no/s`: there is no folder `DIR/no`"]);
    check(&["connect = \"no/s\""], &["warning: `a`: there is no folder `DIR/no`"]);
    check(&["listen = \"file\""], &["`DIR/file` exists and is not a socket"]);
    check(&["write = \"s\"", "listen = \"s\""], &["is a file or socket that `a` uses"]);
    check(&[&format!("listen = \"{}\"", "x".repeat(108))], &["a socket's path has at most 107", "too long"]);
    // The process's own sockets are no conflict, because a reload hands them over.
    let _listener = UnixListener::bind(folder.path().join("s")).unwrap();
    check(&["listen = \"s\""], &[]);
}

#[test]
fn a_socket_on_which_another_process_listens_causes_a_warning() {
    let folder = scratch();
    let socket = folder.path().join("other");
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); input()";
    let python = Command::new("python3").args(["-c", script]).arg(&socket).stdin(std::process::Stdio::piped()).spawn();
    let Ok(mut python) = python else {
        eprintln!("left out, since there is no python3");
        return;
    };
    for _ in 0..500 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    let report = said(folder.path(), &["listen = \"other\""]);
    drop(python.stdin.take());
    python.wait().unwrap();
    assert!(report.starts_with("warning: `a`: another process is listening on `DIR/other`"), "{report}");
}
