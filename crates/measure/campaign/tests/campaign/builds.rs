//! Comparisons of two builds: revisions of real repositories, working trees, and finished programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_campaign::{
    CampaignProgress, CompareError, CompareOptions, Comparison, ExecuteError, Folders, Info, Journal, Loaded,
    LocalExecutor, Observer, PairConclusion, Plan, Row, RunId, Stop, build_versions, load, run,
};
use bellows_testkit::programs::{self, has_program};
use bellows_testkit::scratch::TempDir;
use bellows_testkit::{eventually, scratch};

use crate::support::long;

/// A tool whose score is the number in the file `speed` of its revision.
const CAMPAIGN: &str = r#"
name = "speed of the tool"
repeats = 6
command = ["{version.program}", "{block}"]
[build]
command = { shell = '''
    echo built >> {build}/../../count
    { printf '#!/bin/sh\necho took $(( '; tr -d '\n' < {source}/speed; printf ' + $1 %% 3 ))\n'; } > {build}/tool
    chmod +x {build}/tool
''' }
program = "tool"
base = "last-tag"
[score]
pattern = 'took (?<time>\d+)'
unit = "ms"
better = "lower"
"#;

/// A repository in a folder with an odd name, and a campaign file in it.
struct Project {
    scratch: TempDir,
    folder: PathBuf,
}

impl Project {
    /// A repository with the tags v1 and v2, or nothing without git.
    fn new(test: &str) -> Option<Project> {
        if !has_program(test, "git") {
            return None;
        }
        let project = Project::without_repository(CAMPAIGN);
        project.git(&["init", "--quiet", "--initial-branch", "main"]);
        project.commit("speed", "100\n");
        project.git(&["tag", "v1"]);
        project.commit("speed", "80\n");
        project.git(&["tag", "--annotate", "--message", "two", "v2"]);
        Some(project)
    }

    fn without_repository(campaign: &str) -> Project {
        let scratch = scratch();
        let folder = scratch.path().join("it's a \"$HOME\" {x} ü");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("tool.toml"), campaign.replace("{ printf", "{{ printf").replace("; } >", "; }} >"))
            .unwrap();
        Project { scratch, folder }
    }

    fn git(&self, words: &[&str]) -> String {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgSign=false"];
        let output = Command::new("git").args(identity).args(words).current_dir(&self.folder).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self, file: &str, content: &str) {
        fs::write(self.folder.join(file), content).unwrap();
        self.git(&["add", file]);
        self.git(&["commit", "--quiet", "--message", content.trim()]);
    }

    fn change_campaign(&self, old: &str, new: &str) {
        let path = self.folder.join("tool.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{text}");
        fs::write(path, text.replace(old, new)).unwrap();
    }

    fn builds(&self) -> PathBuf {
        self.folder.join("tool.builds")
    }

    fn results(&self) -> PathBuf {
        self.folder.join("tool.results")
    }

    /// The number of builds that were made.
    fn count(&self) -> usize {
        fs::read_to_string(self.builds().join("count")).map_or(0, |text| text.lines().count())
    }

    /// The campaign with its two builds.
    fn build(&self, sides: [Option<&str>; 2], stop: &Stop) -> Result<Loaded, CompareError> {
        let file = self.folder.join("tool.toml");
        let mut loaded = load(&file).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        let folders = Folders { file: &file, results: &self.results(), builds: &self.builds() };
        build_versions(&mut loaded, sides, &folders, stop, &mut ())?;
        Ok(loaded)
    }

    fn built(&self, sides: [Option<&str>; 2]) -> Result<Loaded, CompareError> {
        self.build(sides, &Stop::new().unwrap())
    }

    fn error(&self, sides: [Option<&str>; 2]) -> String {
        self.built(sides).expect_err("these are not built").to_string()
    }

    /// Builds, makes all runs, and compares.
    fn compare(&self, sides: [Option<&str>; 2]) -> Comparison {
        let loaded = self.built(sides).unwrap_or_else(|error| panic!("{error}"));
        let mut journal = Journal::open(&self.results(), &loaded.campaign, &loaded.text).unwrap();
        let mut executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).unwrap().with_journal(&journal);
        let summary = run(&mut journal, &mut executor, &Stop::new().unwrap(), &mut ()).unwrap();
        assert_eq!(
            (summary.done, summary.failed),
            (summary.all, 0),
            "{:?}",
            fs::read_to_string(self.results().join("results.csv"))
        );
        Comparison::read(&self.results(), &loaded.campaign, &CompareOptions::default()).unwrap()
    }

    fn program(&self, name: &str, speed: u32) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        programs::script(path, &format!("#!/bin/sh\necho took $(( {speed} + $1 % 3 ))\n"))
    }
}

