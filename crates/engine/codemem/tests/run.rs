//! Generates code and runs it.
#![cfg(target_arch = "x86_64")]

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use bellows_codemem::{Code, Draft, PerfMap, Refused, Symbol};
use bellows_testkit::skip;

/// mov eax, 42; ret
const ANSWER: &[u8] = &[0xb8, 42, 0, 0, 0, 0xc3];

const TRAP: u8 = 0xcc;

/// One test at a time: another could map the memory that one frees.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn here() -> usize {
    callee as *const () as usize
}

extern "sysv64" fn callee(number: u64) -> u64 {
    number + 1
}

fn draft(capacity: usize) -> Draft {
    Draft::near(here()..=here(), capacity).unwrap()
}

/// # Safety
/// At `offset` the code must have a function of this type.
unsafe fn call(code: &Code, offset: usize, argument: u64) -> u64 {
    // SAFETY: the caller guarantees that there is such a function, and the borrow keeps it mapped until it has
    // returned.
    let function: extern "sysv64" fn(u64) -> u64 = unsafe { std::mem::transmute(code.address() + offset) };
    function(argument)
}

/// `call callee` or the like, for an address.
fn relative(opcode: u8, address: usize, target: usize) -> [u8; 5] {
    let displacement = i32::try_from(target as i64 - (address as i64 + 5)).expect("the target is within reach");
    let mut instruction = [opcode; 5];
    instruction[1..].copy_from_slice(&displacement.to_le_bytes());
    instruction
}

/// The permissions of the process for the page at `address`, such as `r-xp`.
fn access(address: usize) -> Option<String> {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address).then(|| fields.next().unwrap().to_owned())
    })
}

#[test]
fn sealed_code_runs() {
    let _alone = alone();
    let code = draft(ANSWER.len()).seal(ANSWER).unwrap();
    assert_eq!(code.bytes(), ANSWER);
    // SAFETY: the code returns a number in eax, and writing that register clears the upper half of rax.
    assert_eq!(unsafe { call(&code, 0, 0) }, 42);
}

#[test]
fn its_first_and_its_last_byte_reach_the_whole_program_text() {
    let _alone = alone();
    let (lowest, highest) = text();
    let draft = Draft::near(lowest..=highest, 3 << 20).unwrap();
    assert_eq!(draft.capacity(), 3 << 20);
    let last = draft.capacity() - 5;
    for place in [draft.address(), draft.address() + last] {
        relative(0xe8, place, lowest);
        relative(0xe8, place, highest);
    }
    let mut code = vec![TRAP; draft.capacity()];
    code[..5].copy_from_slice(&relative(0xe9, draft.address(), here()));
    code[last..].copy_from_slice(&relative(0xe9, draft.address() + last, here()));
    let code = draft.seal(&code).unwrap();
    // SAFETY: at both places is a jump to a function of this type.
    assert_eq!([unsafe { call(&code, 0, 6) }, unsafe { call(&code, last, 7) }], [7, 8]);
}

/// From the lowest to the highest executable byte of this program's file.
fn text() -> (usize, usize) {
    let program = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges: Vec<(usize, usize)> = maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap()))
        .map(|line| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            (usize::from_str_radix(start, 16).unwrap(), usize::from_str_radix(end, 16).unwrap() - 1)
        })
        .collect();
    let text = (ranges.iter().map(|range| range.0).min().unwrap(), ranges.iter().map(|range| range.1).max().unwrap());
    assert!((text.0..=text.1).contains(&here()));
    text
}

#[test]
fn memory_is_reserved_then_executable_then_gone_and_never_writable() {
    let _alone = alone();
    let draft = draft(1);
    let address = draft.address();
    assert_eq!(access(address).as_deref(), Some("---p"));
    let code = draft.seal(ANSWER).unwrap();
    assert_eq!(code.address(), address);
    assert_eq!(access(address).as_deref(), Some("r-xp"));
    drop(code);
    assert_eq!(access(address), None);

    let code = self::draft(1).seal_for_perf(ANSWER).unwrap();
    assert_eq!(access(code.address()).as_deref(), Some("r-xp"));
    // SAFETY: the code returns a number in eax.
    assert_eq!(unsafe { call(&code, 0, 0) }, 42);
    drop(code);

    let unused = self::draft(1);
    let address = unused.address();
    drop(unused);
    assert_eq!(access(address), None);
}

