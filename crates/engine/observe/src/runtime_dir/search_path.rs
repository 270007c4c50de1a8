//! The runtime directories that are searched for networks.
//!
//! A network's folder is in one of its user's own directories. Which one depends on the environment at its start:
//! `XDG_RUNTIME_DIR` is set in a login and usually not in a service. So readers search all directories in this order,
//! and a new run takes the first usable one:
//!
//! 1. `$XDG_RUNTIME_DIR/bellows`, if `XDG_RUNTIME_DIR` belongs to this user;
//! 2. `/run/bellows/networks`, if `/run/bellows` belongs to this user: the packaged service makes it for its own;
//! 3. `/dev/shm/bellows-UID`. It comes before the next one for services: `/run/user/UID` is removed when the user's
//!    last login ends. Everyone may create files in `/dev/shm`. If another user was first, a folder `bellows-UID.NUMBER`
//!    [stands in](private_folder) for it;
//! 4. `/run/user/UID/bellows`, if `/run/user/UID` belongs to this user.
//!
//! `BELLOWS_RUNTIME_DIR` replaces them all. Without it, root finds the networks of all users, in the last three
//! directories of each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_sys::private_folder;
use bellows_sys::untrusted::UntrustedDir;

const SERVICES: &str = "/run/bellows";
const SHARED_MEMORY: &str = "/dev/shm";
const RUN_USER: &str = "/run/user";

/// The directories to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath {
    /// The runtime directories of this user. Some may not exist.
    pub own: Vec<PathBuf>,
    /// Whether `BELLOWS_RUNTIME_DIR` names the only one.
    pub is_fixed: bool,
    /// Directories to search for the runtime directories of other users; empty unless this user is root.
    pub others: Vec<PathBuf>,
}

impl SearchPath {
    /// The search path of this process.
    pub fn current() -> SearchPath {
        Environment::current().search_path()
    }

    /// The same for a new run. Where another user was first, a directory that stands in is there afterwards, so that all
    /// processes of this user have one in common.
    pub(super) fn for_new_run() -> SearchPath {
        let environment = Environment::current();
        environment.go_around_others();
        environment.search_path()
    }
}

/// The most directories of another user in `/dev/shm` that are searched: there is one, perhaps one that stands in for it,
/// and one for each namespace of the user's.
const MAX_SHARED: usize = 16;

/// A runtime directory of another user.
#[derive(Debug)]
pub(super) struct ForeignDir {
    pub(super) directory: UntrustedDir,
    pub(super) path: PathBuf,
    /// The name of its user.
    pub(super) user: String,
}

/// The runtime directories of other users, as far as this user may read them.
pub(super) fn foreign() -> Vec<Arc<ForeignDir>> {
    Environment::current().foreign()
}

/// The inputs of the choice.
struct Environment {
    /// `BELLOWS_RUNTIME_DIR`.
    fixed: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    login: Option<PathBuf>,
    services: PathBuf,
    shared_memory: PathBuf,
    run_user: PathBuf,
    user: u32,
    /// The contents of `/proc/self/uid_map`.
    uid_map: String,
}

impl Environment {
    fn current() -> Environment {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let absolute = |path: OsString| std::path::absolute(&path).unwrap_or_else(|_| path.into());
        Environment {
            fixed: variable("BELLOWS_RUNTIME_DIR").map(absolute),
            login: variable("XDG_RUNTIME_DIR").map(absolute),
            services: SERVICES.into(),
            shared_memory: SHARED_MEMORY.into(),
            run_user: RUN_USER.into(),
            user: user(),
            uid_map: fs::read_to_string("/proc/self/uid_map").unwrap_or_default(),
        }
    }

    fn search_path(&self) -> SearchPath {
        let others = match self.sees_others() {
            true => vec![self.services.clone(), self.run_user.clone(), self.shared_memory.clone()],
            false => vec![],
        };
        SearchPath { own: self.own(), is_fixed: self.fixed.is_some(), others }
    }

