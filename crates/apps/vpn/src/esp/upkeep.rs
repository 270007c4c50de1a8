//! What depends on time: lifetimes, keepalives, old keys, commands, and the state that is published.

use bellows_engine::Io;
use bellows_events::{KeyExpiring, PeerMoved};
use bellows_packet::Packet;

use super::changes;
use super::keyring::{Age, Running};
use super::plan::{Spec, Way};
use super::requests::{KeyChange, Orders, Replaced};
use super::{Esp, SECOND};

/// How often the app looks at these things, in nanoseconds.
const PERIOD: u64 = SECOND / 4;

/// The most events of soft limits and moved ports in a period: pairs that started together reach those of time together.
/// The others follow in the next periods.
const MAX_TOLD: usize = 16;

impl Esp {
    /// Does what is due.
    #[inline(never)]
    pub(super) fn keep_up(&mut self, io: &Io<Self>) {
        self.carry_out(io);
        self.keyring.remove_old(io.now());
        self.changes.note_gone(&self.keyring);
        let mut told = 0;
        for place in 0..self.pairs.len() {
            self.pairs[place].path.forget_old(io.now());
            io.count(Self::PORT_MOVED, std::mem::take(&mut self.pairs[place].moves));
            told += self.keep_limits(io, place, told < MAX_TOLD);
            if told < MAX_TOLD {
                told += self.tell_move(place, io.now());
            }
            self.note_expired(place);
            self.keep_alive(io, place);
        }
        self.changes.tell(&self.name);
        if io.now() >= self.next_publication {
            self.next_publication = io.now() + SECOND;
            self.publish(io.now());
        }
        io.wake_each(PERIOD);
    }

    /// Gives new keys that commands have brought to their pairs.
    fn carry_out(&mut self, io: &Io<Self>) {
        for Orders { by, changes } in self.shared.take_orders() {
            let before = changes::specs(&self.keyring);
            for KeyChange { pair, keys, answer } in changes {
                let count = u64::from(keys.inbound.is_some()) + u64::from(keys.outbound.is_some());
                let result = self.keyring.rekey(&pair, keys).map(|()| {
                    io.count(Self::REKEYED, count);
                    let old = before[&pair].map(|spec| spec.spi);
                    let configured = self.keyring.configured(&pair).expect("its keys were replaced");
                    Replaced { old, configured, grace_seconds: self.grace / SECOND }
                });
                // Whoever asked may have given up.
                drop(answer.send(result));
            }
            self.keyring.release_unused();
            self.changes.note(by, &before, &self.keyring);
            // Whoever has changed a key looks at it next.
            self.next_publication = 0;
        }
    }

    /// Looks at the limits of a pair. Returns how many soft limits it has reported.
    fn keep_limits(&mut self, io: &Io<Self>, place: usize, may_tell: bool) -> usize {
        let (pair, name) = (&mut self.pairs[place], &self.names[place]);
        let Some(Running { id, current, ages, .. }) = self.keyring.running.get_mut(name) else { return 0 };
        let associations = &mut self.keyring.associations;
        let reached = match may_tell {
            true => [
                associations.current_inbound(*id).and_then(|inbound| inbound.take_soft_limit()),
                associations.outbound(*id).and_then(|outbound| outbound.take_soft_limit()),
            ],
            false => [None; 2],
        };
        let mut told = 0;
        for way in [Way::Inbound, Way::Outbound] {
            let (spec, age) = (&current[way as usize], &mut ages[way as usize]);
            let is_late = age.passes(spec, io.now(), may_tell);
            pair.is_expired[way as usize] = age.is_expired;
            let limit = reached[way as usize].map(|limit| limit.to_string());
            if let Some(limit) = limit.or(is_late.then(|| "time".to_owned())) {
                told += 1;
                io.count(Self::SOFT_LIMITS, 1);
                let (app, direction, spi) = (&self.name, way.key(), spec.spi);
                let event = KeyExpiring { app, pair: name, direction, spi: spi.get().into(), limit: &limit };
                event.log(format_args!(
                    "{app}: `{direction}` of the pair `{name}` (SPI {spi}) has reached its soft limit of {limit}; replace \
                     the keys"
                ));
            }
        }
        told
    }

    /// Tells that the port of a pair's other end has moved. Returns how many events that was.
    fn tell_move(&mut self, place: usize, now: u64) -> usize {
        let Some([old, new]) = self.pairs[place].take_move(now) else { return 0 };
        let (app, pair) = (&self.name, &self.names[place]);
        PeerMoved { app, pair, old_udp_port: old.into(), udp_port: new.into() }.log(format_args!(
            "{app}: the other end of the pair `{pair}` sends from UDP port {new} after {old}, and packets go there"
        ));
        1
    }

    /// Notes the keys of a pair that are beyond a hard limit.
    fn note_expired(&mut self, place: usize) {
        let (pair, name) = (&self.pairs[place], &self.names[place]);
        let Some(running) = self.keyring.running.get(name) else { return };
        for way in [Way::Inbound, Way::Outbound] {
            let stopped = pair.stopped[way as usize].take();
            if pair.is_expired[way as usize] {
                self.changes.note_expired(name, way, running, "time");
            } else if let Some((spi, limit)) = stopped
                && spi == running.current[way as usize].spi
            {
                self.changes.note_expired(name, way, running, limit);
            }
        }
    }

    /// Sends a keepalive if one is due.
    fn keep_alive(&mut self, io: &Io<Self>, place: usize) {
        let pair = &mut self.pairs[place];
        let interval = pair.udp.map_or(0, |udp| u64::from(udp.keepalive_seconds) * SECOND);
        let Some(output) = self.wires.transports[usize::from(pair.is_v6())] else { return };
        if interval == 0 || io.now() < pair.sent_at.saturating_add(interval) {
            return;
        }
        pair.sent_at = io.now();
        let Some(packet) = Packet::from_bytes(&pair.keepalive()) else { return io.count(Self::UNMADE, 1) };
        io.count(Self::KEEPALIVES_SENT, 1);
        io.output(output.into()).push(packet);
    }
}

impl Age {
    /// Notes the time. Returns whether the soft limit is reached: once, when it may be reported.
    fn passes(&mut self, spec: &Spec, now: u64, may_tell: bool) -> bool {
        let age = self.pass(now);
        let is_over = |seconds: Option<u32>| seconds.is_some_and(|seconds| age >= u64::from(seconds) * SECOND);
        self.is_expired = is_over(spec.hard.seconds);
        may_tell && is_over(spec.soft.seconds) && !std::mem::replace(&mut self.is_told, true)
    }
}
