//! Simplified programs are compared with the programs that they were made of.

#[path = "../../tests/libpcap/expressions.rs"]
mod expressions;

use fastrand::Rng;

use super::lower::lower;
use super::simplify::simplify;
use crate::generate;
use crate::graph::Graph;
use crate::interpret::{PacketView, run};
use crate::link::LinkType;
use crate::options::{Options, Reading, Scope};
use crate::parser;
use expressions::Generator;

/// The graphs of an expression as it is, and simplified with and without libpcap's faults; `None` where it is refused or
/// never simplified.
fn graphs(text: &str, options: &Options<'_>) -> Option<[Graph; 3]> {
    let tree = parser::parse(text).ok()??;
    let generated = generate::generate(&tree, options, Reading::Libpcap).ok()?;
    if generated.is_fixed {
        return None;
    }
    let simple = |has_faults| Some(lower(&simplify(generated.flow.clone(), has_faults).ok()?.flow));
    Some([lower(&generated.flow), simple(true)?, simple(false)?])
}

/// A packet whose headers are often whole, with extreme values in it.
fn packet(random: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; random.usize(64..200)];
    match random.u8(..4) {
        0 => bytes.fill(random.choice([0, 1, 0x45, u8::MAX]).unwrap()),
        _ => random.fill(&mut bytes),
    }
    let ethertype = random.choice([[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x88, 0x47], [0x88, 0x64]]).unwrap();
    bytes[12..14].copy_from_slice(&ethertype);
    match ethertype {
        [0x08, 0x00] => {
            bytes[14] = 0x45;
            bytes[20..22].fill(0);
            bytes[23] = random.choice([1, 6, 17, 132]).unwrap();
        }
        [0x86, 0xdd] => (bytes[14], bytes[20]) = (0x60, random.choice([6, 17, 58]).unwrap()),
        _ => bytes[16..18].copy_from_slice(&random.choice([[0x08, 0x00], [0x86, 0xdd]]).unwrap()),
    }
    bytes
}

#[test]
fn a_simplified_program_decides_what_the_program_decided() {
    let mut random = Rng::with_seed(1);
    let (mut decided, mut faults) = (0, 0);
    let options = Options { link_type: LinkType::Ethernet, scope: Scope::Libpcap, ..Options::default() };
    for _ in 0..20_000 {
        let text = Generator::new(&mut random).expression();
        let Some([raw, faulty, simple]) = graphs(&text, &options) else { continue };
        for _ in 0..20 {
            let bytes = packet(&mut random);
            let packet = PacketView::whole(&bytes);
            // A load beyond the end decides at once, and may be left out.
            let Some(verdict) = run(&raw, packet) else { continue };
            decided += 1;
            // It may also come sooner than what decided, after the change.
            let Some(simple) = run(&simple, packet) else { continue };
            assert_eq!(simple, verdict, "{text}: {bytes:02x?}");
            faults += u64::from(run(&faulty, packet) != Some(verdict));
        }
    }
    assert!(decided > 100_000, "{decided}");
    // The generator finds what it is for.
    assert!(faults > 0, "{faults}");
    println!("{decided} verdicts, {faults} of them faults of libpcap");
}