#[test]
fn two_revisions_are_built_once_and_compared() {
    let Some(project) = Project::new("two_revisions_are_built_once_and_compared") else { return };
    let found = project.compare([Some("v1"), Some("v2")]);
    let [only] = found.results.as_slice() else { panic!("{found:#?}") };
    assert_eq!(
        (only.conclusion, only.pairs, found.is_slower(), found.is_same),
        (PairConclusion::Faster, 6, false, false)
    );
    let [old, new] = found.versions.clone().unwrap();
    assert_eq!((old.name.as_str(), new.commit.as_deref()), ("v1", Some(&*project.git(&["rev-parse", "HEAD"]))));
    assert_eq!(new.content, format!("tree {}", project.git(&["rev-parse", "v2^{tree}"])));
    let text = found.to_string();
    assert!(text.starts_with(&format!("OLD v1 ({}), NEW v2 (", &project.git(&["rev-parse", "v1"])[..12])), "{text}");
    assert!(
        text.contains("\nscore: v2 is 19.8 % faster (95 percent interval 19.") && text.contains("lower score"),
        "{text}"
    );
    assert_eq!(project.count(), 2);
    // By other names, and for other results.
    fs::remove_dir_all(project.results()).unwrap();
    let found = project.compare([Some("HEAD"), Some("HEAD~1")]);
    assert!(found.is_slower() && project.count() == 2, "{found}");
    let info = Info::read(&project.results()).unwrap();
    assert_eq!(info.versions.unwrap()[1].content, old.content);
    // Builds that were removed are made again, though git still knows of their folders.
    fs::remove_dir_all(project.builds()).unwrap();
    assert!(project.built([Some("HEAD"), Some("HEAD~1")]).is_ok() && project.count() == 2);
    // Another command is another build.
    project.change_campaign("chmod +x", "chmod 755");
    assert!(project.built([Some("HEAD"), Some("HEAD~1")]).is_ok() && project.count() == 4);
    assert_eq!(project.git(&["status", "--porcelain"]), "?? tool.results/\n?? tool.toml");
}

#[test]
fn the_working_tree_is_compared_as_it_is() {
    let Some(project) = Project::new("the_working_tree_is_compared_as_it_is") else { return };
    fs::write(project.folder.join("speed"), "90\n").unwrap();
    fs::write(project.folder.join("not added"), "").unwrap();
    fs::write(project.folder.join(".git/info/exclude"), "ignored\n").unwrap();
    let index = fs::read(project.folder.join(".git/index")).unwrap();
    let found = project.compare([None, None]);
    assert_eq!(found.results[0].conclusion, PairConclusion::Slower);
    assert!(found.to_string().starts_with("OLD v2 (") && found.new == "working tree", "{found}");
    assert_eq!(fs::read(project.folder.join(".git/index")).unwrap(), index, "the index is the user's");
    assert_eq!(project.git(&["log", "--format=%s", "--branches"]), "80\n100");

    // Results, the campaign file and ignored files are no change, nor are new times of files.
    fs::write(project.folder.join("ignored"), "x").unwrap();
    project.change_campaign("repeats = 6", "repeats = 7");
    fs::write(project.folder.join("speed"), "90\n").unwrap();
    assert_eq!((project.compare([None, Some(".")]).runs, project.count()), (14, 2));

    fs::write(project.folder.join("speed"), "95\n").unwrap();
    fs::remove_file(project.folder.join("not added")).unwrap();
    let error = project.error([None, None]);
    let commit = found.versions.unwrap()[1].commit.clone().unwrap();
    assert!(error.contains("tool.results has results of another NEW: of working tree ("), "{error}");
    assert!(error.contains("(other files: `not added`, `speed`)"), "{error}");
    assert!(error.contains(&format!("give another folder for the results, or go on with NEW {commit}")), "{error}");
    project.change_campaign("repeats = 7", "repeats = 8");
    assert_eq!(project.compare([Some("v2"), Some(&commit)]).runs, 16);
    let error = project.error([Some("v1"), Some(&commit)]);
    assert!(error.contains("another OLD: of v2 (") && error.contains("(other files: `speed`)"), "{error}");
    // Nothing depends on a folder without runs.
    fs::write(project.results().join("results.jsonl"), "").unwrap();
    assert!(project.built([Some("v1"), None]).is_ok());
}