#[test]
fn traps_follow_the_code() {
    let _alone = alone();
    let draft = draft(1);
    let capacity = draft.capacity();
    let code = draft.seal(ANSWER).unwrap();
    let mut rest = vec![0; capacity - ANSWER.len()];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut rest, (code.address() + ANSWER.len()) as u64).unwrap();
    assert!(!rest.is_empty() && rest.iter().all(|&byte| byte == TRAP));
}

#[test]
fn many_pieces_of_code_live_side_by_side() {
    let _alone = alone();
    let codes: Vec<Code> = (0..100u32)
        .map(|number| {
            let mut code = ANSWER.to_vec();
            code[1..5].copy_from_slice(&number.to_le_bytes());
            draft(code.len()).seal(&code).unwrap()
        })
        .collect();
    for (number, code) in codes.iter().enumerate() {
        // SAFETY: the code returns a number in eax.
        assert_eq!(unsafe { call(code, 0, 0) }, number as u64);
    }
}

#[test]
fn threads_that_want_the_same_gap_all_get_one_of_their_own() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let codes: Vec<Code> = (0..20).map(|_| draft(1).seal(ANSWER).unwrap()).collect();
                // SAFETY: the code returns a number in eax.
                assert!(codes.iter().all(|code| unsafe { call(code, 0, 0) } == 42));
            });
        }
    });
}

#[test]
fn code_that_is_too_long_is_refused() {
    let _alone = alone();
    let draft = draft(1);
    let length = draft.capacity() + 1;
    let error = draft.seal(&vec![TRAP; length]).unwrap_err();
    assert!(matches!(error, Refused::TooLong { capacity, .. } if capacity + 1 == length), "{error}");
    assert!(error.to_string().ends_with(&format!("ask for {length}")), "{error}");
}

#[test]
fn targets_that_no_single_place_reaches_are_refused() {
    let _alone = alone();
    let refused = |targets, capacity| Draft::near(targets, capacity).unwrap_err();
    assert!(matches!(refused(here()..=here() + (5 << 30), 1), Refused::OutOfReach { .. }));
    for capacity in [5 << 30, usize::MAX / 2, usize::MAX] {
        assert!(matches!(refused(here()..=here(), capacity), Refused::OutOfReach { .. }));
    }
    assert!(matches!(refused(usize::MAX - 1..=usize::MAX, 1), Refused::NoGap { .. }), "only the kernel is there");
}

/// Set in the separate process in which [`a_policy_against_new_code_is_a_typed_error`] runs.
const UNDER_POLICY: &str = "BELLOWS_CODEMEM_UNDER_POLICY";

#[test]
fn a_policy_against_new_code_is_a_typed_error() {
    if std::env::var_os(UNDER_POLICY).is_some() {
        return under_policy();
    }
    let name = "a_policy_against_new_code_is_a_typed_error";
    // The policy holds for a PID namespace, so it is set in a new one.
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork", "sh", "-c"])
        .arg("echo 2 > /proc/sys/vm/memfd_noexec || exit 77; exec \"$0\" \"$@\"")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(UNDER_POLICY, "1")
        .output();
    let Ok(child) = child else { return skip(name, "unshare is not installed") };
    let output = String::from_utf8_lossy(&child.stdout);
    let complaint = String::from_utf8_lossy(&child.stderr);
    if !output.contains("running 1 test") {
        return skip(name, format!("no namespace in which vm.memfd_noexec can be set: {}", complaint.trim()));
    }
    assert!(child.status.success(), "{output}{complaint}");
    assert!(output.contains("refused: the kernel allows no executable memory ("), "{output}");
}

fn under_policy() {
    let draft = draft(1);
    let address = draft.address();
    let error = draft.seal(ANSWER).unwrap_err();
    assert!(matches!(error, Refused::Sealing { .. }), "{error}");
    assert_eq!(access(address), None, "the place is given back");
    println!("refused: {error}");
}

#[test]
fn the_perf_map_names_the_code() {
    let _alone = alone();
    let code = draft(1).seal(ANSWER).unwrap();
    let map = PerfMap::for_this_process();
    map.write(&[Symbol { start: code.address(), size: code.bytes().len(), name: "answer".into() }]).unwrap();
    let content = std::fs::read_to_string(map.path());
    std::fs::remove_file(map.path()).unwrap();
    assert_eq!(content.unwrap(), format!("{:x} 6 answer\n", code.address()));
}
