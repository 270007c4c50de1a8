//! Asking the kernel for interfaces, and changing them.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use bellows_netdev::netlink::NetlinkFamily;
use bellows_wire::MacAddr;

use super::Interface;
use super::parse::{
    HEADER_LEN, IFF_UP, IFLA_ADDRESS, IFLA_ALT_IFNAME, IFLA_IFNAME, IFLA_MTU, IFLA_NET_NS_FD, RTM_DELLINK, interface,
};
use crate::netlink::{
    ACKNOWLEDGE, CREATE, Connection, DUMP, EXCLUSIVE, NetlinkMessage, NetlinkRequest, RequestError, attributes, u32_at,
};

const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;

/// Settings of an interface by families (`linux/if_link.h`), and those of IPv4 by their numbers (`linux/ip.h`).
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_ARP_IGNORE: u16 = 19;

/// The length of `ifaddrmsg`.
const ADDRESS_HEADER_LEN: usize = 8;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// `ENODEV`, the answer for an interface that does not exist.
const NO_DEVICE: i32 = 19;
/// The longest name of an interface. Other names (`ip link property add altname`) may be longer.
const MAX_NAME_LEN: usize = 15;
/// The longest of those.
const MAX_OTHER_NAME_LEN: usize = 127;

/// A connection to the kernel's table of interfaces.
///
/// Errors that the kernel answers are [`RequestError`]s, with its explanation. Changes take `CAP_NET_ADMIN`.
#[derive(Debug)]
pub struct Interfaces {
    connection: Connection,
}

