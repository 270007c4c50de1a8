//! The search for networks: one user's wherever they were started, and for root those of all users.
//!
//! These tests need the real directories `/run/user` and `/dev/shm`. Each test has its own, in a mount namespace.

mod changes;
mod hostile;
mod impostor;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::{ENDLESS, Said, Sandbox, json_reference};
use bellows::json_reference::Found;
use bellows_testkit::skips::is_skipped;
use bellows_testkit::{eventually, programs};
use serde_json::{Value, json};

/// A user that every system has by name, and a user without a name.
const NOBODY: u32 = 65534;
const UNNAMED: u32 = 54321;

/// The user who runs the test.
fn me() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

/// The system, but with empty directories `/run/user` and `/dev/shm`.
struct Machine {
    sandbox: Sandbox,
    /// The process whose namespace it is. It ends with its standard input.
    holder: Child,
}

impl Machine {
    /// A system for a test; `None` if the test is skipped, because this system does not permit it.
    fn new(test: &str) -> Option<Machine> {
        // A small system has no /run/user.
        const MOUNT: &str = "mount -t tmpfs -o mode=755 none /run && mkdir -m 755 /run/user && \
                             mount -t tmpfs -o mode=1777 none /dev/shm && echo ready && exec cat";
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if me() != 0 {
            command.arg("--map-root-user");
        }
        command.args(["sh", "-c", MOUNT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let holder = command.spawn().ok().and_then(|mut holder| {
            let mut line = String::new();
            BufReader::new(holder.stdout.take()?).read_line(&mut line).ok()?;
            let is_ready = line == "ready\n";
            if !is_ready {
                holder.wait().unwrap();
            }
            is_ready.then_some(holder)
        });
        let reason = holder.is_none().then(|| "this user can make no mount namespace; run it as root".to_owned());
        if is_skipped(test, reason) {
            return None;
        }
        let sandbox = Sandbox::new();
        sandbox.write("net.toml", ENDLESS);
        // Other users run the program too, which may be in a folder that they cannot enter.
        fs::set_permissions(sandbox.path("."), Permissions::from_mode(0o755)).unwrap();
        programs::install(env!("CARGO_BIN_EXE_bellows"), sandbox.path("bellows"));
        Some(Machine { sandbox, holder: holder? })
    }

    /// A system with several users.
    fn of_root(test: &str) -> Option<Machine> {
        let reason = (me() != 0).then(|| "only root can run programs as other users".to_owned());
        if is_skipped(test, reason) { None } else { Machine::new(test) }
    }

    /// A program to run there.
    fn command(&self, user: &User) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount"]);
        if me() != 0 {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--");
        if user.number != me() {
            let number = user.number.to_string();
            command.args(["setpriv", "--reuid", &number, "--regid", &number, "--clear-groups", "--"]);
        }
        command.args(["unshare", "--map-root-user", "unshare", "--map-root-user"].iter().take(2 * user.namespaces));
        command.env_remove("BELLOWS_RUNTIME_DIR").env_remove("XDG_RUNTIME_DIR").env("LC_ALL", "C.UTF-8");
        if user.has_login {
            command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", user.number));
        }
        command.stdin(Stdio::null());
        command
    }

    /// Where this process finds a path of the system.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.holder.id()))
    }

    /// A system with a folder `/etc` of its own.
    fn with_settings(self) -> Machine {
        let copy = self.sandbox.path("etc").display().to_string();
        self.shell(&logged_out(), &format!("cp -a /etc {copy}; mount --bind {copy} /etc; rm -rf /etc/bellows"));
        self
    }

    fn shell(&self, user: &User, script: &str) -> String {
        let said = Said::from(self.command(user).args(["sh", "-ec", script]).output().unwrap()).success();
        said.stdout
    }

    /// The effects of a login.
    fn log_in(&self, user: u32) {
        let folder = format!("/run/user/{user}");
        // Inside a user namespace, the user is called root.
        let owner = if me() == 0 { user } else { 0 };
        self.shell(&logged_out(), &format!("mkdir -m 700 {folder} && chown {owner} {folder}"));
    }

    fn bellows(&self, user: &User, words: &[&str]) -> Said {
        let mut command = self.command(user);
        let said: Said = command.arg(self.sandbox.path("bellows")).args(words).output().unwrap().into();
        json_reference::compare(words, &said.stdout, &mut Found::new());
        said
    }

    /// Starts a network and waits until it runs.
    fn start(&self, user: &User, name: &str) -> Network {
        let mut command = self.command(user);
        command.arg(self.sandbox.path("bellows")).arg("run").arg(self.sandbox.path("net.toml")).args(["--name", name]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains("running `") {
            assert!(log.read_line(&mut seen).unwrap() > 0, "it ended: {seen}");
        }
        // A nested namespace is a new one for each command, which does not see the others.
        if user.namespaces < 2 {
            eventually("the control socket", || self.bellows(user, &["show", "status", name]).code == Some(0));
        }
        Network { child, _log: log }
    }

    /// The networks that a user sees: name, user and state.
    fn seen(&self, user: &User) -> Vec<[String; 3]> {
        let list = self.bellows(user, &["ps", "-a", "--json"]).success().json();
        let text =
            |line: &Value, key: &str| line[key].as_str().unwrap_or_else(|| panic!("no {key} in {line}")).to_owned();
        list.as_array().unwrap().iter().map(|line| ["name", "user", "state"].map(|key| text(line, key))).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// The user and environment of a program.
#[derive(Clone, Copy)]
struct User {
    number: u32,
    /// Whether `XDG_RUNTIME_DIR` is set, as in a login.
    has_login: bool,
    /// The number of nested user namespaces in which the user is root.
    namespaces: usize,
}

fn logged_in() -> User {
    User { number: me(), has_login: true, namespaces: 0 }
}

fn logged_out() -> User {
    User { has_login: false, ..logged_in() }
}

fn user(number: u32) -> User {
    User { number, has_login: false, namespaces: 0 }
}

/// A `run`, killed when dropped.
struct Network {
    child: Child,
    _log: BufReader<ChildStderr>,
}

impl Network {
    /// Kills it, like a crash.
    fn crash(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    /// Waits for its normal end.
    fn wait(mut self) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn names(seen: &[[String; 3]]) -> Vec<&str> {
    seen.iter().map(|[name, ..]| name.as_str()).collect()
}

#[test]
fn a_users_networks_are_found_wherever_they_were_started() {
    let Some(machine) = Machine::new("a_users_networks_are_found_wherever_they_were_started") else { return };
    machine.log_in(me());
    let (login, service) = (logged_in(), logged_out());
    let of_login = machine.start(&login, "login");
    let of_service = machine.start(&service, "service");
    let folders = format!("test -d /run/user/{0}/bellows/login && test -d /dev/shm/bellows-{0}/service", me());
    machine.shell(&service, &folders);
    for user in [login, service] {
        assert_eq!(names(&machine.seen(&user)), ["login", "service"]);
        for name in ["login", "service"] {
            assert_eq!(machine.bellows(&user, &["show", name, "--json"]).success().json()["state"], json!("running"));
            let net = machine.sandbox.path("net.toml").display().to_string();
            let said = machine.bellows(&user, &["run", &net, "--name", name, "--duration", "1s"]);
            assert!(said.code == Some(2) && said.stderr.contains("is running already"), "{said:?}");
        }
        let said = machine.bellows(&user, &["show", "run", "nothing"]);
        for place in [format!("/run/user/{}/bellows", me()), format!("/dev/shm/bellows-{}", me())] {
            assert!(said.code == Some(2) && said.stderr.contains(&place), "{place}: {said:?}");
        }
    }
    machine.bellows(&service, &["stop", "login"]).success();
    of_login.wait();
    machine.bellows(&login, &["stop"]).success();
    of_service.wait();
    assert_eq!(names(&machine.seen(&login)), [""; 0]);
}

#[test]
fn crashes_of_a_name_in_several_places_are_numbered_by_age() {
    let Some(machine) = Machine::new("crashes_of_a_name_in_several_places_are_numbered_by_age") else { return };
    machine.log_in(me());
    let (login, service) = (logged_in(), logged_out());
    let mut pids = Vec::new();
    for user in [login, service, login] {
        let network = machine.start(&user, "net");
        pids.push(network.child.id());
        network.crash();
    }
    for user in [login, service] {
        assert_eq!(names(&machine.seen(&user)), ["net", "net@1", "net@2"]);
        for (name, pid) in [("net", pids[2]), ("net@1", pids[1]), ("net@2", pids[0])] {
            assert_eq!(machine.bellows(&user, &["show", name, "--json"]).success().json()["pid"], json!(pid), "{name}");
        }
    }
    machine.bellows(&service, &["ps", "--clean"]).success();
    assert_eq!(names(&machine.seen(&login)), [""; 0]);
}

#[test]
fn a_directory_that_is_set_is_the_only_one() {
    let Some(machine) = Machine::new("a_directory_that_is_set_is_the_only_one") else { return };
    let _network = machine.start(&logged_out(), "net");
    let mut command = machine.command(&logged_out());
    command.arg(machine.sandbox.path("bellows")).arg("ps").env("BELLOWS_RUNTIME_DIR", "/dev/shm/mine");
    let said = Said::from(command.output().unwrap()).success();
    assert!(!said.stdout.contains("net"), "{said:?}");
    assert!(said.stderr.contains("looked in /dev/shm/mine alone"), "{said:?}");
}

#[test]
fn root_sees_the_networks_of_all_users() {
    let Some(machine) = Machine::of_root("root_sees_the_networks_of_all_users") else { return };
    let root = logged_out();
    machine.log_in(UNNAMED);
    let unnamed = User { has_login: true, ..user(UNNAMED) };
    let (first, second) = (machine.start(&user(NOBODY), "edge"), machine.start(&unnamed, "edge"));
    let third = machine.start(&unnamed, "quiet");

    let said = machine.bellows(&root, &["stop"]);
    assert!(said.code == Some(2), "{said:?}");
    let own = machine.start(&root, "own");
    let line = |name: &str, user: &str| [name, user, "running"].map(str::to_owned);
    let all =
        [line("own", "root"), line("54321/edge", "54321"), line("54321/quiet", "54321"), line("nobody/edge", "nobody")];
    assert_eq!(machine.seen(&root), all);
    assert_eq!(machine.seen(&user(NOBODY)), [line("edge", "nobody")], "others see only their own");

    for name in ["nobody/edge", "65534/edge"] {
        let shown = machine.bellows(&root, &["show", name, "--json"]).success().json();
        let identity = ["name", "user", "state", "pid"].map(|key| shown[key].clone());
        assert_eq!(identity, [json!("nobody/edge"), json!("nobody"), json!("running"), json!(first.child.id())]);
    }
    for words in [
        &["show", "run", "nobody/edge"][..],
        &["show", "interfaces", "nobody/edge"],
        &["show", "breath", "nobody/edge"],
        &["show", "status", "nobody/edge"],
        &["timeline", "nobody/edge"],
        &["top", "nobody/edge", "--once"],
        &["show", "quiet"],
        &["show", "own"],
    ] {
        machine.bellows(&root, words).success();
    }
    // Without a name, root's own is chosen.
    assert_eq!(machine.bellows(&root, &["show", "--json"]).success().json()["name"], json!("own"));
    // The counters go on.
    let packets =
        || machine.bellows(&root, &["show", "nobody/edge", "--json"]).success().json()["links"][0]["packets"].as_u64();
    let before = packets();
    eventually("more packets", || packets() > before);

    let said = machine.bellows(&root, &["show", "edge"]);
    assert!(said.code == Some(2) && said.stderr.contains("54321/edge, nobody/edge"), "{said:?}");
    // The report says whose it is.
    assert_eq!(machine.bellows(&root, &["show", "links", "quiet"]).success().stderr, "network 54321/quiet\n");
    let said = machine.bellows(&root, &["clear", "nobody/edge"]);
    assert!(said.code == Some(2) && said.stderr.contains("sudo -u nobody bellows clear edge"), "{said:?}");
    let said = machine.bellows(&root, &["show", "hot", "54321/edge"]);
    assert!(said.code == Some(2) && said.stderr.contains("sudo -u '#54321' bellows show hot edge"), "{said:?}");

    second.crash();
    machine.bellows(&root, &["ps", "--clean"]).success();
    assert!(machine.seen(&root).contains(&["54321/edge", "54321", "crashed"].map(str::to_owned)));
    machine.bellows(&root, &["stop", "nobody/edge", "54321/quiet", "own"]).success();
    for network in [first, third, own] {
        network.wait();
    }
    let said = machine.bellows(&root, &["stop"]);
    assert!(said.code == Some(2), "the crashed one of another user is not meant: {said:?}");
    assert_eq!(names(&machine.seen(&unnamed)), ["edge"]);
}

/// The status of an answer at a socket, and its text.
fn ask(socket: &Path, path: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[test]
fn a_page_takes_no_network_of_another_user_for_its_own() {
    let Some(machine) = Machine::of_root("a_page_takes_no_network_of_another_user_for_its_own") else { return };
    let root = logged_out();
    let _theirs = machine.start(&user(NOBODY), "edge");
    let own = machine.start(&root, "edge");
    let socket = machine.sandbox.path("web.sock");
    let mut command = machine.command(&root);
    command.arg(machine.sandbox.path("bellows")).arg("web").arg("--listen").arg(format!("unix:{}", socket.display()));
    let _page = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    eventually("the page", || UnixStream::connect(&socket).is_ok());
    let paths = ["status", "timeline"].map(|what| format!("/api/{what}?network=edge"));
    let live = || ask(&socket, "/api/live?network=edge").1;
    assert!(live().contains("\"running\""), "{}", live());
    for path in &paths {
        let (status, answer) = ask(&socket, path);
        assert_eq!(status, 200, "{path}: {answer}");
    }
    machine.bellows(&root, &["stop", "edge"]).success();
    own.wait();
    // On the page, `edge` is the one that has ended.
    eventually("the end", || live().contains("\"health\":\"ended\""));
    for path in &paths {
        let (status, answer) = ask(&socket, path);
        assert!(status == 400 && answer.contains("there is `nobody/edge`"), "{path}: {answer}");
    }
    assert_eq!(ask(&socket, "/api/status?network=nobody/edge").0, 200);
}

#[test]
fn truncated_counters_of_another_user_do_no_harm() {
    let Some(machine) = Machine::of_root("truncated_counters_of_another_user_do_no_harm") else { return };
    let root = logged_out();
    let network = machine.start(&user(NOBODY), "net");
    // The engine would not survive the truncation of its own files.
    let folder = format!("/dev/shm/bellows-{NOBODY}/cut");
    machine.shell(
        &user(NOBODY),
        &format!("mkdir -m 700 {folder} && cd {folder}/../net && cp identity counters timeline {folder}"),
    );
    let mut command = machine.command(&root);
    command.arg(machine.sandbox.path("bellows")).args(["top", "nobody/cut", "--json", "--interval", "50ms"]);
    let mut top = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(top.0.stdout.take().unwrap()).lines();
    let mut read_line = || {
        let line = lines.next().unwrap_or_else(|| panic!("top has ended: {:?}", top.0.wait())).unwrap();
        json_reference::compare(&["top", "--json"], &line, &mut Found::new());
    };
    read_line();
    for size in ["4096", "7", "0"] {
        machine.shell(&root, &format!("truncate -s {size} {folder}/counters {folder}/timeline"));
        (0..4).for_each(|_| read_line());
        let running = ["nobody/cut", "nobody/net"].map(|name| [name, "nobody", "running"].map(str::to_owned));
        assert_eq!(machine.seen(&root), running);
        for words in [["show", "cut"], ["timeline", "cut"], ["top", "cut"]] {
            let said = machine.bellows(&root, &words);
            assert!(said.code == Some(1) && said.stderr.contains("cannot be read"), "{words:?}: {said:?}");
        }
    }
    // A file that is too large, and one that is not a file.
    for spoil in ["truncate -s 1G", "rm -f counters && ln -s /etc/passwd", "rm -f counters && mkfifo"] {
        machine.shell(&root, &format!("cd {folder} && {spoil} counters && chown -h {NOBODY} counters"));
        let said = machine.bellows(&root, &["show", "cut"]);
        assert!(said.code == Some(1) && said.stderr.contains("cannot be read"), "{spoil}: {said:?}");
    }
    drop(network);
}

#[test]
fn what_another_user_made_first_keeps_no_network_from_starting() {
    let test = "what_another_user_made_first_keeps_no_network_from_starting";
    let Some(machine) = Machine::of_root(test) else { return };
    let (root, nobody, unnamed) = (logged_out(), user(NOBODY), user(UNNAMED));
    // Folders, a file and a link, of the names of root's, nobody's and the other user's own folders.
    machine.shell(&unnamed, &format!("mkdir -m 700 /dev/shm/bellows-0 && : >/dev/shm/bellows-{NOBODY}"));
    machine.shell(&unnamed, "mkdir -m 777 /dev/shm/bellows-0.0000000000000000 /dev/shm/trap");
    machine.shell(&nobody, &format!("ln -s trap /dev/shm/bellows-{UNNAMED}"));
    let networks = [&root, &nobody, &unnamed].map(|user| machine.start(user, "net"));
    let line = |name: &str, user: &str| [name, user, "running"].map(str::to_owned);
    let others = [line(&format!("{UNNAMED}/net"), &UNNAMED.to_string()), line("nobody/net", "nobody")];
    assert_eq!(machine.seen(&root), [&[line("net", "root")][..], &others].concat());
    assert_eq!(names(&machine.seen(&nobody)), ["net"]);
    // The name is taken in whatever folder.
    for user in [&root, &nobody] {
        let mut command = machine.command(user);
        command.arg(machine.sandbox.path("bellows")).arg("run").arg(machine.sandbox.path("net.toml"));
        let said: Said = command.args(["--name", "net"]).output().unwrap().into();
        assert!(said.code == Some(2) && said.stderr.contains("is running already"), "{said:?}");
    }
    // What stood in the way goes, and the network is found and its name taken as before.
    machine.shell(&root, &format!("rm -r /dev/shm/bellows-0 /dev/shm/bellows-{NOBODY}"));
    assert_eq!(names(&machine.seen(&nobody)), ["net"]);
    let other = machine.start(&nobody, "other");
    machine.shell(&root, &format!("test -d /dev/shm/bellows-{NOBODY}/other"));
    assert_eq!(names(&machine.seen(&nobody)), ["net", "other"]);
    assert_eq!(machine.shell(&root, "ls -A /dev/shm/trap /dev/shm/bellows-0.0000000000000000 | grep -v :"), "\n");
    drop((networks, other));
}

#[test]
fn services_have_a_folder_that_nobody_else_can_make() {
    let Some(machine) = Machine::of_root("services_have_a_folder_that_nobody_else_can_make") else { return };
    let nobody = user(NOBODY);
    machine.shell(&logged_out(), &format!("mkdir -m 755 /run/bellows && chown {NOBODY} /run/bellows"));
    let network = machine.start(&nobody, "net");
    machine.shell(&nobody, "test -d /run/bellows/networks/net");
    assert_eq!(machine.shell(&nobody, "stat -c %a /run/bellows/networks"), "700\n");
    assert_eq!(names(&machine.seen(&nobody)), ["net"]);
    assert_eq!(names(&machine.seen(&logged_out())), ["nobody/net"]);
    drop(network);
}

#[test]
fn root_does_not_follow_another_users_links() {
    let Some(machine) = Machine::of_root("root_does_not_follow_another_users_links") else { return };
    let (root, nobody) = (logged_out(), user(NOBODY));
    let own = machine.start(&root, "own");
    let mut victim = Killed(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = victim.0.id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    let script = format!(
        "umask 077; mkdir -p /dev/shm/bellows-{NOBODY}/trap; cd /dev/shm/bellows-{NOBODY}; \
         echo '{pid} {start}' > trap/identity; ln -s /dev/shm/bellows-0/own linked; \
         mkdir socket; echo '{pid} {start}' > socket/identity; ln -s /dev/shm/bellows-0/own/control socket/control; \
         mkdir \"$(printf 'a\\033[2J')\"; cp trap/identity a*/; ln -s bellows-0 /dev/shm/bellows-{UNNAMED}"
    );
    machine.shell(&nobody, &script);
    let line = |name: &str, user: &str, state: &str| [name, user, state].map(str::to_owned);
    let seen = [
        line("own", "root", "running"),
        line("nobody/socket", "nobody", "crashed"),
        line("nobody/trap", "nobody", "crashed"),
    ];
    assert_eq!(machine.seen(&root), seen);
    for name in ["nobody/trap", "nobody/socket", "nobody/linked"] {
        let said = machine.bellows(&root, &["stop", "--kill", name, "--timeout", "1s"]);
        assert_eq!(said.code, Some(2), "{name}: {said:?}");
        assert_eq!(machine.bellows(&root, &["show", name]).code.map(|code| code > 0), Some(true), "{name}");
    }
    assert_eq!(victim.0.try_wait().unwrap(), None, "a process of root's was killed");
    assert_eq!(machine.seen(&root), seen, "root's network runs on");
    // A directory that others can enter proves nothing about its owner.
    machine.shell(&nobody, &format!("chmod 755 /dev/shm/bellows-{NOBODY}"));
    assert_eq!(names(&machine.seen(&root)), ["own"]);
    drop(own);
}

#[test]
fn root_of_a_user_namespace_does_not_meet_root() {
    let Some(machine) = Machine::of_root("root_of_a_user_namespace_does_not_meet_root") else { return };
    let root = logged_out();
    let probe = machine.command(&User { namespaces: 2, ..user(NOBODY) }).arg("true").output().unwrap();
    let reason = (!probe.status.success()).then(|| "unshare --map-root-user does not work for other users".to_owned());
    if is_skipped("root_of_a_user_namespace_does_not_meet_root", reason) {
        return;
    }
    let _own = machine.start(&root, "net");
    for namespaces in [1, 2] {
        let inside = User { namespaces, ..user(NOBODY) };
        let network = machine.start(&inside, "net");
        assert_eq!(names(&machine.seen(&root)), ["net", "nobody/net"]);
        if namespaces == 1 {
            // The user outside and root inside are the same.
            assert!(Path::new(&format!("/proc/{}/root/dev/shm", machine.holder.id())).exists());
            machine.shell(&root, &format!("test -d /dev/shm/bellows-{NOBODY}/net"));
            for user in [inside, user(NOBODY)] {
                assert_eq!(names(&machine.seen(&user)), ["net"]);
            }
            machine.bellows(&user(NOBODY), &["stop", "net"]).success();
        } else {
            eventually("its end", || machine.bellows(&root, &["stop", "nobody/net"]).code == Some(0));
        }
        network.wait();
    }
}
