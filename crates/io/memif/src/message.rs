//! The messages of the control channel: 128 bytes each, in the byte order of the host, without padding.

/// Length of every message, in bytes.
pub const MESSAGE_LENGTH: usize = 128;

/// Version 2.0, the only one in use.
pub const VERSION: u16 = 2 << 8;

/// Length of a secret, in bytes. A shorter one is followed by zeros.
pub const SECRET_LENGTH: usize = 24;

/// Length of a name, in bytes.
const NAME_LENGTH: usize = 32;

/// Length of the text of a `DISCONNECT`, in bytes.
const TEXT_LENGTH: usize = 96;

/// Bit of [`AddRing`]'s flags: the ring brings packets to the server.
const C2S: u16 = 1;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The server accepts the client's last message.
    Ack,
    /// The server's limits.
    Hello(Hello),
    /// Which interface the client wants.
    Init(Init),
    /// A region of the client's memory; its file comes along.
    AddRegion {
        /// Its number.
        index: u16,
        /// Its length in bytes.
        size: u64,
    },
    /// A ring; its event comes along.
    AddRing(AddRing),
    /// The client has sent everything. The name of its interface.
    Connect(String),
    /// The server has, too. The name of its interface.
    Connected(String),
    /// The sender ends the connection.
    Disconnect {
        /// A number for programs.
        code: u32,
        /// The reason.
        text: String,
    },
}

/// The body of `HELLO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name of the server.
    pub name: String,
    /// The least version that it speaks.
    pub min_version: u16,
    /// The greatest version that it speaks.
    pub max_version: u16,
    /// The greatest number of a region.
    pub max_region: u16,
    /// The greatest number of a ring to the client.
    pub max_s2c: u16,
    /// The greatest number of a ring to the server.
    pub max_c2s: u16,
    /// The logarithm of the greatest size of a ring.
    pub max_log2_size: u8,
}

/// The body of `INIT`.
#[derive(Clone, PartialEq, Eq)]
pub struct Init {
    /// The version that the client speaks.
    pub version: u16,
    /// The number of the interface.
    pub id: u32,
    /// What the packets are.
    pub mode: u8,
    /// The secret, or zeros.
    pub secret: [u8; SECRET_LENGTH],
    /// The name of the client.
    pub name: String,
}

impl std::fmt::Debug for Init {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Init { version, id, mode, secret: _, name } = self;
        write!(f, "Init {{ version: {version:#x}, id: {id}, mode: {mode}, name: {name:?} }}")
    }
}

/// The body of `ADD_RING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Whether it brings packets to the server.
    pub to_server: bool,
    /// Its number among those of its direction.
    pub index: u16,
    /// The region that contains it.
    pub region: u16,
    /// Its offset there, in bytes.
    pub offset: u32,
    /// The logarithm of its size.
    pub log2_size: u8,
    /// Length of a header in front of each packet, in bytes.
    pub private_header: u16,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It has another length.
    #[error("a message has {0} bytes, but all have {MESSAGE_LENGTH}")]
    Length(usize),
    /// It has another type.
    #[error("there is no message of type {0}")]
    Type(u16),
}

