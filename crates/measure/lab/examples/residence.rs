//! The levels of this machine's memory hierarchy, and the cost of packets in each:
//! `cargo run --release -p bellows-lab --example residence [TRAFFIC]`.
//!
//! There are three networks: source to sink; with an app between that reads each packet; and with an app whose reads
//! depend on each other, so that nothing hides the latency of a load.

use std::error::Error;

use bellows_basic::sink::Sink;
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Settings};
use bellows_lab::residence::{Levels, Resident};
use bellows_lab::supply::{Footprint, SupplyConfig, pair};
use bellows_lab::traffic::Traffic;
use bellows_stats::median;
use bellows_sys::{clock, cpu};

/// Reads the first line of each packet; if `chained`, each read depends on the previous one.
#[derive(Default)]
struct Looker<const CHAINED: bool> {
    seen: usize,
}

impl<const CHAINED: bool> App for Looker<CHAINED> {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in &mut io.input(0) {
            // A byte has no such bit, but the processor does not know this.
            let place = if CHAINED { self.seen & 0x100 } else { 0 };
            self.seen = packet.bytes().get(place).copied().unwrap_or(0).into();
            output.push(packet);
        }
    }
}

/// The packets of one figure, and the number of figures whose median is printed.
const PACKETS: usize = 8_192;
const FIGURES: usize = 200;

/// Clocks per packet, and the memory footprint of a round's packets.
fn measure(config: &SupplyConfig, looker: Option<impl App>) -> Result<(f64, Option<Footprint>), Box<dyn Error>> {
    let settings = Settings { sampling: false, ..Settings::default() };
    let burst = settings.burst;
    let (supply, mut handle) = pair(config, burst)?;
    let network = Network::new().app("supply", supply).app("sink", Sink);
    let network = match looker {
        None => network.link("supply.output -> sink.input")?,
        Some(looker) => {
            network.app("looker", looker).link("supply.output -> looker.input")?.link("looker.output -> sink.input")?
        }
    };
    let mut engine = Engine::new(network, settings, None)?;
    let mut figures = Vec::new();
    for _ in 0..FIGURES {
        let (mut clocks, mut packets) = (0, 0);
        while packets < PACKETS {
            handle.prepare()?;
            engine.breathe();
            let ready = handle.left().min(PACKETS);
            let start = clock::ticks();
            engine.breathe_times((ready / burst) as u64);
            clocks += (clock::ticks() - start).saturating_sub(clock::cost());
            packets += ready;
        }
        figures.push(clocks as f64 / packets as f64);
    }
    Ok((median(&figures).map_or(f64::NAN, |median| median.value), handle.footprint()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let traffic: Traffic = std::env::args().nth(1).as_deref().unwrap_or("60").parse()?;
    if let Some(last) = cpu::allowed().last() {
        cpu::pin_to(*last)?;
    }
    let levels = Levels::measure()?;
    print!("{levels}");
    println!("\nclocks/packet     sink   look  chain   packets     bytes   pages");
    let levels_and_none = levels.names().into_iter().map(Some);
    for level in [None].into_iter().chain(levels_and_none) {
        let residence = level.map(|level| levels.residence(level)).transpose()?;
        let config = SupplyConfig { residence, ..SupplyConfig::new(traffic.clone()) };
        let (sink, footprint) = measure(&config, None::<Looker<false>>)?;
        let (look, _) = measure(&config, Some(Looker::<false>::default()))?;
        let (chain, _) = measure(&config, Some(Looker::<true>::default()))?;
        let name = level.map_or("written at once", Resident::name);
        let footprint = footprint.map_or(String::new(), |Footprint { packets, bytes, pages, page_size, .. }| {
            format!("{packets:>10}{bytes:>10}{pages:>8} of {} KiB", page_size >> 10)
        });
        println!("{name:<15}{sink:>7.1}{look:>7.1}{chain:>7.1}{footprint}");
    }
    Ok(())
}
