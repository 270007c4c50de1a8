//! What ESP costs beside its cipher alone, called in its library: nanoseconds a packet, sealed and opened, over the same
//! buffers in turns.
//!
//! `cargo run --release -p bellows-esp --example ciphers` takes a few seconds. The encrypted part has the length in the
//! table, with ESP's padding and its two fields.

mod turns;

use bellows_esp::{Algorithm, HEADER, ICV, Inbound, InboundSettings, Keys, Outbound, OutboundSettings, Spi};
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use turns::{Contender, Cost, FRONT, HOT, compare};

const LENGTHS: [usize; 4] = [64, 128, 512, 1_500];

/// Packets that no cache of a core holds.
const COLD: usize = 8_192;

/// Padding length and next header, in the encrypted part.
const TAIL: usize = 2;

/// The cipher alone, with the additional data and the nonces of ESP.
struct Bare {
    key: LessSafeKey,
    number: u64,
}

impl Bare {
    fn new(algorithm: Algorithm) -> Bare {
        let library = match algorithm {
            Algorithm::Aes128Gcm => &aead::AES_128_GCM,
            Algorithm::Aes256Gcm => &aead::AES_256_GCM,
            Algorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(library, &vec![0x5a; algorithm.key_length()]).expect("a key of this length");
        Bare { key: LessSafeKey::new(key), number: 1 }
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0x5a; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

impl Contender for Bare {
    fn seal(&mut self, packets: &mut [Vec<u8>], length: usize) {
        for (number, packet) in (self.number..).zip(packets) {
            let (data, rest) = packet[FRONT..].split_at_mut(length);
            let icv: &mut [u8; ICV] = rest.first_chunk_mut().expect("room for the ICV");
            let tag = self.key.seal_in_place_separate_tag(nonce(number), Aad::from([7; 12]), data);
            icv.copy_from_slice(tag.expect("a short packet").as_ref());
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], length: usize) {
        for (number, packet) in (self.number..).zip(&mut *packets) {
            let (data, rest) = packet[FRONT..].split_at_mut(length);
            let icv: &[u8; ICV] = rest.first_chunk().expect("room for the ICV");
            let tag = (*icv).into();
            let opened = self.key.open_in_place_separate_tag(nonce(number), Aad::from([7; 12]), tag, data, 0..);
            opened.expect("an authentic packet");
        }
        self.number += packets.len() as u64;
    }
}

/// ESP with extended sequence numbers.
struct Esp {
    outbound: Outbound,
    inbound: Inbound,
}

impl Contender for Esp {
    fn seal(&mut self, packets: &mut [Vec<u8>], length: usize) {
        for packet in packets {
            self.outbound.seal(packet, HEADER..HEADER + length - TAIL, 4).expect("room in the packet");
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], length: usize) {
        for packet in packets {
            self.inbound.open(&mut packet[..HEADER + length + ICV]).expect("an authentic packet");
        }
    }
}

fn contenders(algorithm: Algorithm) -> Vec<Box<dyn Contender>> {
    let keys = Keys::from_bytes(algorithm, &vec![0x5a; algorithm.material_length()]).expect("keys of this length");
    let spi = Spi::new(0x1234_5678).expect("an SPI that is not reserved");
    let outbound = Outbound::new(spi, &keys, OutboundSettings::default());
    let inbound = Inbound::new(spi, &keys, InboundSettings::default()).expect("good settings");
    vec![Box::new(Bare::new(algorithm)), Box::new(Esp { outbound, inbound })]
}

fn print(name: &str, count: usize, length: usize, costs: &[Cost]) {
    let [bare, esp] = costs else { return };
    let ratios = format!("{:.2} / {:.2}", esp.seal / bare.seal, esp.open / bare.open);
    let [bare, esp] = [bare, esp].map(|cost| format!("{:.0} / {:.0}", cost.seal, cost.open));
    println!("| {name} | {count} | {length} | {bare} | {esp} | {ratios} |");
}

fn main() {
    println!("| cipher | packets | bytes | alone: seal / open | ESP | ratio |");
    println!("|---|---|---|---|---|---|");
    for algorithm in Algorithm::ALL {
        let mut contenders = contenders(algorithm);
        for length in LENGTHS {
            print(algorithm.name(), HOT, length, &compare(&mut contenders, HOT, length));
        }
        if algorithm == Algorithm::Aes128Gcm {
            for length in [128, 1_500] {
                print(algorithm.name(), COLD, length, &compare(&mut contenders, COLD, length));
            }
        }
    }
}
