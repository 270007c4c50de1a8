//! Ethernet hardware addresses.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address, its bytes in the order of transmission.
///
/// ```
/// # use bellows_wire::MacAddr;
/// let address: MacAddr = "02:00:5e:10:00:0A".parse()?;
/// assert_eq!(address.to_string(), "02:00:5e:10:00:0a");
/// # Ok::<(), bellows_wire::MacAddrError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address of all stations, `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Whether it can be the address of a station: neither that of a group (IEEE 802, section 8.2) nor all zeros.
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self != MacAddr::default()
    }
}

crate::view::impl_field! { MacAddr: 6, MacAddr, |address: MacAddr| address.0; }

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Parses six bytes of two hexadecimal digits each, separated by colons or by hyphens.
    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let error = || MacAddrError { text: text.to_owned() };
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut parts = text.split(separator);
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let digits = parts.next().ok_or_else(error)?;
            if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(error());
            }
            *byte = u8::from_str_radix(digits, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() { Err(error()) } else { Ok(MacAddr(bytes)) }
    }
}

/// The text is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacAddrError {
    /// The text.
    pub text: String,
}

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a MAC address: write six bytes of two hexadecimal digits with colons between them, such as \
             02:00:00:00:00:01",
            self.text
        )
    }
}

impl std::error::Error for MacAddrError {}
