//! The commands of the pages that build and run a container image.
//!
//! Podman stands for Docker, whose commands it understands. Debian's image is made of Debian's archive, because its
//! registry may be out of reach; and the image's first stage is the build that the other tests run, because another
//! release in a container would take as long as all of them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bellows_testkit::netns::{self, Host, Lab};
use bellows_testkit::programs::{self, search_path};
use bellows_testkit::skip;
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::wait::{eventually, output};

use crate::book::pages::{How, Special};
use crate::book::{PAGES, commands, text};
use crate::support::examples::checkout;
use crate::support::{ENDLESS, Sandbox, root};

/// What is `docker` and `podman` in the pages. Containers have the network of the process that starts them. A machine may
/// not permit more descriptors than these.
const PODMAN: &str = r#"#!/bin/sh
here=$(dirname "$0")
command=$1
shift
if [ $command = build ]; then
    set -- --isolation chroot --pull=never --build-context "build=$here/stage" "$@"
fi
cat >$here/containers.conf <<END
[containers]
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
END
# An overlay cannot lie on another one.
[ $(stat -f -c %T "$here") = overlayfs ] && driver=vfs || driver=overlay
export CONTAINERS_CONF=$here/containers.conf
exec "$PODMAN" --root "$here/images" --runroot "$here/running" --storage-driver $driver "$command" "$@"
"#;

/// What the commands need: git for the revision, Debian's image, and the interfaces of a bridge.
const SET_UP: &str = r#"
cp -r "$ROOT/packaging" .
cp -r examples bin/stage/source/
git init --quiet .
git add packaging examples
git -c user.name=test -c user.email=test@example.org commit --quiet --message=test
echo "docker.io/library/debian:$(sed -n 's/^ARG DEBIAN=//p' packaging/container/Dockerfile)" >base
podman import --quiet base.tar $(cat base)
rm base.tar
ip link add eth1 type veth peer name far1
ip link add eth2 type veth peer name far2
for name in eth1 eth2 far1 far2; do ip link set $name up; done
"#;

/// A folder like a checkout with git, the programs, and a host in whose network containers run.
struct Machine<'a> {
    sandbox: &'a Sandbox,
    host: Host,
}

impl Machine<'_> {
    /// Runs lines of shell. Returns whether they succeeded, and what they said.
    fn try_sh(&self, lines: &str) -> (bool, String) {
        // With the machine's /sys, whose control groups containers need.
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.host.namespace()))
            .args(["bash", "-c"])
            .arg(format!("set -euo pipefail\n{lines}"));
        let folder = self.sandbox.path("");
        let path = format!("{}:{}", self.sandbox.path("bin").display(), search_path().to_str().unwrap());
        command.current_dir(&folder).env("PATH", path).env("ROOT", root()).stdin(Stdio::null());
        command.env("PODMAN", programs::find_program("podman").unwrap());
        let output = output(&mut command).unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), said.into_owned())
    }

    fn sh(&self, lines: &str) -> String {
        let (is_fine, said) = self.try_sh(lines);
        assert!(is_fine, "{lines}\n{said}");
        said
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let (is_fine, said) = self.try_sh("podman rm --all --force");
        if !is_fine {
            eprintln!("{said}");
        }
    }
}

#[test]
fn the_image_is_built_and_its_containers_run() {
    let test = "the_image_is_built_and_its_containers_run";
    let missing = || netns::missing(&["podman", "runc", "mmdebstrap", "git", "bash"]);
    if is_left_out(test) || is_skipped(test, missing()) {
        return;
    }
    let sandbox = checkout(Sandbox::new());
    let mut lab = Lab::new();
    let machine = Machine { sandbox: &sandbox, host: lab.host("containers") };
    fs::create_dir_all(sandbox.path("bin/stage/source/target/release")).unwrap();
    programs::install(env!("CARGO_BIN_EXE_bellows"), sandbox.path("bin/stage/source/target/release/bellows"));
    for name in ["docker", "podman"] {
        programs::script(sandbox.path("bin").join(name), PODMAN);
    }
    sandbox.write("endless.toml", ENDLESS);
    let suite = ". /etc/os-release; echo $ID $VERSION_CODENAME";
    let said = programs::run(Command::new("sh").args(["-c", suite])).unwrap();
    let Some(suite) = said.trim().strip_prefix("debian ") else {
        return skip(test, format!("an image is made of Debian only, and this is {said}"));
    };
    // In the machine's own network, which reaches the archive.
    let mut base = Command::new("mmdebstrap");
    base.args(["--variant=essential", "--quiet", suite]).arg(sandbox.path("base.tar"));
    // A small one is made in half of the time.
    base.args(["doc", "man", "locale"].map(|folder| format!("--dpkgopt=path-exclude=/usr/share/{folder}/*")));
    const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";
    base.args(Path::new(SOURCES).exists().then_some(SOURCES));
    if let Err(error) = programs::run(&mut base) {
        return skip(test, format!("no image can be made of Debian's archive: {error}"));
    }
    machine.sh(SET_UP);
    let (is_possible, said) = machine.try_sh("podman run --rm $(cat base) true");
    if !is_possible {
        return skip(test, format!("no container can be run here: {said}"));
    }

    let mut seen = 0;
    for page in PAGES {
        for command in commands(&text(page.name)) {
            let Some(Special { how: How::InContainer { more, says }, before, .. }) = page.special(&command) else {
                continue;
            };
            let said = machine.sh(&format!("{before}{}{more}", command.text));
            assert!(said.contains(says), "docs/{}.md:{}: {said}", page.name, command.line);
            seen += 1;
        }
    }
    assert_eq!(seen, 3, "commands");
    let version = machine.sh("docker run --rm bellows --version");
    assert!(version.contains("bellows "), "{version}");
    machine.sh("docker run --detach --name watched --volume \"$PWD:/networks\" bellows run endless.toml");
    eventually("a network that is found in its container", || {
        machine.try_sh("docker exec watched bellows ps --probe").0
    });
    // It is the first process there, which ends by a signal only if it handles it.
    machine.sh("docker stop --time 60 watched");
    let code = machine.sh("docker inspect --format '{{.State.ExitCode}}' watched");
    assert_eq!(code.trim(), "0", "{}", machine.sh("docker logs watched"));
}
