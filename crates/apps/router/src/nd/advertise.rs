//! When a router advertises itself (RFC 4861, section 6.2).

use bellows_engine::Io;

use super::Nd;
use crate::ipv6_link::Advertised;
use crate::vrf::RoutingDomain;

const SECOND: u64 = 1_000_000_000;

/// RFC 4861, section 10: MAX_INITIAL_RTR_ADVERTISEMENTS, MAX_INITIAL_RTR_ADVERT_INTERVAL, MIN_DELAY_BETWEEN_RAS,
/// MAX_RA_DELAY_TIME.
const INITIAL: u8 = 3;
const MAX_INITIAL_INTERVAL: u64 = 16 * SECOND;
const MIN_DELAY: u64 = 3 * SECOND;
const MAX_ANSWER_DELAY: u64 = SECOND / 2;

/// The time after which an interface whose link-local address must not be used yet is looked at again.
const NOT_READY: u64 = SECOND / 4;

/// When the interfaces advertise the router.
#[derive(Debug, Default)]
pub(super) struct Schedules(Vec<Schedule>);

#[derive(Debug)]
struct Schedule {
    number: u16,
    advertised: Advertised,
    /// When the next one is sent.
    at: u64,
    /// When the last one was sent.
    last: Option<u64>,
    /// Advertisements that are still to come at short intervals.
    initial: u8,
    /// Whether the next one is the last.
    ceases: bool,
}

impl Schedules {
    /// Begins to advertise.
    pub(super) fn begin(&mut self, domain: &RoutingDomain, now: u64, random: &mut fastrand::Rng) {
        for number in (1..).take(domain.tables().interfaces().len()) {
            if let Some(advertised) = domain.advertised(number) {
                let at = now + random.u64(..MAX_ANSWER_DELAY);
                let advertised = advertised.clone();
                self.0.push(Schedule { number, advertised, at, last: None, initial: INITIAL, ceases: false });
            }
        }
    }

    /// After a reload, tells hosts on links where the router does not advertise itself any more.
    pub(super) fn succeed(&mut self, old: &Schedules, before: &RoutingDomain, domain: &RoutingDomain) {
        for schedule in old.0.iter().filter(|schedule| schedule.last.is_some()) {
            let Some(interface) = before.tables().interface(schedule.number) else { continue };
            let Some(number) = domain.tables().number(&interface.name) else { continue };
            if domain.advertised(number).is_none() {
                let advertised = Advertised { lifetime: 0, ..schedule.advertised.clone() };
                self.0.push(Schedule { number, advertised, at: 0, last: None, initial: 0, ceases: true });
            }
        }
    }

    /// As if all interfaces had advertised the router.
    #[cfg(test)]
    pub(super) fn was_sent(&mut self, at: u64) {
        self.0.iter_mut().for_each(|schedule| schedule.last = Some(at));
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.0.iter().map(|schedule| schedule.at).min()
    }

    /// A host on the link of an interface wants an advertisement. All of them get it.
    pub(super) fn solicited(&mut self, number: u16, now: u64, random: &mut fastrand::Rng) {
        for schedule in self.0.iter_mut().filter(|schedule| schedule.number == number) {
            let earliest = schedule.last.map_or(now, |last| now.max(last + MIN_DELAY));
            schedule.at = schedule.at.min(earliest + random.u64(..MAX_ANSWER_DELAY));
        }
    }
}

impl Nd {
    /// Sends the router advertisements that are due.
    pub(super) fn advertise_routers(&mut self, io: &Io<Self>) {
        let mut schedules = std::mem::take(&mut self.schedules);
        for schedule in schedules.0.iter_mut().filter(|schedule| schedule.at <= io.now()) {
            if !self.send_router_advertisement(io, schedule.number, &schedule.advertised, schedule.advertised.lifetime)
            {
                schedule.at = io.now() + NOT_READY;
                continue;
            }
            let (longest, shortest) = schedule.advertised.interval;
            let mut pause = self.random.u64(shortest..=longest);
            schedule.initial = schedule.initial.saturating_sub(1);
            if schedule.initial > 0 {
                pause = pause.min(MAX_INITIAL_INTERVAL);
            }
            (schedule.last, schedule.at) = (Some(io.now()), io.now() + pause);
            self.next_vectors.make_room(io, 1);
        }
        schedules.0.retain(|schedule| !(schedule.ceases && schedule.last.is_some()));
        self.schedules = schedules;
    }

    /// Tells hosts that the router is a default router no more (RFC 4861, section 6.2.5).
    pub(super) fn cease_to_advertise(&mut self, io: &Io<Self>) {
        let schedules = std::mem::take(&mut self.schedules);
        for schedule in schedules.0.iter().filter(|schedule| schedule.last.is_some() || schedule.ceases) {
            self.send_router_advertisement(io, schedule.number, &schedule.advertised, 0);
            self.next_vectors.make_room(io, 1);
        }
        self.next_vectors.send(io);
    }
}
