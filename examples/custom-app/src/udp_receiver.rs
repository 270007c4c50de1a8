//! `udp-receiver`: packets from a socket.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, AppError, Io, Port, Ports, Status, Watched};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Receives UDP datagrams: the payload of each becomes a packet.
///
/// A datagram is truncated to 2,048 bytes. The app listens until the run is stopped.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address and port to listen on.
    pub listen: SocketAddr,
}

impl Default for Config {
    fn default() -> Config {
        Config { listen: (Ipv4Addr::LOCALHOST, 4789).into() }
    }
}

/// Receives UDP datagrams.
pub struct UdpReceiver {
    listen: SocketAddr,
    socket: Option<Arc<Socket>>,
}

/// A non-blocking socket.
struct Socket(UdpSocket);

impl Watched for Socket {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.as_fd()]
    }
}

impl Status for Socket {
    fn status(&self) -> Value {
        json!({ "listening_on": self.0.local_addr().ok() })
    }
}

/// The maximum length of a packet; longer datagrams are truncated.
const MAX_LENGTH: usize = 2048;

impl App for UdpReceiver {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the datagrams")]);

    fn slots(&self) -> usize {
        1
    }

    fn start(&mut self, old: Option<&mut UdpReceiver>) -> Result<(), AppError> {
        let inherited = old.filter(|old| old.listen == self.listen).and_then(|old| old.socket.clone());
        self.socket = Some(match inherited {
            Some(socket) => socket,
            None => Arc::new(Socket::open(self.listen)?),
        });
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        self.socket.clone().map(|socket| socket as Arc<dyn Status>)
    }

    fn tick(&mut self, io: &Io<Self>) {
        if let Some(socket) = &self.socket {
            io.slot(0).watch(Arc::clone(socket), 0, 0);
        }
    }

    fn pull(&mut self, io: &Io<Self>) {
        let Some(socket) = &self.socket else { return };
        let mut output = io.output(0);
        for mut packet in Packet::allocate_burst(io.burst().min(output.room())) {
            packet.extend(MAX_LENGTH);
            let Ok(length) = socket.0.recv(packet.bytes_mut()) else { break };
            packet.truncate(length);
            output.push(packet);
        }
    }
}

impl Socket {
    fn open(address: SocketAddr) -> Result<Socket, AppError> {
        let open = || {
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(Socket(socket))
        };
        open().map_err(|error: std::io::Error| {
            format!("cannot listen on {address}: {error}; set `listen` to another address").into()
        })
    }
}

impl Configure for UdpReceiver {
    const NAME: &'static str = "udp-receiver";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<UdpReceiver, SettingError> {
        Ok(UdpReceiver { listen: config.listen, socket: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    use bellows_engine::{Engine, Network, Settings};
    use bellows_rig::Rig;

    /// A receiver at a loopback address of this test process alone, and a socket that sends to it.
    fn receiver(port: u16) -> (UdpReceiver, UdpSocket) {
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let listen = (Ipv4Addr::new(127, a, b, c), port).into();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(listen).unwrap();
        (UdpReceiver::configure(Config { listen }, &Context::default()).unwrap(), sender)
    }

    #[test]
    fn each_datagram_becomes_a_packet() {
        let (receiver, sender) = receiver(4001);
        let mut rig = Rig::new(receiver, &[], &["output"]);
        for datagram in [&b"one"[..], b"", &[7; MAX_LENGTH + 1]] {
            sender.send(datagram).unwrap();
        }
        rig.settle();
        let status = rig.status().unwrap();
        assert!(status["listening_on"].as_str().unwrap().ends_with(":4001"), "{status}");
        assert_eq!(rig.received("output"), [b"one".to_vec(), vec![], vec![7; MAX_LENGTH]]);
    }

    struct Sink;

    impl App for Sink {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

        fn push(&mut self, io: &Io<Self>) {
            io.input(0).discard();
        }
    }

    #[test]
    fn a_datagram_wakes_a_sleeping_engine() {
        let (receiver, sender) = receiver(4002);
        let network = Network::new().app("receiver", receiver).app("sink", Sink);
        let network = network.link("receiver.output -> sink.input").unwrap();
        let mut engine = Engine::new(network, Settings::default(), None).unwrap();
        let control = engine.control();
        thread::scope(|scope| {
            scope.spawn(|| engine.run());
            thread::sleep(Duration::from_millis(50));
            assert_eq!(control.snapshot().engine("sleeps"), 0, "it is still in its first sleep, or does not sleep");
            sender.send(b"wake up").unwrap();
            let arrived = (0..5_000).any(|_| {
                thread::sleep(Duration::from_millis(1));
                control.snapshot().links[0].packets == 1
            });
            control.stop();
            assert!(arrived);
        });
        assert!(engine.snapshot().engine("sleeps") > 0);
    }

    #[test]
    fn only_one_app_can_listen_on_an_address() {
        let (mut receiver, _) = receiver(4003);
        receiver.start(None).unwrap();
        let (mut other, _) = self::receiver(4003);
        assert!(other.start(None).unwrap_err().to_string().contains("set `listen`"));
        other.start(Some(&mut receiver)).unwrap();
    }
}
