//! DPDK's environment (EAL): started once, with the first device, and alive as long as the process.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::slice;
use std::sync::OnceLock;
use std::thread;

use bellows_sys::cpu;
use tracing::warn;

use crate::library;
use crate::memory::Memory;
use crate::table::Table;

/// Free huge pages of 2 MiB that DPDK's own structures need at least.
const HUGE_PAGES: usize = 64;

/// MiB of memory for these structures without huge pages.
const PLAIN_MEMORY: usize = 256;

/// The environment.
#[derive(Clone, Copy)]
pub(crate) struct Environment {
    pub(crate) table: &'static Table,
    pub(crate) memory: &'static Memory,
    /// Whether DPDK's own structures are on huge pages.
    pub(crate) has_huge_pages: bool,
}

impl Environment {
    /// The environment, which is started at the first call. One that could not be started cannot be started again.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub(crate) fn get() -> Result<Environment, String> {
        static STARTED: OnceLock<Result<Environment, String>> = OnceLock::new();
        // Without the object, nothing has been tried.
        let table = library::open()?;
        STARTED.get_or_init(|| start(table)).clone()
    }

    /// The release of DPDK, and its memory, for people.
    pub(crate) fn describe(&self) -> String {
        let pages = if self.has_huge_pages { "huge pages" } else { "plain pages" };
        format!("{}, {pages}", self.table.release())
    }
}

/// Starts the environment on a thread of its own, because the one that does it is pinned to a processor.
fn start(table: &'static Table) -> Result<Environment, String> {
    let has_huge_pages = free_huge_pages() >= HUGE_PAGES;
    let started = thread::Builder::new().name("dpdk".to_owned()).spawn(move || start_here(table, has_huge_pages));
    let started = started.map_err(|error| format!("no thread can be started: {error}"))?;
    started
        .join()
        .unwrap_or_else(|_| Err("the thread that starts it has panicked; this is a bug in bellows".to_owned()))?;
    let memory = Memory::get(table)?;
    Ok(Environment { table, memory, has_huge_pages })
}

fn start_here(table: &Table, has_huge_pages: bool) -> Result<(), String> {
    let words: Result<Vec<CString>, _> = arguments(has_huge_pages).into_iter().map(CString::new).collect();
    let words = words.map_err(|error| error.to_string())?;
    // It may exchange them, and keeps some: they stay.
    let words: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).chain([std::ptr::null_mut()]).collect();
    let words = words.leak();
    let count = (words.len() - 1) as c_int;
    let (result, said) = collect(|| {
        // SAFETY: there are as many texts, and a null pointer behind them, that are never freed; called once.
        unsafe { (table.start)(count, words.as_mut_ptr(), log) }
    });
    table
        .result(result)
        .map_err(|error| format!("the environment of {} does not start: {error}{said}", table.release()))?;
    if !has_huge_pages {
        remove_folder();
    }
    // SAFETY: the environment has started.
    if unsafe { (table.iova_is_virtual)() } == 0 {
        return Err("DPDK insists on physical addresses, which packets of Bellows do not have: the machine needs an IOMMU (intel_iommu=on or amd_iommu=on for the kernel) and the device the driver vfio-pci".to_owned());
    }
    Ok(())
}

/// What the environment's files begin with.
fn prefix() -> String {
    format!("bellows-{}", std::process::id())
}

/// Removes the folder that DPDK has made for files which it does not make.
fn remove_folder() {
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(std::env::var_os);
    for folder in named.chain(["/var/run".into(), "/tmp".into()]) {
        // One that is not there, or not empty, stays as it is.
        let _ = fs::remove_dir(std::path::Path::new(&folder).join("dpdk").join(prefix()));
    }
}

/// The arguments of the environment.
fn arguments(has_huge_pages: bool) -> Vec<String> {
    let processors = cpu::ranges(&cpu::allowed()).replace(' ', "");
    let mut words = vec![
        "bellows".to_owned(),
        // One thread of DPDK's, which is that of the start, and no files to share memory.
        format!("--lcores=0@({processors})"),
        "--no-telemetry".to_owned(),
        "--iova-mode=va".to_owned(),
        // No card, so that none is taken but those that apps name.
        "--allow=0000:00:00.0".to_owned(),
        "--log-level=4".to_owned(),
    ];
    match has_huge_pages {
        true => words.push("--in-memory".to_owned()),
        // DPDK's memory without files and without huge pages do not go together.
        false => {
            let prefix = format!("--file-prefix={}", prefix());
            words.extend(["--no-huge", "--no-shconf", &prefix, "-m"].map(str::to_owned));
            words.push(PLAIN_MEMORY.to_string());
        }
    }
    words
}

/// Number of free huge pages of 2 MiB.
fn free_huge_pages() -> usize {
    let text = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

thread_local! {
    /// What DPDK has said on this thread, while that is collected.
    static SAID: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Does something, and returns what DPDK says meanwhile on this thread, for the end of a sentence.
pub(crate) fn collect<T>(work: impl FnOnce() -> T) -> (T, String) {
    SAID.with(|said| said.replace(Some(Vec::new())));
    let result = work();
    let lines = SAID.with(RefCell::take).unwrap_or_default();
    let said = if lines.is_empty() { String::new() } else { format!(" ({})", lines.join("; ")) };
    (result, said)
}

/// DPDK writes to its log: errors alone.
unsafe extern "C" fn log(text: *const c_char, length: usize) {
    // SAFETY: the caller passes a text of this length.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length) };
    for line in String::from_utf8_lossy(bytes).lines().map(str::trim).filter(|line| !line.is_empty()) {
        let is_collected = SAID.try_with(|said| match said.try_borrow_mut() {
            Ok(mut said) => said.as_mut().map(|lines| lines.push(line.to_owned())).is_some(),
            Err(_) => false,
        });
        if !is_collected.unwrap_or(false) {
            warn!("DPDK: {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_card_is_taken_that_nobody_names() {
        let words = arguments(true);
        assert!(words.contains(&"--allow=0000:00:00.0".to_owned()) && !words.contains(&"--no-huge".to_owned()));
        let processors = words.iter().find(|word| word.starts_with("--lcores")).unwrap();
        assert!(processors.starts_with("--lcores=0@(") && !processors.contains(' '), "{processors}");
        assert!(arguments(false).contains(&"--no-huge".to_owned()));
    }

    #[test]
    fn what_it_says_ends_the_sentence() {
        let say = |text: &str| {
            // SAFETY: a text and its length.
            unsafe { log(text.as_ptr().cast(), text.len()) };
        };
        let (result, said) = collect(|| {
            say("EAL: no such device\n");
            say("\nEAL: really\n");
            3
        });
        assert_eq!((result, said.as_str()), (3, " (EAL: no such device; EAL: really)"));
        assert_eq!(collect(|| ()).1, "");
    }
}