#[test]
fn the_same_contents_are_an_a_a_check() {
    let Some(project) = Project::new("the_same_contents_are_an_a_a_check") else { return };
    let found = project.compare([Some("v2"), None]);
    assert!(found.is_same && !found.is_slower() && project.count() == 1, "{found:#?}");
    let text = found.to_string();
    assert!(text.starts_with("A/A check: v2 (") && text.contains("is one of the machine or of chance"), "{text}");
}

#[test]
fn the_default_is_the_last_tag_or_what_replaces_it() {
    let Some(project) = Project::new("the_default_is_the_last_tag_or_what_replaces_it") else { return };
    project.commit("speed", "70\n");
    let old =
        |project: &Project| project.built([None, None]).unwrap().campaign.build.unwrap().versions.unwrap()[0].clone();
    assert_eq!(old(&project).name, "v2");
    project.git(&["tag", "--delete", "v1", "v2"]);
    let error = project.error([None, None]);
    assert!(error.contains("no tag is an ancestor of the working tree (git: ") && error.contains("else = "), "{error}");
    project.change_campaign("base = \"last-tag\"", "base = \"last-tag\"\nelse = \"HEAD~2\"");
    assert_eq!(old(&project).commit, Some(project.git(&["rev-parse", "HEAD~2"])));
    project.change_campaign("base = \"last-tag\"\nelse = \"HEAD~2\"", "base = \"main~1\"");
    assert_eq!(old(&project).commit, Some(project.git(&["rev-parse", "HEAD~1"])));
    project.change_campaign("base = \"main~1\"", "");
    assert!(project.error([None, Some("HEAD")]).contains("give OLD, or add base"));
}

#[test]
fn what_cannot_be_found_is_told_with_the_reason_of_git() {
    let Some(project) = Project::new("what_cannot_be_found_is_told_with_the_reason_of_git") else { return };
    for (sides, side) in [([Some("v3"), Some("v2")], "OLD `v3`"), ([Some("v1"), Some("--all")], "NEW `--all`")] {
        let error = project.error(sides);
        assert!(error.contains(&format!("{side} is no revision (git: Needed a single revision)")), "{error}");
        assert!(error.contains("no such file; `git log` and `git tag` list revisions"), "{error}");
    }
    let error = project.error([Some("./v1"), Some("v2")]);
    assert!(error.contains("cannot read `./v1`: ") && error.contains("check the path"), "{error}");

    let plain = Project::without_repository(CAMPAIGN);
    let error = plain.error([Some("v1"), Some("v2")]);
    assert!(error.contains("OLD `v1` is no revision (git: not a git repository"), "{error}");
    let error = plain.error([Some("/bin/sh"), None]);
    assert!(error.contains("find the working tree") && error.contains("(git: not a git repository"), "{error}");
    let empty = Project::without_repository(CAMPAIGN);
    empty.git(&["init", "--quiet"]);
    let error = empty.error([Some("/bin/sh"), Some(".")]);
    assert!(error.contains("find the present commit (git: ") && error.contains("make a commit"), "{error}");
}