    fn own(&self) -> Vec<PathBuf> {
        if let Some(fixed) = &self.fixed {
            return vec![fixed.clone()];
        }
        let is_ours = |folder: &PathBuf| {
            fs::metadata(folder).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == self.user)
        };
        let login = self.login.clone().filter(is_ours).map(|folder| folder.join("bellows"));
        let services = Some(self.services.clone()).filter(is_ours).map(|folder| folder.join(NETWORKS));
        let name = self.shared_name();
        let shared = [self.shared_memory.join(&name)].into_iter();
        let shared = shared.chain(private_folder::substitutes(&self.shared_memory, &name, self.user));
        let session = Some(self.run_user.join(self.outer_user())).filter(is_ours).map(|folder| folder.join("bellows"));
        let mut own: Vec<PathBuf> = Vec::new();
        for directory in login.into_iter().chain(services).chain(shared).chain(session) {
            // XDG_RUNTIME_DIR is usually /run/user/UID, perhaps by another path.
            if !own.iter().any(|known| *known == directory || is_same(known, &directory)) {
                own.push(directory);
            }
        }
        own
    }

    /// The name of this user's directory in shared memory.
    fn shared_name(&self) -> String {
        format!("bellows-{}", self.outer_user())
    }

    /// Makes the directory that stands in for the one in shared memory, if that is another user's.
    fn go_around_others(&self) {
        if self.fixed.is_none() {
            // Without it, claiming a name fails with the reason.
            let _ = private_folder::substitute(&self.shared_memory, &self.shared_name(), self.user);
        }
    }

    /// The user number for directory names: the number outside of any user namespace. Inside of one (`unshare -r`)
    /// anyone may be called root, and would take root's directory or find that it belongs to another user.
    fn outer_user(&self) -> String {
        let outside = outside(self.user, &self.uid_map);
        // A user who is root outside too, or is not mapped, is root if the directory's parent is root's.
        let is_owner = || fs::metadata(&self.shared_memory).is_ok_and(|metadata| metadata.uid() == self.user);
        if outside == 0 && !is_owner() {
            // In a nested namespace, the map shows only the parent namespace.
            let namespace = fs::metadata("/proc/self/ns/user").map_or(0, |metadata| metadata.ino());
            return format!("{NAMESPACE}{namespace}");
        }
        outside.to_string()
    }

    /// Whether this is root of the whole system, not of a user namespace.
    fn sees_others(&self) -> bool {
        let is_root = self.user == 0 && self.uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        self.fixed.is_none() && is_root
    }

    fn foreign(&self) -> Vec<Arc<ForeignDir>> {
        if !self.sees_others() {
            return Vec::new();
        }
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            let mut names: Vec<String> =
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
            names.sort();
            names
        };
        let mut found = Vec::new();
        found.extend(self.open(&self.services, NETWORKS, None));
        for name in names(&self.run_user) {
            if let Ok(owner) = name.parse() {
                found.extend(self.open(&self.run_user.join(name), "bellows", Some(owner)));
            }
        }
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for name in names(&self.shared_memory) {
            let Some(rest) = name.strip_prefix("bellows-") else { continue };
            let owner = rest.split_once('.').map_or(rest, |(owner, _)| owner).parse().ok();
            if owner.is_none() && !rest.starts_with(NAMESPACE) {
                continue;
            }
            let Some(directory) = self.open(&self.shared_memory, &name, owner) else { continue };
            let count = counts.entry(directory.directory.owner()).or_default();
            *count += 1;
            if *count <= MAX_SHARED {
                found.push(directory);
            }
        }
        found
    }

    /// Opens a runtime directory of another user; if `owner` is given, of that user.
    fn open(&self, parent: &Path, name: &str, owner: Option<u32>) -> Option<Arc<ForeignDir>> {
        if owner == Some(self.user) {
            return None;
        }
        let directory = UntrustedDir::open(parent, name).ok()?;
        let is_theirs = owner.is_none_or(|owner| owner == directory.owner()) && directory.owner() != self.user;
        let user = user_name(directory.owner());
        is_theirs.then(|| Arc::new(ForeignDir { directory, path: parent.join(name), user }))
    }
}

/// The name of the directory of services, in that of their sockets.
const NETWORKS: &str = "networks";

/// The name of the directory of a nested user namespace.
const NAMESPACE: &str = "namespace-";

