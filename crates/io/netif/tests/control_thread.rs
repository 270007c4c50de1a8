//! The control thread of a port keeps no free buffers.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use bellows_netif::status::PortStatus;
use bellows_netif::unix::{UnixConfig, UnixMode, UnixQueue, UnixSource};
use bellows_netif::{Keeper, OpenError, PortSource, Start};
use bellows_packet::{Packet, pool};
use bellows_sys::access::FileAccess;
use bellows_testkit::{eventually, scratch};

/// The queue of an AF_XDP socket takes and frees buffers where it is opened and closed.
struct UsesBuffers(UnixSource);

impl PortSource for UsesBuffers {
    type Queue = UnixQueue;

    fn open(&mut self, status: &PortStatus) -> Result<Vec<UnixQueue>, OpenError> {
        assert_eq!(Packet::allocate_burst(10).count(), 10);
        self.0.open(status)
    }

    fn check(&mut self, status: &PortStatus) -> Option<String> {
        self.0.check(status)
    }
}

#[test]
fn buffers_that_the_control_thread_has_used_are_free_for_others() {
    const PACKETS: usize = 64;
    pool::init(pool::Config { packets: PACKETS, ..pool::Config::default() }).unwrap();
    let folder = scratch();
    let _peer = UnixDatagram::bind(folder.path().join("peer")).unwrap();
    let mode = UnixMode::Dgram(folder.path().join("peer"), FileAccess::default());
    let source = UsesBuffers(UnixSource::new(UnixConfig { socket: folder.path().join("own"), mode }, false));
    let status = Arc::new(PortStatus::new("test".to_owned()));
    let (_keeper, _queues) = Keeper::start("test", source, Start::default(), status).unwrap();
    eventually("all buffers are free", || Packet::allocate_burst(PACKETS).count() == PACKETS);
}
