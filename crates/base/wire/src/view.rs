//! The shared parts of all views: their error, reading and writing of fields, and the macro that generates the
//! accessors.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The reason why bytes are not the expected header, or why a header does not fit into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The header, or the length that it declares, extends past the end of the bytes.
    Truncated {
        /// The usual name of the protocol.
        header: &'static str,
        /// The needed bytes, from the start of the header.
        need: usize,
        /// The available bytes.
        have: usize,
    },
    /// A field has an invalid value.
    Malformed {
        /// The usual name of the protocol.
        header: &'static str,
        /// The field's name in its RFC.
        field: &'static str,
        /// The value, in the field's own unit.
        value: usize,
        /// The requirement.
        must: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated { header, need, have } => {
                write!(f, "{header}: {need} bytes are needed, {have} are there")
            }
            Error::Malformed { header, field, value, must } => {
                write!(f, "{header}: {field} is {value}, it must be {must}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Rejects bytes that end before `need`.
pub(crate) fn need(header: &'static str, bytes: &[u8], need: usize) -> Result<(), Error> {
    if bytes.len() < need { Err(Error::Truncated { header, need, have: bytes.len() }) } else { Ok(()) }
}

/// Rejects a field's value unless `ok`.
pub(crate) fn expect(
    ok: bool,
    header: &'static str,
    field: &'static str,
    value: impl Into<usize>,
    must: &'static str,
) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(Error::Malformed { header, field, value: value.into(), must }) }
}

/// A length for a 16-bit field.
pub(crate) fn len_u16(header: &'static str, field: &'static str, len: usize) -> Result<u16, Error> {
    u16::try_from(len).map_err(|_| Error::Malformed { header, field, value: len, must: "65535 bytes at most" })
}

/// A value as encoded in a header, in network byte order; `bytes` has exactly the value's width.
pub(crate) trait Field {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
}

/// Implements [`Field`] for types that convert from and to an array of bytes.
macro_rules! impl_field {
    ($($type:ty: $width:literal, $from:expr, $to:expr;)*) => {$(
        impl $crate::view::Field for $type {
            fn read(bytes: &[u8]) -> Self {
                let mut array = [0; $width];
                array.copy_from_slice(bytes);
                $from(array)
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&$to(self));
            }
        }
    )*};
}
pub(crate) use impl_field;

impl_field! {
    u8: 1, u8::from_be_bytes, u8::to_be_bytes;
    u16: 2, u16::from_be_bytes, u16::to_be_bytes;
    u32: 4, u32::from_be_bytes, u32::to_be_bytes;
    Ipv4Addr: 4, Ipv4Addr::from, |address: Ipv4Addr| address.octets();
    Ipv6Addr: 16, Ipv6Addr::from, |address: Ipv6Addr| address.octets();
}

/// Defines a view: the struct; a module with the fields' ranges; `new_checked`, which checks that the header's bytes
/// are there and then calls the function after `checked by`; a getter and a setter for each plain field; and the
/// payload, if a function gives its range.
macro_rules! view {
    (
        $(#[$doc:meta])*
        $name:ident: $header:literal, $len:literal bytes, ranges in $ranges:ident
        $(, checked by $check:path)? $(, payload at $payload:path)? {
            $($(#[$field_doc:meta])* $get:ident, $set:ident: $type:ty = $constant:ident $range:expr;)*
        }
    ) => {
        #[doc = concat!("Byte ranges of the fields of [`", stringify!($name), "`](super::", stringify!($name), ").")]
        pub mod $ranges {
            use std::ops::Range;
            /// The length of the header without options, in bytes.
            pub const HEADER_LEN: usize = $len;
            $($(#[$field_doc])* pub const $constant: Range<usize> = $range;)*
        }

        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T>(T);

        impl<T: AsRef<[u8]>> $name<T> {
            /// A view of bytes that start with this header and may continue after its payload.
            ///
            /// # Errors
            /// If the header is truncated, or a length or fixed field in it is invalid.
            pub fn new_checked(bytes: T) -> Result<Self, $crate::Error> {
                $crate::view::need($header, bytes.as_ref(), $len)?;
                $($check(bytes.as_ref())?;)?
                Ok(Self(bytes))
            }

            /// Returns the bytes.
            pub fn into_inner(self) -> T {
                self.0
            }

            fn bytes(&self) -> &[u8] {
                self.0.as_ref()
            }

            $(
                $(#[$field_doc])*
                pub fn $get(&self) -> $type {
                    <$type as $crate::view::Field>::read(&self.bytes()[$ranges::$constant])
                }
            )*

            $(
                /// The payload.
                pub fn payload(&self) -> &[u8] {
                    let range = $payload(self.bytes());
                    self.bytes().get(range).unwrap_or_default()
                }
            )?
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $name<T> {
            $(
                #[doc = concat!("Writes the field that [`Self::", stringify!($get), "`] reads.")]
                pub fn $set(&mut self, value: $type) {
                    $crate::view::Field::write(value, &mut self.0.as_mut()[$ranges::$constant]);
                }
            )*

            $(
                /// The payload, mutable.
                pub fn payload_mut(&mut self) -> &mut [u8] {
                    let range = $payload(self.bytes());
                    self.0.as_mut().get_mut(range).unwrap_or_default()
                }
            )?
        }
    };
}
pub(crate) use view;