/// This test starts itself again with a path that has no program.
#[test]
fn a_missing_git_is_told() {
    const CHILD: &str = "BELLOWS_TEST_WITHOUT_GIT";
    let project = Project::without_repository(CAMPAIGN);
    if std::env::var_os(CHILD).is_some() {
        let error = project.error([Some("v1"), Some("v2")]);
        assert!(error.contains("no revision (git: there is no program `git`; install it)"), "{error}");
        // Finished programs need no git.
        let [old, new] = [("a/tool", 100), ("b/tool", 90)].map(|(name, speed)| project.program(name, speed));
        assert!(project.built([old.to_str(), new.to_str()]).is_ok());
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "builds::a_missing_git_is_told"]).env(CHILD, "1").env("PATH", project.scratch.path());
    let output = child.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
}

#[test]
fn a_failed_build_is_told_with_its_last_lines_and_made_again() {
    let Some(project) = Project::new("a_failed_build_is_told_with_its_last_lines_and_made_again") else { return };
    project.change_campaign(
        "chmod +x",
        "for i in 1 2 3 4 5 6 7 8 9 10 11; do echo line $i >&2; done; false; exit 7; chmod +x",
    );
    let error = project.error([Some("v1"), Some("v2")]);
    assert!(
        error.contains("the build of v1 failed: its command ended with exit code 7\n  line 2\n  line 3"),
        "{error}"
    );
    let log = error.split("its output is in ").nth(1).unwrap();
    assert!(fs::read_to_string(log).unwrap().contains("standard error:\nline 1\n"), "{error}");
    let made = project.count();
    project.error([Some("v1"), Some("v2")]);
    assert_eq!(project.count(), made + 1);
    project.change_campaign("exit 7;", "");
    assert!(project.built([Some("v1"), Some("v2")]).is_ok());

    project.change_campaign("program = \"tool\"", "program = \"bin/tool\"");
    let error = project.error([Some("v1"), Some("v2")]);
    assert!(error.contains("v1 has no program ") && error.contains("/build/bin/tool; correct `program`"), "{error}");
    project.change_campaign("program = \"bin/tool\"", "");
    let error = project.error([Some("v1"), Some("v2")]);
    assert!(error.contains("v1 has no `{version.program}`") && error.contains("add program ="), "{error}");
    project.change_campaign("base = \"last-tag\"", "time_limit = \"200 ms\"");
    project.change_campaign("echo built", "sleep 20; echo built");
    let error = project.error([Some("v1"), Some("v2")]);
    assert!(error.contains("took longer than 0.2 s, the time limit of builds"), "{error}");
}

#[test]
fn an_interrupted_build_is_made_again() {
    let Some(project) = Project::new("an_interrupted_build_is_made_again") else { return };
    let sleep = format!("sleep {}", long(77));
    project.change_campaign("echo built", &format!("test -e {{build}}/../../go || {sleep}; echo built"));
    let stop = Arc::new(Stop::new().unwrap());
    let (request, builds) = (Arc::clone(&stop), project.builds());
    let thread = std::thread::spawn(move || {
        let is_building = || {
            let entries = fs::read_dir(&builds).into_iter().flatten().flatten();
            entries.into_iter().any(|entry| entry.path().join("source/speed").exists())
        };
        eventually("a build has begun", is_building);
        request.set();
    });
    let start = Instant::now();
    let error = project.build([Some("v1"), Some("v2")], &stop).unwrap_err();
    thread.join().unwrap();
    assert!(matches!(error, CompareError::Stopped) && start.elapsed() < Duration::from_secs(60), "{error}");
    fs::write(project.builds().join("go"), "").unwrap();
    assert!(project.built([Some("v1"), Some("v2")]).is_ok());
    assert_eq!(project.count(), 2);
    // What was made is not trusted if it was changed.
    let loaded = project.built([Some("v1"), Some("v2")]).unwrap();
    let bellows_campaign::PlaceholderValue::Text(program) = &loaded.campaign.factors[0].levels[1].values["program"]
    else {
        panic!()
    };
    fs::write(program, "#!/bin/sh\necho took 1\n").unwrap();
    let error = project.error([Some("v1"), Some("v2")]);
    assert!(
        error.contains("the build of v2 in ") && error.contains("was changed since it was made; remove"),
        "{error}"
    );
}