/// Reads fields in order.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    /// The next bytes. The fields of each message are shorter than a message.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (first, rest) = self.0.split_at(N.min(self.0.len()));
        field[..first.len()].copy_from_slice(first);
        self.0 = rest;
        field
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn half(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn word(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn double(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// Text for people, up to the first zero. It goes into logs, so nothing in it controls a terminal.
    fn text<const N: usize>(&mut self) -> String {
        let bytes = self.take::<N>();
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
    }
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// Why the bytes are none.
    pub fn read(bytes: &[u8]) -> Result<Message, MessageError> {
        if bytes.len() != MESSAGE_LENGTH {
            return Err(MessageError::Length(bytes.len()));
        }
        let mut fields = Fields(bytes);
        // Fields are read in the order in which a struct expression names them, which is that of the message.
        Ok(match fields.half() {
            1 => Message::Ack,
            2 => Message::Hello(Hello {
                name: fields.text::<NAME_LENGTH>(),
                min_version: fields.half(),
                max_version: fields.half(),
                max_region: fields.half(),
                max_s2c: fields.half(),
                max_c2s: fields.half(),
                max_log2_size: fields.byte(),
            }),
            3 => Message::Init(Init {
                version: fields.half(),
                id: fields.word(),
                mode: fields.byte(),
                secret: fields.take(),
                name: fields.text::<NAME_LENGTH>(),
            }),
            4 => Message::AddRegion { index: fields.half(), size: fields.double() },
            5 => Message::AddRing(AddRing {
                to_server: fields.half() & C2S != 0,
                index: fields.half(),
                region: fields.half(),
                offset: fields.word(),
                log2_size: fields.byte(),
                private_header: fields.half(),
            }),
            6 => Message::Connect(fields.text::<NAME_LENGTH>()),
            7 => Message::Connected(fields.text::<NAME_LENGTH>()),
            8 => Message::Disconnect { code: fields.word(), text: fields.text::<TEXT_LENGTH>() },
            other => return Err(MessageError::Type(other)),
        })
    }

    /// Writes it. Names and texts that are too long are cut.
    pub fn write(&self) -> [u8; MESSAGE_LENGTH] {
        let mut bytes = Vec::with_capacity(MESSAGE_LENGTH);
        let mut add = |field: &[u8]| bytes.extend_from_slice(field);
        match self {
            Message::Ack => add(&1_u16.to_ne_bytes()),
            Message::Hello(hello) => {
                add(&2_u16.to_ne_bytes());
                add(&text::<NAME_LENGTH>(&hello.name));
                let halves = [hello.min_version, hello.max_version, hello.max_region, hello.max_s2c, hello.max_c2s];
                halves.into_iter().for_each(|half| add(&half.to_ne_bytes()));
                add(&[hello.max_log2_size]);
            }
            Message::Init(init) => {
                add(&3_u16.to_ne_bytes());
                add(&init.version.to_ne_bytes());
                add(&init.id.to_ne_bytes());
                add(&[init.mode]);
                add(&init.secret);
                add(&text::<NAME_LENGTH>(&init.name));
            }
            Message::AddRegion { index, size } => {
                add(&4_u16.to_ne_bytes());
                add(&index.to_ne_bytes());
                add(&size.to_ne_bytes());
            }
            Message::AddRing(ring) => {
                add(&5_u16.to_ne_bytes());
                add(&if ring.to_server { C2S } else { 0 }.to_ne_bytes());
                add(&ring.index.to_ne_bytes());
                add(&ring.region.to_ne_bytes());
                add(&ring.offset.to_ne_bytes());
                add(&[ring.log2_size]);
                add(&ring.private_header.to_ne_bytes());
            }
            Message::Connect(name) => {
                add(&6_u16.to_ne_bytes());
                add(&text::<NAME_LENGTH>(name));
            }
            Message::Connected(name) => {
                add(&7_u16.to_ne_bytes());
                add(&text::<NAME_LENGTH>(name));
            }
            Message::Disconnect { code, text: reason } => {
                add(&8_u16.to_ne_bytes());
                add(&code.to_ne_bytes());
                add(&text::<TEXT_LENGTH>(reason));
            }
        }
        let mut message = [0; MESSAGE_LENGTH];
        message[..bytes.len()].copy_from_slice(&bytes);
        message
    }
}

/// A text as a field: cut between characters, with a zero at the end.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.floor_char_boundary(N - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Vec<Message> {
        let name = "bellows".to_owned();
        vec![
            Message::Ack,
            Message::Hello(Hello {
                name: name.clone(),
                min_version: VERSION,
                max_version: VERSION,
                max_region: 255,
                max_s2c: 1,
                max_c2s: 2,
                max_log2_size: 14,
            }),
            Message::Init(Init { version: VERSION, id: 7, mode: 1, secret: [3; SECRET_LENGTH], name: name.clone() }),
            Message::AddRegion { index: 1, size: 1 << 40 },
            Message::AddRing(AddRing {
                to_server: true,
                index: 2,
                region: 3,
                offset: 0xffff_ff80,
                log2_size: 10,
                private_header: 9,
            }),
            Message::Connect(name.clone()),
            Message::Connected(name),
            Message::Disconnect { code: 5, text: "mode mismatch".to_owned() },
        ]
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in some() {
            assert_eq!(Message::read(&message.write()), Ok(message));
        }
    }

    /// Offsets of fields in the packed structs of the protocol.
    #[test]
    fn fields_are_where_other_programs_expect_them() {
        let [_, hello, init, region, ring, connect, connected, disconnect] =
            <[_; 8]>::try_from(some()).unwrap().map(|message: Message| message.write());
        assert_eq!((hello[0], &hello[2..9], hello[34..36] == VERSION.to_ne_bytes()), (2, &b"bellows"[..], true));
        assert_eq!((hello[38], hello[40], hello[42], hello[44]), (255, 1, 2, 14));
        assert_eq!((init[0], init[4], init[8], init[9], init[32], &init[33..40]), (3, 7, 1, 3, 3, &b"bellows"[..]));
        assert_eq!((region[0], region[2], region[4..12] == (1_u64 << 40).to_ne_bytes()), (4, 1, true));
        assert_eq!((ring[0], ring[2], ring[4], ring[6], ring[12], ring[13]), (5, 1, 2, 3, 10, 9));
        assert_eq!(ring[8..12], 0xffff_ff80_u32.to_ne_bytes());
        assert_eq!((connect[0], &connect[2..9], connected[0]), (6, &b"bellows"[..], 7));
        assert_eq!((disconnect[0], disconnect[2], &disconnect[6..10]), (8, 5, &b"mode"[..]));
    }

    #[test]
    fn other_lengths_and_types_are_refused() {
        assert_eq!(Message::read(&[1; 127]), Err(MessageError::Length(127)));
        assert_eq!(Message::read(&[0; 128]), Err(MessageError::Type(0)));
        assert_eq!(Message::read(&[9; 128]), Err(MessageError::Type(0x909)));
    }

    #[test]
    fn texts_are_cut_and_control_nothing() {
        let long = "é".repeat(40);
        let Ok(Message::Connect(name)) = Message::read(&Message::Connect(long).write()) else { unreachable!() };
        assert_eq!(name, "é".repeat(15));
        let evil = Message::Disconnect { code: 0, text: "a\u{1b}[2Jb\n".to_owned() };
        let Ok(Message::Disconnect { text, .. }) = Message::read(&evil.write()) else { unreachable!() };
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd}");
        let init = Message::Init(Init {
            version: 1,
            id: 2,
            mode: 0,
            secret: *b"abcdefghijklmnopqrstuvwx",
            name: String::new(),
        });
        assert!(!format!("{init:?}").contains("97"), "the secret is not printed");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: [u8; 32], kind in 0_u16..10) {
            let mut message = [0; MESSAGE_LENGTH];
            bytes.iter().cycle().zip(&mut message[2..]).for_each(|(from, to)| *to = *from);
            message[..2].copy_from_slice(&kind.to_ne_bytes());
            prop_assert_eq!(Message::read(&message).is_ok(), (1..9).contains(&kind));
        }
    }
}