impl Interfaces {
    /// Opens a connection to the table of this thread's network namespace.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<Interfaces> {
        Ok(Interfaces { connection: Connection::open(NetlinkFamily::Route)? })
    }

    /// The interface with a name, or with this as one of its other names; `None` if there is none.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn by_name(&mut self, name: &str) -> io::Result<Option<Interface>> {
        if name.is_empty() || name.len() > MAX_OTHER_NAME_LEN || name.contains('\0') {
            return Ok(None);
        }
        let kind = if name.len() > MAX_NAME_LEN { IFLA_ALT_IFNAME } else { IFLA_IFNAME };
        let request = NetlinkRequest::new(RTM_GETLINK, ACKNOWLEDGE, &header(0, 0, 0)).text(kind, name);
        self.find(&|| format!("read interface {name}"), &request)
    }

    /// The interface with a number; `None` if there is none.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn by_index(&mut self, index: u32) -> io::Result<Option<Interface>> {
        if !is_valid(index) {
            return Ok(None);
        }
        let request = NetlinkRequest::new(RTM_GETLINK, ACKNOWLEDGE, &header(index, 0, 0));
        self.find(&|| format!("read interface {index}"), &request)
    }

    fn find(&mut self, action: &dyn Fn() -> String, request: &NetlinkRequest) -> io::Result<Option<Interface>> {
        let answer = self.connection.exchange(action, request, |found: &mut Option<Interface>, message| {
            *found = interface(message);
        });
        match answer {
            Err(error) if RequestError::of(&error).is_some_and(|error| error.errno() == NO_DEVICE) => Ok(None),
            answer => answer,
        }
    }

    /// All interfaces, in the order of their numbers.
    ///
    /// # Errors
    /// The kernel does not answer, or interfaces change faster than they are read.
    pub fn list(&mut self) -> io::Result<Vec<Interface>> {
        let request = NetlinkRequest::new(RTM_GETLINK, DUMP, &header(0, 0, 0));
        let action = || "list the interfaces".to_owned();
        let mut list = self.connection.exchange(action, &request, |list: &mut Vec<_>, message| {
            list.extend(interface(message));
        })?;
        list.sort_unstable_by_key(|interface| interface.index);
        Ok(list)
    }

    /// Sets an interface up or down.
    ///
    /// # Errors
    /// A [`RequestError`].
    pub fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        let flags = if up { IFF_UP } else { 0 };
        let request = NetlinkRequest::new(RTM_SETLINK, ACKNOWLEDGE, &header(index, flags, IFF_UP));
        self.change(index, &|| format!("set interface {index} {}", if up { "up" } else { "down" }), &request)
    }

    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// A [`RequestError`]: `InvalidInput` outside of [`Interface::min_mtu`] and [`Interface::max_mtu`].
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let request = set(index).attribute(IFLA_MTU, &mtu.to_ne_bytes());
        self.change(index, &|| format!("set the MTU of interface {index} to {mtu}"), &request)
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    /// A [`RequestError`], also for an interface that is up and whose driver changes the address only when it is down.
    pub fn set_mac(&mut self, index: u32, mac: MacAddr) -> io::Result<()> {
        let request = set(index).attribute(IFLA_ADDRESS, &mac.0);
        self.change(index, &|| format!("set the address of interface {index} to {mac}"), &request)
    }

    /// Gives an interface an IP address, and a route to the `prefix` bits that addresses of its network share.
    ///
    /// # Errors
    /// A [`RequestError`]: `AlreadyExists` if the interface has this address.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let action = || format!("give interface {index} the address {address}/{prefix}");
        let request = address_request(RTM_NEWADDR, ACKNOWLEDGE | CREATE | EXCLUSIVE, index, address, prefix);
        self.change(index, &action, &request)
    }

    /// Takes an IP address away from an interface.
    ///
    /// # Errors
    /// A [`RequestError`]: `AddrNotAvailable` if the interface does not have this address.
    pub fn remove_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let action = || format!("take the address {address}/{prefix} from interface {index}");
        let request = address_request(RTM_DELADDR, ACKNOWLEDGE, index, address, prefix);
        self.change(index, &action, &request)
    }

    /// All IPv4 addresses of the kernel, with the numbers of their interfaces.
    ///
    /// # Errors
    /// The kernel does not answer, or addresses change faster than they are read.
    pub fn ipv4_addresses(&mut self) -> io::Result<Vec<(u32, Ipv4Addr)>> {
        let request = NetlinkRequest::new(RTM_GETADDR, DUMP, &[AF_INET, 0, 0, 0, 0, 0, 0, 0]);
        self.connection.exchange(
            || "list the addresses".to_owned(),
            &request,
            |list: &mut Vec<_>, message| {
                list.extend(ipv4_address(message));
            },
        )
    }

    /// An interface's setting `arp_ignore` (`net.ipv4.conf.NAME.arp_ignore`); `None` if the kernel does not report it.
    ///
    /// # Errors
    /// A [`RequestError`].
    pub fn arp_ignore(&mut self, index: u32) -> io::Result<Option<u32>> {
        let request = NetlinkRequest::new(RTM_GETLINK, ACKNOWLEDGE, &header(index, 0, 0));
        let action = || format!("read the settings of interface {index}");
        self.connection.exchange(action, &request, |found: &mut Option<u32>, message| {
            *found = found.or_else(|| arp_ignore(message));
        })
    }

    /// Sets `arp_ignore` of an interface.
    ///
    /// # Errors
    /// A [`RequestError`].
    pub fn set_arp_ignore(&mut self, index: u32, value: u32) -> io::Result<()> {
        let nested = |kind: u16, content: &[u8]| {
            let len = (content.len() + 4) as u16;
            [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat()
        };
        let settings = nested(IFLA_INET_CONF, &nested(IPV4_DEVCONF_ARP_IGNORE, &value.to_ne_bytes()));
        let request = set(index).attribute(IFLA_AF_SPEC, &nested(u16::from(AF_INET), &settings));
        self.change(index, &|| format!("set arp_ignore of interface {index} to {value}"), &request)
    }

    /// Moves an interface to another network namespace, where it is down, has no IP address, and may have another
    /// number.
    ///
    /// # Errors
    /// A [`RequestError`]: `AlreadyExists` if the namespace has an interface with the same name.
    pub fn move_to_namespace(&mut self, index: u32, namespace: BorrowedFd<'_>) -> io::Result<()> {
        let request = set(index).attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        self.change(index, &|| format!("move interface {index} to another network namespace"), &request)
    }

    /// Deletes a virtual interface, and the peer of a veth with it.
    ///
    /// # Errors
    /// A [`RequestError`], also for an interface that cannot be deleted.
    pub fn delete(&mut self, index: u32) -> io::Result<()> {
        let request = NetlinkRequest::new(RTM_DELLINK, ACKNOWLEDGE, &header(index, 0, 0));
        self.change(index, &|| format!("delete interface {index}"), &request)
    }

    fn change(&mut self, index: u32, action: &dyn Fn() -> String, request: &NetlinkRequest) -> io::Result<()> {
        // The kernel would apply a change without a number to an interface of its choice.
        if !is_valid(index) {
            let message = format!("cannot {}: there is no such number", action());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.connection.exchange(action, request, |(): &mut (), _| {})
    }
}

/// The address in a message about one.
fn ipv4_address(message: &NetlinkMessage<'_>) -> Option<(u32, Ipv4Addr)> {
    let (header, rest) = message.body.split_at_checked(ADDRESS_HEADER_LEN)?;
    if message.kind != RTM_NEWADDR || header[0] != AF_INET {
        return None;
    }
    let find = |wanted| attributes(rest).find(|(kind, _)| *kind == wanted);
    // At a point-to-point link, `IFA_ADDRESS` is that of the other end.
    let (_, content) = find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS))?;
    let bytes: [u8; 4] = content.try_into().ok()?;
    Some((u32_at(header, 4)?, bytes.into()))
}

/// The setting in a message about an interface.
fn arp_ignore(message: &NetlinkMessage<'_>) -> Option<u32> {
    let find = |bytes, wanted| attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, content)| content);
    let families = find(message.body.get(HEADER_LEN..)?, IFLA_AF_SPEC)?;
    let settings = find(find(families, u16::from(AF_INET))?, IFLA_INET_CONF)?;
    // The kernel numbers settings from 1.
    u32_at(settings, size_of::<u32>() * usize::from(IPV4_DEVCONF_ARP_IGNORE - 1))
}

/// Whether an interface can have this number: the kernel's are positive and have 31 bits.
fn is_valid(index: u32) -> bool {
    index != 0 && !index.cast_signed().is_negative()
}

/// A request about an address: `struct ifaddrmsg` (family, prefix, flags, scope, interface) and the address.
fn address_request(kind: u16, flags: u16, index: u32, address: IpAddr, prefix: u8) -> NetlinkRequest {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let [a, b, c, d] = index.to_ne_bytes();
    let body = [family, prefix, 0, 0, a, b, c, d];
    NetlinkRequest::new(kind, flags, &body).attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes)
}

fn set(index: u32) -> NetlinkRequest {
    NetlinkRequest::new(RTM_SETLINK, ACKNOWLEDGE, &header(index, 0, 0))
}

/// `struct ifinfomsg`: the interface, its flags, and which of them are meant.
fn header(index: u32, flags: u32, change: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}