#[test]
fn finished_programs_and_folders_are_compared() {
    let project = Project::without_repository(CAMPAIGN);
    let old = project.program("old build/tool", 100);
    let new = project.program("new build/tool", 90);
    let sides = [old.to_str(), new.to_str()];
    let found = project.compare(sides);
    assert_eq!(found.results[0].conclusion, PairConclusion::Faster);
    let content = &found.versions.unwrap()[1].content;
    assert!(content.starts_with("sha256 ") && content.ends_with(" tool"), "{content}");
    assert_eq!(project.count(), 0);
    // A change while runs are made does not reach them, and one before is reported.
    project.program("new build/tool", 50);
    let error = project.error(sides);
    assert!(error.contains("another NEW: of ") && error.ends_with("or restore it"), "{error}");
    project.program("new build/tool", 90);
    assert!(project.built(sides).is_ok());

    // A program that is several keeps the name by which it is called.
    let names = ["100", "90"].map(|name| project.folder.join(name));
    programs::script(project.folder.join("all"), "#!/bin/sh\necho took $(( $(basename \"$0\") + $1 % 3 ))\n");
    names.iter().for_each(|name| std::os::unix::fs::symlink("all", name).unwrap());
    fs::remove_dir_all(project.results()).unwrap();
    let found = project.compare([names[0].to_str(), names[1].to_str()]);
    assert!(found.results[0].conclusion == PairConclusion::Faster && !found.is_same, "{found}");
    let error = project.error([project.folder.to_str(), new.to_str()]);
    assert!(error.contains("has the folder of builds in it; give another folder for builds"), "{error}");

    let folders = [old.parent().unwrap().to_str(), new.parent().unwrap().to_str()];
    fs::remove_dir_all(project.results()).unwrap();
    assert_eq!(project.compare(folders).results[0].conclusion, PairConclusion::Faster);
    fs::remove_dir_all(project.results()).unwrap();
    project.change_campaign("program = \"tool\"", "program = \"tools\"");
    assert!(project.error(folders).contains("/tools; correct `program`"));
    project.change_campaign("{version.program}", "{version.source}");
    let error = project.error(sides);
    assert!(error.contains("has no `{version.source}`") && error.contains("give a revision"), "{error}");
}

/// Without a command, the program is a file of the revision.
#[test]
fn revisions_of_a_script_need_no_build() {
    let Some(project) = Project::new("revisions_of_a_script_need_no_build") else { return };
    for speed in [100, 80] {
        project.program("tool", speed);
        project.commit("tool", &fs::read_to_string(project.folder.join("tool")).unwrap());
    }
    let text = fs::read_to_string(project.folder.join("tool.toml")).unwrap();
    let command = &text[text.find("command = {").unwrap()..text.find("program =").unwrap()];
    project.change_campaign(command, "");
    assert_eq!(project.compare([Some("HEAD~1"), Some("HEAD")]).results[0].conclusion, PairConclusion::Faster);
}

/// What is reported before the first run.
#[derive(Default)]
struct Told(Vec<String>);

impl Observer for Told {
    fn preparing(&mut self, what: &str) {
        self.0.push(what.to_owned());
    }

    fn started(&mut self, _: RunId, _: &CampaignProgress) {}

    fn recorded(&mut self, _: &Row, _: &CampaignProgress) {}
}

