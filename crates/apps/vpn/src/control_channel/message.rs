//! Messages of a control channel: a sequence of fields, each with a type and a length of one byte.

/// Types of fields.
mod kind {
    pub(super) const HEARTBEAT: u8 = 1;
    pub(super) const MTU: u8 = 2;
    pub(super) const DESCRIPTION: u8 = 3;
    pub(super) const VC_ID: u8 = 4;
}

/// The longest description, in bytes: its length is a number of one byte.
pub const MAX_DESCRIPTION: usize = u8::MAX as usize;

/// What an end of a pseudowire tells the other end.
///
/// ```
/// use bellows_vpn::control_channel::Message;
///
/// let message = Message { heartbeat: 5, mtu: Some(1500), description: None, vc_id: Some(7) };
/// let bytes = [1, 2, 0, 5, 2, 2, 0x05, 0xdc, 4, 4, 0, 0, 0, 7];
/// assert_eq!(message.to_bytes(), bytes);
/// assert_eq!(Message::read(&bytes).unwrap().0, message);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The interval, in seconds, within which at least one message is sent. Never 0 in a message that was read.
    pub heartbeat: u16,
    /// The MTU of the circuit, in bytes.
    pub mtu: Option<u16>,
    /// The interface or the pseudowire in the words of its operator: at most [`MAX_DESCRIPTION`] bytes, in UTF-8.
    pub description: Option<String>,
    /// The number of the pseudowire.
    pub vc_id: Option<u32>,
}

/// Bytes are no message: a field is not whole, has the wrong length or comes twice, or there is no heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Message {
    /// Reads a message. Returns it with the number of fields of other types, which were skipped.
    ///
    /// # Errors
    /// If the bytes are no message.
    pub fn read(bytes: &[u8]) -> Result<(Message, u64), Malformed> {
        let (mut heartbeat, mut message, mut unknown) = (None, Message::default(), 0);
        let mut rest = bytes;
        while let Some((&kind, behind)) = rest.split_first() {
            let (&length, behind) = behind.split_first().ok_or(Malformed)?;
            let (value, behind) = behind.split_at_checked(length.into()).ok_or(Malformed)?;
            match kind {
                kind::HEARTBEAT => put(&mut heartbeat, u16::from_be_bytes(whole(value)?))?,
                kind::MTU => put(&mut message.mtu, u16::from_be_bytes(whole(value)?))?,
                kind::DESCRIPTION => put(&mut message.description, String::from_utf8_lossy(value).into_owned())?,
                kind::VC_ID => put(&mut message.vc_id, u32::from_be_bytes(whole(value)?))?,
                _ => unknown += 1,
            }
            rest = behind;
        }
        message.heartbeat = heartbeat.filter(|&seconds| seconds > 0).ok_or(Malformed)?;
        Ok((message, unknown))
    }

    /// The bytes of the message. A description is cut to [`MAX_DESCRIPTION`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut field = |kind: u8, value: &[u8]| {
            let value = &value[..value.len().min(MAX_DESCRIPTION)];
            bytes.extend([kind, value.len() as u8]);
            bytes.extend(value);
        };
        field(kind::HEARTBEAT, &self.heartbeat.to_be_bytes());
        if let Some(mtu) = self.mtu {
            field(kind::MTU, &mtu.to_be_bytes());
        }
        if let Some(description) = &self.description {
            field(kind::DESCRIPTION, description.as_bytes());
        }
        if let Some(vc_id) = self.vc_id {
            field(kind::VC_ID, &vc_id.to_be_bytes());
        }
        bytes
    }
}

/// A value that has exactly this length.
fn whole<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed)
}

/// Sets what has not been set.
fn put<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed),
    }
}
