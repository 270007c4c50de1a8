//! Forwarding tables of other crates, which `cargo xtask peers fib` compares with Bellows.
//!
//! `fib_peers poptrie|poptrie6|prefix-trie|prefix-trie6 PROCESSOR FOLDER` takes turns with other processes by the same
//! protocol, and reads the same folder, as bench/peers/fib.c, which describes both. The bytes are all that a table has
//! allocated, with its routes, which both crates keep in it.

#[allow(dead_code, reason = "the other example uses the rest")]
mod contest;

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::str::FromStr;

use bellows_fib::Prefix;
use bellows_sys::{clock, cpu};
use contest::{Known, LookUp, allocated};

/// Prefixes, and the number of each one's route.
type Routes<A> = Vec<(Prefix<A>, u32)>;

/// Keys, and the number of each one's route.
struct Set<A> {
    keys: Vec<A>,
    next: Vec<u32>,
}

/// An address in a file.
trait Bytes: Known {
    fn read(bytes: &[u8]) -> Self;
}

impl Bytes for u32 {
    fn read(bytes: &[u8]) -> u32 {
        u32::from_ne_bytes(bytes.try_into().expect("4 bytes"))
    }
}

impl Bytes for u128 {
    fn read(bytes: &[u8]) -> u128 {
        u128::from_be_bytes(bytes.try_into().expect("16 bytes"))
    }
}

fn read_routes<A: Known>(folder: &Path) -> Result<Routes<A>, Box<dyn Error>>
where
    Prefix<A>: FromStr<Err: Error + 'static>,
{
    let text = fs::read_to_string(folder.join("routes"))?;
    let route = |line: &str| {
        let (prefix, number) = line.split_once(' ').ok_or_else(|| format!("{line}: this is no route"))?;
        Ok((prefix.parse()?, number.parse()?))
    };
    text.lines().map(route).collect()
}

fn read_sets<A: Bytes>(folder: &Path) -> Result<Vec<Set<A>>, Box<dyn Error>> {
    let mut sets = Vec::new();
    while let Ok(bytes) = fs::read(folder.join(format!("keys-{}", sets.len()))) {
        let keys = bytes.chunks_exact(size_of::<A>()).map(A::read).collect();
        let bytes = fs::read(folder.join(format!("next-{}", sets.len())))?;
        sets.push(Set { keys, next: bytes.chunks_exact(4).map(u32::read).collect() });
    }
    if sets.is_empty() { Err(format!("{} has no keys", folder.display()).into()) } else { Ok(sets) }
}

/// A turn: the clocks of a look-up in each set, and of all timed passes.
fn turn<A>(table: &dyn LookUp<A>, sets: &[Set<A>]) -> (Vec<f64>, u64) {
    let (mut figures, mut took) = (Vec::new(), 0);
    for Set { keys, .. } in sets {
        let pass = || {
            let start = clock::ticks();
            contest::pass(table, keys);
            clock::ticks() - start
        };
        // Untimed, to reload what other processes evicted from the caches. One more is enough for tables as slow as these.
        pass();
        let clocks = pass();
        took += clocks;
        figures.push(clocks as f64 / keys.len() as f64);
    }
    (figures, took)
}

/// Answers each line of the input by a turn, and checks all results at the end.
fn take_turns<A: Bytes>(name: &str, folder: &Path) -> Result<(), Box<dyn Error>>
where
    Prefix<A>: FromStr<Err: Error + 'static>,
{
    let (routes, sets) = (read_routes::<A>(folder)?, read_sets::<A>(folder)?);
    let before = allocated();
    let table = contest::table(name, &routes).ok_or_else(|| format!("there is no table {name}"))?;
    let bytes = allocated() - before;
    let mut output = io::stdout().lock();
    writeln!(output, r#"{{"machine":null,"outcome":{{"Ok":null}}}}"#)?;
    output.flush()?;
    for request in io::stdin().lines() {
        request?;
        let (figures, took) = turn(&*table, &sets);
        write!(output, r#"{{"figures":["#)?;
        figures.iter().try_for_each(|figure| write!(output, "{figure:.6},"))?;
        writeln!(output, r#"{bytes}],"took":{took},"lost":0}}"#)?;
        output.flush()?;
    }
    let is_wrong = |set: &Set<A>| {
        let mut next = vec![0; set.keys.len()];
        table.look_up(&set.keys, &mut next);
        next != set.next
    };
    match sets.iter().position(is_wrong) {
        Some(set) => writeln!(output, r#"{{"Err":"{name} finds another route for a key of set {set}"}}"#)?,
        None => writeln!(output, r#"{{"Ok":null}}"#)?,
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, processor, folder] = &arguments[..] else {
        return Err("usage: fib_peers poptrie|poptrie6|prefix-trie|prefix-trie6 PROCESSOR FOLDER".into());
    };
    cpu::pin_to(processor.parse()?)?;
    // The first line is the task, which the arguments have already given; each further line requests a turn.
    io::stdin().lock().read_line(&mut String::new())?;
    match name.strip_suffix('6') {
        Some(name) => take_turns::<u128>(name, Path::new(folder)),
        None => take_turns::<u32>(name, Path::new(folder)),
    }
}