#[test]
fn builds_are_told_and_wait_for_nobody() {
    let Some(project) = Project::new("builds_are_told_and_wait_for_nobody") else { return };
    let file = project.folder.join("tool.toml");
    let mut loaded = load(&file).unwrap();
    assert!(matches!(LocalExecutor::new(&loaded.campaign, &loaded.folder), Err(ExecuteError::NotBuilt)));
    let before = Plan::new(&loaded.campaign).hash();
    let folders = Folders { file: &file, results: &project.results(), builds: &project.builds() };
    let mut told = Told::default();
    build_versions(&mut loaded, [Some("v1"), Some("v2")], &folders, &Stop::new().unwrap(), &mut told).unwrap();
    assert_eq!(told.0, ["checks out v1", "builds v1", "checks out v2", "builds v2"]);
    let hash = Plan::new(&loaded.campaign).hash();
    assert_ne!(hash, before);
    // The hash does not depend on where the builds are.
    let elsewhere = project.scratch.path().join("elsewhere");
    let mut moved = load(&file).unwrap();
    let folders = Folders { builds: &elsewhere, ..folders };
    build_versions(&mut moved, [Some("v1"), Some("v2")], &folders, &Stop::new().unwrap(), &mut ()).unwrap();
    assert_eq!(Plan::new(&moved.campaign).hash(), hash);
    assert_ne!(moved.campaign.factors, loaded.campaign.factors);

    let lock = fs::File::open(elsewhere.join("lock")).unwrap();
    lock.lock().unwrap();
    let error =
        build_versions(&mut moved, [Some("v1"), Some("v2")], &folders, &Stop::new().unwrap(), &mut ()).unwrap_err();
    assert!(matches!(error, CompareError::Locked { .. }) && error.to_string().contains("wait for it"), "{error}");
    let mut levels = load(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/checksums.toml").as_path()).unwrap();
    let error = build_versions(&mut levels, [None, None], &folders, &Stop::new().unwrap(), &mut ()).unwrap_err();
    assert!(matches!(error, CompareError::NotPaired), "{error}");
    levels.campaign.paired = Some("size".to_owned());
    let error = build_versions(&mut levels, [Some("v1"), None], &folders, &Stop::new().unwrap(), &mut ()).unwrap_err();
    assert!(error.to_string().contains("compares the levels of `size`; leave out OLD and NEW"), "{error}");
    assert!(build_versions(&mut levels, [None, None], &folders, &Stop::new().unwrap(), &mut ()).is_ok());
}

#[test]
fn another_toolchain_builds_the_same_content_again() {
    let Some(project) = Project::new("another_toolchain_builds_the_same_content_again") else { return };
    fs::write(project.folder.join("compiler"), "version 1\n").unwrap();
    fs::write(project.folder.join(".gitignore"), "compiler\n").unwrap();
    project.change_campaign("program = \"tool\"", "program = \"tool\"\ntoolchain = [\"cat\", \"compiler\"]");
    project.change_campaign("repeats = 6", "repeats = 1");
    let sides = [Some("v1"), Some("v2")];
    let found = project.compare(sides);
    let contents = found.versions.clone().unwrap().map(|version| version.content);
    assert!(contents.iter().all(|content| content.contains(" toolchain ")) && contents[0] != contents[1]);
    assert_eq!(project.count(), 2);
    project.compare(sides);
    assert_eq!(project.count(), 2, "the same toolchain has built them");
    fs::write(project.folder.join("compiler"), "version 2\n").unwrap();
    let error = project.error(sides);
    assert!(
        error.contains("results of another OLD: of v1") && error.contains("built with another toolchain"),
        "{error}"
    );
    assert!(!error.contains("go on with OLD"), "{error}");
    fs::remove_dir_all(project.results()).unwrap();
    project.compare(sides);
    assert_eq!(project.count(), 4);
    // Both builds are kept.
    fs::write(project.folder.join("compiler"), "version 1\n").unwrap();
    fs::remove_dir_all(project.results()).unwrap();
    let again = project.compare(sides);
    assert_eq!((project.count(), again.versions.unwrap().map(|version| version.content)), (4, contents));
    // An A/A check has one toolchain.
    fs::remove_dir_all(project.results()).unwrap();
    assert!(project.compare([Some("v1"), Some("v1")]).is_same);
    // Finished programs do not need it.
    fs::remove_file(project.folder.join("compiler")).unwrap();
    fs::remove_dir_all(project.results()).unwrap();
    let error = project.error(sides);
    assert!(
        error.contains("exit code 1") && error.contains("cat:") && error.contains("correct `toolchain`"),
        "{error}"
    );
    assert!(project.built([Some("/bin/true"), Some("/bin/false")]).is_ok());
    project.change_campaign("toolchain = [\"cat\"", "toolchain = [\"no-such-compiler\"");
    let error = project.error(sides);
    assert!(error.contains("`no-such-compiler` cannot be started"), "{error}");
}
