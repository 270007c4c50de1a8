//! The privileges that a network needs, and giving up all others.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use bellows_config::{Loaded, SystemAccess};
use bellows_sys::capability::{Set, permitted, retain_in_process, without};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use schemars::JsonSchema;
use serde::Serialize;

/// The files that a running network opens.
pub struct LaterFiles<'a> {
    /// Files that a reload reads again.
    pub read: &'a [PathBuf],
    /// Folders in which apps create files.
    pub written: &'a [PathBuf],
}

/// Gives up the capabilities of all threads except those that the network needs: to open its interfaces again, and to
/// open further files if these belong to another user.
pub fn give_up(interfaces: Set, files: &LaterFiles<'_>) {
    let keep = interfaces | for_files(files);
    let surplus = permitted() - keep;
    if surplus.is_empty() {
        return;
    }
    match retain_in_process(keep) {
        Ok(_) => tracing::debug!("gave up all capabilities except: {keep}"),
        Err(error) => tracing::warn!("capabilities that are not needed could not be given up ({surplus}): {error}"),
    }
}

/// The capabilities without which the files could not be opened.
fn for_files(files: &LaterFiles<'_>) -> Set {
    let all = |paths: &[PathBuf], access: Access| paths.iter().all(|path| is_permitted(path, access));
    let readable = || all(files.read, Access::READ_OK);
    let writable = || all(files.written, Access::WRITE_OK | Access::EXEC_OK);
    // With no thread to find out, nothing is kept.
    let (readable, writable) = without(|| (readable(), writable())).unwrap_or((true, true));
    let needed = |is_permitted: bool, set: Set| if is_permitted { Set::EMPTY } else { set };
    (needed(readable, Set::DAC_READ_SEARCH) | needed(writable, Set::DAC_OVERRIDE)) & permitted()
}

/// By the effective user, as opening it would be.
fn is_permitted(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS) != Err(rustix::io::Errno::ACCESS)
}

/// The privileges that a network needs, and what else a service manager must allow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Privileges")]
pub struct Needs {
    /// The names of all that it needs: `CAP_NET_RAW`.
    capabilities: Vec<String>,
    /// The apps that need any.
    apps: Vec<AppNeeds>,
    /// Families of sockets that it opens besides Unix sockets.
    address_families: BTreeSet<&'static str>,
    /// Those beyond systemd's `@system-service`.
    system_calls: BTreeSet<&'static str>,
    /// Devices that it opens.
    devices: BTreeSet<&'static str>,
    /// Whether it uses interfaces or routes of the system.
    system_network: bool,
    /// Whether it locks memory.
    ///
    /// Whether it locks memory beyond the usual limit. A limit of its own replaces `CAP_IPC_LOCK`.
    locked_memory: bool,
    /// Folders in which it creates files or sockets.
    written_folders: BTreeSet<PathBuf>,
}

/// The capabilities of an app.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Privileges of an app")]
struct AppNeeds {
    /// The app.
    app: String,
    /// The capabilities that it needs.
    capabilities: Vec<String>,
}

fn names(set: Set) -> Vec<String> {
    set.names().map(|name| format!("CAP_{name}")).collect()
}