/// Whether two paths, of directories that may not exist, are the same place.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let parent = fs::metadata(path.parent()?).ok()?;
        Some((parent.dev(), parent.ino(), path.file_name()?.to_owned()))
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// The outside number of a user within a user namespace, by the map of `/proc/PID/uid_map`.
fn outside(user: u32, maps: &str) -> u32 {
    let range = |line: &str| -> Option<u32> {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, length) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let offset = user.checked_sub(inside).filter(|offset| *offset < length)?;
        outside.checked_add(offset)
    };
    maps.lines().find_map(range).unwrap_or(user)
}

/// The user of this process.
pub(super) fn user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// The name of a user in `/etc/passwd`, or the number of a user without a name.
pub(super) fn user_name(user: u32) -> String {
    name_in(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user).unwrap_or_else(|| user.to_string())
}

/// The name of a user by the lines of `/etc/passwd`. A name that could be mistaken for a number or a path is ignored.
fn name_in(passwd: &str, user: u32) -> Option<String> {
    let fits = |name: &str| {
        let has_letter = name.chars().any(|c| c.is_alphabetic());
        has_letter && name.chars().all(|c| c.is_alphanumeric() || "-_.$+".contains(c))
    };
    let mut names = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(user) && fits(name)).then(|| name.to_owned())
    });
    names.next()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use bellows_testkit::scratch;
    use bellows_testkit::scratch::TempDir;

    use super::*;

    const INITIAL: &str = "         0          0 4294967295\n";

    /// A folder with directories that stand for the system's, removed when dropped.
    struct Folder(PathBuf, #[expect(dead_code, reason = "it is held")] TempDir);

    impl Folder {
        fn new() -> Folder {
            let folder = scratch();
            for name in ["shm", "run"] {
                fs::create_dir_all(folder.path().join(name)).unwrap();
            }
            Folder(folder.path().to_owned(), folder)
        }

        fn make(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            path
        }

        /// The search path of a process without variables.
        fn environment(&self) -> Environment {
            Environment {
                fixed: None,
                login: None,
                services: self.0.join("services"),
                shared_memory: self.0.join("shm"),
                run_user: self.0.join("run"),
                user: user(),
                uid_map: String::new(),
            }
        }

        /// The own directories, relative to the folder; `UID` for the user.
        fn own(&self, environment: &Environment) -> Vec<String> {
            let relative = |path: &PathBuf| path.strip_prefix(&self.0).unwrap_or(path).display().to_string();
            environment.own().iter().map(relative).map(|path| path.replace(&user().to_string(), "UID")).collect()
        }
    }

    #[test]
    fn all_directories_of_a_user_are_searched_in_any_environment() {
        let folder = Folder::new();
        let mut environment = folder.environment();
        assert_eq!(folder.own(&environment), ["shm/bellows-UID"]);
        folder.make(&format!("run/{}", user()));
        assert_eq!(folder.own(&environment), ["shm/bellows-UID", "run/UID/bellows"]);
        environment.login = Some(folder.make(&format!("run/{}", user())));
        assert_eq!(folder.own(&environment), ["run/UID/bellows", "shm/bellows-UID"]);
        environment.login = Some(folder.make("login"));
        assert_eq!(folder.own(&environment), ["login/bellows", "shm/bellows-UID", "run/UID/bellows"]);
        symlink(folder.0.join(format!("run/{}", user())), folder.0.join("other-path")).unwrap();
        environment.login = Some(folder.0.join("other-path"));
        assert_eq!(folder.own(&environment), ["other-path/bellows", "shm/bellows-UID"]);
        environment.login = Some(folder.0.join("missing"));
        assert_eq!(folder.own(&environment), ["shm/bellows-UID", "run/UID/bellows"]);
        folder.make("services");
        assert_eq!(folder.own(&environment), ["services/networks", "shm/bellows-UID", "run/UID/bellows"]);
        environment.fixed = Some(folder.0.join("fixed"));
        environment.login = Some(folder.0.join("login"));
        assert_eq!(folder.own(&environment), ["fixed"]);
        assert!(environment.search_path().others.is_empty());
    }

    #[test]
    fn another_users_directory_is_not_our_own() {
        let folder = Folder::new();
        folder.make("login");
        let environment = Environment { login: Some(folder.0.join("login")), user: user() + 1, ..folder.environment() };
        let own = environment.own();
        assert_eq!(own.len(), 1, "{own:?}");
        assert!(own[0].starts_with(folder.0.join("shm")), "{own:?}");
    }

    #[test]
    fn a_directory_that_stands_in_is_made_once_and_found() {
        let folder = Folder::new();
        let plain = folder.0.join(format!("shm/bellows-{}", user()));
        fs::create_dir(&plain).unwrap();
        if std::os::unix::fs::chown(&plain, Some(65_534), None).is_err() {
            let test = "a_directory_that_stands_in_is_made_once_and_found";
            return bellows_testkit::skip(test, "only root can give files away");
        }
        let environment = folder.environment();
        assert_eq!(environment.own(), std::slice::from_ref(&plain), "readers make nothing");
        for _ in 0..2 {
            environment.go_around_others();
            let own = environment.own();
            assert!(own.len() == 2 && own[0] == plain && super::super::is_private(&own[1]), "{own:?}");
        }
        // The other one is gone: both are searched.
        fs::remove_dir(&plain).unwrap();
        fs::create_dir(&plain).unwrap();
        environment.go_around_others();
        assert_eq!(environment.own().len(), 2);
    }

    #[test]
    fn only_root_of_the_whole_system_sees_others() {
        let folder = Folder::new();
        let sees = |user: u32, uid_map: &str| {
            let environment = Environment { user, uid_map: uid_map.to_owned(), ..folder.environment() };
            environment.sees_others()
        };
        assert!(sees(0, INITIAL));
        assert!(!sees(1000, INITIAL));
        for map in ["", "0 1000 1\n", "0 0 1\n", "0 0 4294967295\n1 1 1\n"] {
            assert!(!sees(0, map), "{map}");
        }
        let fixed =
            Environment { fixed: Some(folder.0.clone()), user: 0, uid_map: INITIAL.into(), ..folder.environment() };
        assert!(!fixed.sees_others());
    }

    #[test]
    fn directories_of_others_are_private_and_belong_to_their_user() {
        let folder = Folder::new();
        let me = user();
        // The user who runs the test is the other user here, and root is not.
        let seen = |environment: &Environment| -> Vec<String> {
            let found = environment.foreign();
            found.iter().map(|found| found.path.strip_prefix(&folder.0).unwrap().display().to_string()).collect()
        };
        let environment = Environment { user: 0, uid_map: INITIAL.into(), ..folder.environment() };
        let shared = format!("shm/bellows-{me}");
        folder.make(&shared);
        folder.make(&format!("run/{me}/bellows"));
        folder.make(&format!("shm/bellows-{}", me + 1));
        folder.make("shm/bellows-x");
        folder.make("shm/other");
        symlink(folder.0.join(&shared), folder.0.join(format!("shm/bellows-{}", me + 2))).unwrap();
        let substitute = format!("{shared}.0123");
        folder.make(&substitute);
        folder.make(&format!("shm/bellows-{}.0123", me + 1));
        folder.make("services/networks");
        let theirs = ["services/networks".to_owned(), format!("run/{me}/bellows"), shared.clone(), substitute];
        assert_eq!(seen(&environment), if me == 0 { &[][..] } else { &theirs[..] });
        let namespace = "shm/bellows-namespace-1".to_owned();
        folder.make(&namespace);
        // The directory of this user, who is root where the test runs as root.
        let sees = |name: &String| me == 0 || seen(&environment).contains(name);
        assert!(sees(&namespace));
        fs::set_permissions(folder.0.join(&namespace), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(!seen(&environment).contains(&namespace));
    }

    #[test]
    fn root_of_a_user_namespace_is_the_user_that_made_it() {
        assert_eq!(outside(1000, INITIAL), 1000);
        assert_eq!(outside(0, "         0       1000          1\n"), 1000);
        assert_eq!(outside(7, "0 1000 1\n1 100000 65536\n"), 100_006);
        for wrong in ["", "0", "0 x 1", "5 1 1", "0 4294967295 9"] {
            assert_eq!(outside(3, wrong), 3, "{wrong}");
        }
    }

    #[test]
    fn users_have_the_names_of_the_password_file() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n12:x:12:\nbad/name:x:13:13\n\nada:x:1000:1000::/runtime_dir/ada:/bin/sh\n";
        assert_eq!(name_in(passwd, 0).as_deref(), Some("root"));
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ada"));
        for unnamed in [1, 12, 13] {
            assert_eq!(name_in(passwd, unnamed), None, "{unnamed}");
        }
    }
}
