//! The memory of a process, searched for what must not be in it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Searches all memory that a process can write, such as its heap and the stacks of its threads. Returns, for each pattern
/// that was found, its number and the mapping.
///
/// # Errors
/// Those of opening `/proc/PID/mem`, which only root and the process's user can read.
pub fn find(pid: u32, patterns: &[Vec<u8>]) -> io::Result<Vec<(usize, String)>> {
    let mut starts = vec![false; 1 << 16];
    for pattern in patterns {
        starts[start_of(pattern)] = true;
    }
    let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let (mut piece, mut found) = (vec![0; PIECE + longest], Vec::new());
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (mut from, to) = (parse(from), parse(to));
        if !rest.starts_with("rw") {
            continue;
        }
        while from < to {
            // Patterns may cross from one piece to the next.
            let length = (to - from).min((PIECE + longest) as u64) as usize;
            // Mappings of devices cannot be read, and others may be gone.
            if memory.read_exact_at(&mut piece[..length], from).is_ok() {
                let in_piece = search(&piece[..length], patterns, &starts);
                found.extend(in_piece.into_iter().map(|pattern| (pattern, line.to_owned())));
            }
            from += PIECE as u64;
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn start_of(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

/// The numbers of the patterns in some bytes.
fn search(bytes: &[u8], patterns: &[Vec<u8>], starts: &[bool]) -> Vec<usize> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut found = Vec::new();
    for (number, page) in bytes.chunks(ZEROS.len()).enumerate() {
        if page == &ZEROS[..page.len()] {
            continue;
        }
        let first = number * ZEROS.len();
        for at in first..(first + page.len()).min(bytes.len().saturating_sub(1)) {
            if starts[start_of(&bytes[at..])] {
                let is_here = |pattern: &&Vec<u8>| bytes[at..].starts_with(pattern);
                found.extend(
                    patterns.iter().enumerate().filter(|(_, pattern)| is_here(pattern)).map(|(number, _)| number),
                );
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_is_found_wherever_it_is() {
        let pattern = |number: u8| (0..16_u8).map(|at| number ^ at.wrapping_mul(29) ^ 0x5a).collect::<Vec<u8>>();
        let on_stack: [u8; 16] = std::hint::black_box(pattern(1).try_into().unwrap());
        let mut on_heap = vec![0; 3 * PIECE];
        // Across two pieces, whatever the block's address.
        for at in 0..PIECE / 4096 + 1 {
            let at = at * 4096 + 4088;
            on_heap[at..at + 16].copy_from_slice(&pattern(2));
        }
        let found = find(std::process::id(), &[pattern(1), pattern(2)]).unwrap();
        let kinds = |number: usize| found.iter().filter(|(found, _)| *found == number).count();
        assert!(kinds(0) > 0 && kinds(1) > 0, "{found:?}");
        assert_eq!((on_stack[0], on_heap[4088]), (pattern(1)[0], pattern(2)[0]));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = find(child.id(), &[pattern(1), pattern(2)]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), []);
    }
}