impl Needs {
    /// The needs of a network.
    pub fn of(loaded: &Loaded) -> Needs {
        let capabilities = loaded.capabilities - Set::IPC_LOCK;
        let all = |list: fn(&SystemAccess) -> &'static [&'static str]| -> BTreeSet<&'static str> {
            loaded.system.iter().flat_map(|system| list(system).iter().copied()).collect()
        };
        let mut system_calls = all(|system| system.calls);
        if capabilities.contains(Set::SYS_ADMIN) {
            system_calls.insert("setns");
        }
        let app = |(app, set): &(String, Set)| AppNeeds { app: app.clone(), capabilities: names(*set - Set::IPC_LOCK) };
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Needs {
            capabilities: names(capabilities),
            apps: loaded.app_capabilities.iter().map(app).filter(|app| !app.capabilities.is_empty()).collect(),
            address_families: all(|system| system.families),
            system_calls,
            devices: all(|system| system.devices),
            system_network: !loaded.system.is_empty(),
            locked_memory: loaded.system.iter().any(|system| system.locks),
            written_folders: loaded.changed_folders.iter().map(absolute).collect(),
        }
    }

    /// The needs in words, a few lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let listed = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
        let _ = writeln!(text, "  capabilities: {}", listed(&self.capabilities));
        for AppNeeds { app, capabilities } in &self.apps {
            let _ = writeln!(text, "    {app}: {}", listed(capabilities));
        }
        if !self.devices.is_empty() {
            let devices: Vec<String> = self.devices.iter().map(|device| (*device).to_owned()).collect();
            let _ = writeln!(text, "  devices: {}", listed(&devices));
        }
        if self.locked_memory {
            text += "  locked memory: the size of the packet pool (`ulimit -l`, or CAP_IPC_LOCK)\n";
        }
        let folders: Vec<String> = self.written_folders.iter().map(|folder| folder.display().to_string()).collect();
        if !folders.is_empty() {
            let _ = writeln!(text, "  writes in: {}", listed(&folders));
        }
        text
    }

    /// The needs as a drop-in for the unit `bellows@.service`, which allows none of them.
    pub fn drop_in(&self, network: &str) -> String {
        let mut text = format!("# What {network} needs, by `bellows check --privileges=systemd`.\n[Service]\n");
        let mut line = |key: &str, values: &[&str]| {
            if !values.is_empty() {
                let _ = writeln!(text, "{key}={}", values.join(" "));
            }
        };
        let list = |set: &BTreeSet<&'static str>| set.iter().copied().collect::<Vec<_>>();
        let capabilities: Vec<&str> = self.capabilities.iter().map(String::as_str).collect();
        line("CapabilityBoundingSet", &capabilities);
        line("AmbientCapabilities", &capabilities);
        line("RestrictAddressFamilies", &list(&self.address_families));
        line("SystemCallFilter", &list(&self.system_calls));
        if self.system_network {
            line("PrivateNetwork", &["no"]);
        }
        if self.system_calls.contains("setns") {
            line("RestrictNamespaces", &["net"]);
        }
        if !self.devices.is_empty() {
            line("PrivateDevices", &["no"]);
            line("DevicePolicy", &["closed"]);
            for device in &self.devices {
                line("DeviceAllow", &[*device, "rw"]);
            }
        }
        if self.locked_memory {
            line("LimitMEMLOCK", &["infinity"]);
        }
        // The unit hides these folders, and what is hidden cannot be written.
        for (key, hidden) in
            [("PrivateTmp", &["/tmp", "/var/tmp"][..]), ("ProtectHome", &["/home", "/root", "/run/user"][..])]
        {
            if self.written_folders.iter().any(|folder| hidden.iter().any(|hidden| folder.starts_with(hidden))) {
                line(key, &["no"]);
            }
        }
        for folder in &self.written_folders {
            line("ReadWritePaths", &[&unit_path(folder)]);
        }
        text
    }
}

/// A path as a value in a unit: quoted, and without the unit's specifiers. A folder that is missing is no error.
fn unit_path(path: &Path) -> String {
    let path = path.display().to_string().replace('%', "%%");
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if path.chars().all(is_plain) {
        return format!("-{path}");
    }
    format!("\"-{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_the_unit_hides_are_shown() {
        let shown = |folder: &str| {
            let needs = Needs { written_folders: [PathBuf::from(folder)].into(), ..Needs::default() };
            let drop_in = needs.drop_in("edge.toml");
            assert!(drop_in.ends_with(&format!("ReadWritePaths=-{folder}\n")), "{drop_in}");
            ["PrivateTmp=no\n", "ProtectHome=no\n"].map(|line| drop_in.contains(line))
        };
        for (folder, expected) in [
            ("/run/bellows", [false, false]),
            ("/tmpfiles", [false, false]),
            ("/tmp", [true, false]),
            ("/var/tmp/captures", [true, false]),
            ("/home/ada", [false, true]),
            ("/root", [false, true]),
            ("/run/user/1000", [false, true]),
        ] {
            assert_eq!(shown(folder), expected, "{folder}");
        }
    }

    #[test]
    fn paths_are_quoted_for_units() {
        assert_eq!(unit_path(Path::new("/run/bellows")), "-/run/bellows");
        assert_eq!(unit_path(Path::new("/a b/50%/\"c\"")), r#""-/a b/50%%/\"c\"""#);
    }
}
