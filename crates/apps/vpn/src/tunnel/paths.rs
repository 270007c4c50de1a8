//! The MTUs of the paths to other ends. Sessions between the same addresses share one.

use std::collections::HashMap;

use bellows_common::too_big::TooBig;
use bellows_wire::IpPair;

use super::Protocol;
use super::index::Index;
use super::session::Session;
use crate::path_mtu::{Bounds, PathMtu};

/// The paths of an app.
pub(super) struct Paths {
    places: HashMap<IpPair, usize>,
    paths: Vec<PathMtu>,
}

impl Paths {
    /// Those of sessions, which are told theirs.
    pub(super) fn new(sessions: &mut [Session], bounds: Bounds) -> Paths {
        let mut all = Paths { places: HashMap::new(), paths: Vec::new() };
        for session in &mut *sessions {
            let next = all.paths.len();
            session.path = *all.places.entry(session.addresses).or_insert(next);
            if session.path == next {
                all.paths.push(PathMtu::new(session.addresses, bounds));
            }
        }
        all.tell(sessions);
        all
    }

    /// Tells sessions the MTUs of their paths.
    fn tell(&self, sessions: &mut [Session]) {
        sessions.iter_mut().for_each(|session| session.set_mtu(self.paths[session.path].mtu()));
    }

    /// Takes over what a predecessor has learned of the same paths.
    pub(super) fn take_over(&mut self, old: &Paths, sessions: &mut [Session]) {
        for (ends, place) in &self.places {
            if let Some(&other) = old.places.get(ends) {
                self.paths[*place].take_over(&old.paths[other]);
            }
        }
        self.tell(sessions);
    }

    /// When the first path is forgotten.
    pub(super) fn expires(&self) -> Option<u64> {
        self.paths.iter().filter_map(PathMtu::expires).min()
    }

    /// Forgets what is too old.
    pub(super) fn forget_old(&mut self, sessions: &mut [Session], now: u64) {
        if self.paths.iter_mut().fold(false, |any, path| any | path.forget_old(now)) {
            self.tell(sessions);
        }
    }

    /// Learns from an error. Returns whether it is about a packet of a session, and can be true.
    #[cold]
    pub(super) fn learn<P: Protocol>(
        &mut self,
        sessions: &mut [Session],
        index: &Index,
        error: &TooBig<'_>,
        now: u64,
    ) -> bool {
        let Some(session) = sender::<P>(sessions, index, error) else { return false };
        let path = &mut self.paths[session.path];
        let before = path.mtu();
        let can_be_true = path.learn(error, now);
        if path.mtu() != before {
            self.tell(sessions);
        }
        can_be_true
    }
}

/// The session that has sent the packet of an error.
fn sender<'s, P: Protocol>(sessions: &'s [Session], index: &Index, error: &TooBig<'_>) -> Option<&'s Session> {
    let seen = P::read(error.payload).ok().filter(|_| error.protocol == P::PROTOCOL)?;
    let session = &sessions[index.find_sender(error.addresses, seen.id)?];
    let mut bytes = session.shape.send.iter().zip(error.payload).enumerate();
    bytes.all(|(at, (sent, quoted))| sent == quoted || session.shape.varies_at(at)).then_some(session)
}
