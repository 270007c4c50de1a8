//! The connections of a server, and which of them end to make room for others.
//!
//! A client is a stranger until it has sent a whole request with the token, or just a whole request if there is no token.
//! Strangers and those that are known have places of their own, so that strangers cannot keep known clients away. When
//! the places are taken:
//!
//! - a new connection takes the place of a stranger: the oldest one of the peer that has most of them;
//! - a stranger that becomes known takes the place of a known client: of the one that has been idle for the longest time,
//!   else of the oldest one of a peer that has more than its share, else of the one that has been taking its answer for
//!   the longest time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::limits::Limits;

/// Whose connection it is, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientOrigin {
    /// A user of this machine.
    User(u32),
    /// A host, or for IPv6 a network of hosts: one host may have all addresses of a network.
    Host(IpAddr),
    Unknown,
}

impl ClientOrigin {
    pub(crate) fn at(address: IpAddr) -> ClientOrigin {
        ClientOrigin::Host(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

/// What a connection is seen to do with its answers.
#[derive(Debug, Default)]
pub(crate) struct AnswerProgress {
    /// Whether something has been written.
    pub(crate) has_written: Cell<bool>,
    /// Whether a write waits for the client.
    pub(crate) is_waiting: Cell<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stranger,
    /// A request of it is being answered.
    Busy,
    /// It has been answered: at that time, as a number.
    Answered(u64),
}

struct Member {
    peer: ClientOrigin,
    standing: Standing,
    progress: Rc<AnswerProgress>,
    /// Dropped to end the connection.
    _end: oneshot::Sender<()>,
}

/// The connections.
pub(crate) struct Crowd {
    limits: Limits,
    /// By age.
    members: RefCell<BTreeMap<u64, Member>>,
    /// The number of connections and answers so far.
    count: Cell<u64>,
}

/// The place of a connection. Dropping it makes room.
pub(crate) struct ConnectionPlace {
    crowd: Rc<Crowd>,
    number: u64,
}

impl Crowd {
    pub(crate) fn new(limits: Limits) -> Rc<Crowd> {
        Rc::new(Crowd { limits, members: RefCell::default(), count: Cell::new(0) })
    }

    /// A place for a new connection, and what is ready when it is to end.
    pub(crate) fn enter(
        self: &Rc<Crowd>,
        peer: ClientOrigin,
        progress: Rc<AnswerProgress>,
    ) -> (ConnectionPlace, oneshot::Receiver<()>) {
        let is_stranger = |member: &Member| member.standing == Standing::Stranger;
        let strangers = self.members.borrow().values().filter(|member| is_stranger(member)).count();
        if strangers >= self.limits.strangers.max(1) {
            self.end_stranger();
        }
        let (end, ended) = oneshot::channel();
        let number = self.next();
        let member = Member { peer, standing: Standing::Stranger, progress, _end: end };
        self.members.borrow_mut().insert(number, member);
        (ConnectionPlace { crowd: Rc::clone(self), number }, ended)
    }

    /// Ends the connection of a stranger, if there is one.
    pub(crate) fn end_stranger(&self) {
        let mut members = self.members.borrow_mut();
        let is_stranger = |member: &Member| member.standing == Standing::Stranger;
        if let Some((oldest, _)) = greediest(&members, is_stranger) {
            members.remove(&oldest);
        }
    }

    fn next(&self) -> u64 {
        self.count.update(|count| count + 1);
        self.count.get()
    }
}

impl ConnectionPlace {
    /// Takes a place among the known clients for a request. False if there is none.
    pub(crate) fn know(&self) -> bool {
        let mut members = self.crowd.members.borrow_mut();
        let Some(own) = members.get_mut(&self.number) else { return false };
        if own.standing != Standing::Stranger {
            own.standing = Standing::Busy;
            return true;
        }
        let peer = own.peer;
        let is_known = |member: &Member| member.standing != Standing::Stranger;
        if members.values().filter(|member| is_known(member)).count() >= self.crowd.limits.connections {
            let share = members.values().filter(|member| is_known(member) && member.peer == peer).count();
            let greedy = || greediest(&members, is_known).filter(|(_, count)| *count > share + 1);
            let victim = longest_answered(&members, false)
                .or_else(|| greedy().map(|(number, _)| number))
                .or_else(|| longest_answered(&members, true));
            let Some(victim) = victim else { return false };
            members.remove(&victim);
        }
        if let Some(own) = members.get_mut(&self.number) {
            own.standing = Standing::Busy;
        }
        true
    }

    /// The request is answered, as far as it is not up to the client.
    pub(crate) fn answered(&self) {
        let now = self.crowd.next();
        if let Some(own) = self.crowd.members.borrow_mut().get_mut(&self.number)
            && own.standing == Standing::Busy
        {
            own.standing = Standing::Answered(now);
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.crowd.members.borrow_mut().remove(&self.number);
    }
}

/// Of such members, the oldest one of the peer that has most of them, and how many these are.
fn greediest(members: &BTreeMap<u64, Member>, is_such: impl Fn(&Member) -> bool) -> Option<(u64, usize)> {
    let mut of_peers: HashMap<ClientOrigin, (u64, usize)> = HashMap::new();
    for (number, member) in members.iter().filter(|(_, member)| is_such(member)) {
        of_peers.entry(member.peer).or_insert((*number, 0)).1 += 1;
    }
    of_peers.into_values().max_by_key(|(oldest, count)| (*count, u64::MAX - oldest))
}

/// The known client that was answered the longest ago, of those that wait for the rest of their answer or of others.
fn longest_answered(members: &BTreeMap<u64, Member>, is_waiting: bool) -> Option<u64> {
    let answered = members.iter().filter_map(|(number, member)| match member.standing {
        Standing::Answered(at) if member.progress.is_waiting.get() == is_waiting => Some((at, *number)),
        _ => None,
    });
    answered.min().map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Guest(ConnectionPlace, oneshot::Receiver<()>, Rc<AnswerProgress>);

    impl Guest {
        fn is_there(&mut self) -> bool {
            self.1.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        }
    }

    fn crowd(connections: usize, strangers: usize) -> Rc<Crowd> {
        Crowd::new(Limits { connections, strangers, ..Limits::default() })
    }

    fn enter(crowd: &Rc<Crowd>, peer: ClientOrigin) -> Guest {
        let progress = Rc::new(AnswerProgress::default());
        let (place, ended) = crowd.enter(peer, Rc::clone(&progress));
        Guest(place, ended, progress)
    }

    fn there(guests: &mut [Guest]) -> Vec<bool> {
        guests.iter_mut().map(Guest::is_there).collect()
    }

    const ONE: ClientOrigin = ClientOrigin::User(1);
    const OTHER: ClientOrigin = ClientOrigin::User(2);

    #[test]
    fn a_stranger_too_many_takes_the_place_of_the_oldest_of_the_greediest_peer() {
        let crowd = crowd(1, 3);
        let mut guests: Vec<Guest> = [OTHER, ONE, ONE].map(|peer| enter(&crowd, peer)).into();
        guests.push(enter(&crowd, ONE));
        assert_eq!(there(&mut guests), [true, false, true, true]);
        for _ in 0..10 {
            guests.push(enter(&crowd, ONE));
        }
        assert!(guests[0].is_there() && there(&mut guests).iter().filter(|is_there| **is_there).count() == 3);
        // One that has become known makes room, and is not ended by strangers.
        assert!(guests[0].0.know());
        guests.push(enter(&crowd, OTHER));
        assert!(guests[0].is_there() && guests.last_mut().unwrap().is_there());
    }

    #[test]
    fn known_clients_make_room_if_they_are_idle_greedy_or_slow() {
        let crowd = crowd(2, 8);
        let mut guests: Vec<Guest> = [ONE, ONE, ONE, OTHER].map(|peer| enter(&crowd, peer)).into();
        assert!(guests[0].0.know() && guests[1].0.know());
        // Both are at work, and no peer has more than its share.
        assert!(!guests[2].0.know());
        // A peer without a place gets one.
        assert!(guests[3].0.know());
        assert_eq!(there(&mut guests), [false, true, true, true]);
        assert!(!guests[0].0.know(), "its connection ends");
        // One that takes its answer slowly goes after one that is idle.
        guests[1].0.answered();
        guests[1].2.is_waiting.set(true);
        guests[3].0.answered();
        assert!(guests[2].0.know());
        assert_eq!(there(&mut guests), [false, true, true, false]);
        guests.push(enter(&crowd, ONE));
        assert!(guests[4].0.know());
        assert_eq!(there(&mut guests), [false, false, true, false, true]);
        // Who leaves makes room.
        drop(guests.remove(2));
        guests.push(enter(&crowd, ONE));
        assert!(guests[4].0.know() && guests[3].is_there());
    }

    #[test]
    fn hosts_of_one_network_are_one_peer() {
        let peer = |address: &str| ClientOrigin::at(address.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::2:0:0:3"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
    }
}
