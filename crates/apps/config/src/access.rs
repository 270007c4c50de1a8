//! The mode and group of files and sockets that apps create.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::str::FromStr;

use bellows_sys::access::{FileAccess, group_id, user_id};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::ValueError;

/// The permission bits of a file or socket, as octal text from `0000` to `0777`: `0640`. The umask does not change
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileMode(u32);

impl FileMode {
    /// The permission bits.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// The access that two optional keys ask for.
pub fn file_access(mode: Option<FileMode>, group: Option<FileGroup>) -> FileAccess {
    FileAccess { mode: mode.map(FileMode::bits), group: group.map(FileGroup::id) }
}

/// Help text: how to write a mode.
const MODE: &str = "write the permissions in octal, as text like `\"0640\"`";

impl FromStr for FileMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<FileMode, ValueError> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let is_octal = (3..=4).contains(&digits.len()) && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        match u32::from_str_radix(digits, 8) {
            Ok(bits @ 0..=0o777) if is_octal => Ok(FileMode(bits)),
            Ok(_) if is_octal => {
                let message =
                    format!("`{text}` has more than permission bits; the maximum is `0777`, everything for everybody");
                Err(ValueError::new(message))
            }
            _ => Err(ValueError::new(format!("`{text}` is not a file mode; {MODE}"))),
        }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04o}", self.0)
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileMode, D::Error> {
        struct FileModeVisitor;
        impl Visitor<'_> for FileModeVisitor {
            type Value = FileMode;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a mode such as `\"0640\"`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FileMode, E> {
                text.parse().map_err(E::custom)
            }

            // A TOML number may be meant as octal or as decimal.
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<FileMode, E> {
                Err(E::custom(format!("a number such as {number} does not say whether it is octal; {MODE}")))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<FileMode, E> {
                Err(E::custom(format!("a number such as {number} does not say whether it is octal; {MODE}")))
            }
        }
        deserializer.deserialize_any(FileModeVisitor)
    }
}

impl JsonSchema for FileMode {
    fn schema_name() -> Cow<'static, str> {
        "FileMode".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "mode",
            "pattern": "^(0o)?0?[0-7]{3}$",
            "examples": ["0640", "0660", "0600"],
            "x-type": "permissions in octal such as `\"0640\"`",
        })
    }
}

/// A system database that maps names to numbers.
pub trait Database: 'static {
    /// The singular noun for an entry.
    const ITEM: &'static str;
    /// The command that lists the entries.
    const LISTED_BY: &'static str;
    /// An example name and an example number.
    const EXAMPLES: (&'static str, u32);

    /// The number of a name, or `None` if the name is not listed.
    ///
    /// # Errors
    /// The database cannot be read.
    fn number_of(name: &str) -> io::Result<Option<u32>>;
}

/// The groups of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SystemGroups {}

impl Database for SystemGroups {
    const ITEM: &'static str = "group";
    const LISTED_BY: &'static str = "getent group";
    const EXAMPLES: (&'static str, u32) = ("wireshark", 118);

    fn number_of(name: &str) -> io::Result<Option<u32>> {
        group_id(name)
    }
}

/// The users of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Users {}

impl Database for Users {
    const ITEM: &'static str = "user";
    const LISTED_BY: &'static str = "getent passwd";
    const EXAMPLES: (&'static str, u32) = ("qemu", 107);

    fn number_of(name: &str) -> io::Result<Option<u32>> {
        user_id(name)
    }
}

/// An entry of a [`Database`], written as its name or number. The name must be listed; the number need not be.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Id<D>(u32, PhantomData<D>);

/// The group of a file or socket: `wireshark`, `118`.
pub type FileGroup = Id<SystemGroups>;

/// A user of the system: `qemu`, `107`.
pub type User = Id<Users>;

impl<D> Clone for Id<D> {
    fn clone(&self) -> Id<D> {
        *self
    }
}

impl<D> Copy for Id<D> {}

impl<D> Id<D> {
    /// The number of the user or group.
    pub const fn id(self) -> u32 {
        self.0
    }
}

impl<D: Database> Id<D> {
    /// The entry with this number. `u32::MAX` is refused: `chown` takes it for "leave unchanged".
    fn of(number: u64) -> Result<Id<D>, ValueError> {
        match u32::try_from(number) {
            Ok(number) if number < u32::MAX => Ok(Id(number, PhantomData)),
            _ => Err(ValueError::new(format!("`{number}` is not a {}; give a number below {}", D::ITEM, u32::MAX))),
        }
    }
}

impl<D: Database> FromStr for Id<D> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Id<D>, ValueError> {
        // Names take precedence, because a name may consist of digits.
        let found = match D::number_of(text) {
            Ok(Some(number)) => return Ok(Id(number, PhantomData)),
            found => found,
        };
        if let Ok(number) = text.parse::<u64>() {
            return Id::of(number);
        }
        let item = D::ITEM;
        let why = match found {
            Err(error) => format!("the {item} `{text}` cannot be looked up: {error}"),
            _ => format!("there is no {item} `{text}`"),
        };
        let list = D::LISTED_BY;
        Err(ValueError::new(format!("{why}; `{list}` lists them; give one of these, or a {item}'s number")))
    }
}

impl<D> Serialize for Id<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de, D: Database> Deserialize<'de> for Id<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Id<D>, R::Error> {
        struct NameOrNumber<D>(PhantomData<D>);
        impl<D: Database> Visitor<'_> for NameOrNumber<D> {
            type Value = Id<D>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a {}'s name or number", D::ITEM)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Id<D>, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Id<D>, E> {
                Id::of(number).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Id<D>, E> {
                let item = D::ITEM;
                let negative =
                    |_| E::custom(format!("`{number}` is not a {item}; give its name, or its number, 0 or more"));
                u64::try_from(number).map_err(negative).and_then(|number| self.visit_u64(number))
            }
        }
        deserializer.deserialize_any(NameOrNumber(PhantomData))
    }
}

impl<D: Database> JsonSchema for Id<D> {
    fn schema_name() -> Cow<'static, str> {
        D::ITEM.into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let (name, number) = D::EXAMPLES;
        json_schema!({
            "type": ["string", "integer"],
            "format": D::ITEM,
            "minimum": 0,
            "maximum": u32::MAX - 1,
            "examples": [name, number],
            "x-type": format!("name or number of a {}", D::ITEM),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_names_or_numbers() {
        let read = |json: &str| serde_json::from_str::<User>(json).map(User::id);
        for (json, id) in [("\"root\"", 0), ("0", 0), ("12345", 12_345), ("\"12345\"", 12_345)] {
            assert_eq!(read(json).unwrap(), id, "{json}");
        }
        for (json, says) in [
            ("\"no such user\"", "there is no user `no such user`; `getent passwd`"),
            ("4294967295", "below 4294967295"),
            ("-1", "0 or more"),
            ("true", "a user's name or number"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    #[test]
    fn modes_are_octal_text() {
        for (text, bits) in [("0640", 0o640), ("640", 0o640), ("0o660", 0o660), ("0777", 0o777), ("0000", 0)] {
            let mode: FileMode = text.parse().unwrap();
            assert_eq!(mode.bits(), bits, "{text}");
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for text in ["", "0", "7", "0680", "rw-r-----", "u=rw", "-640", "+640", "0o", "00640", " 0640", "0x1a0"] {
            let error = text.parse::<FileMode>().unwrap_err().to_string();
            assert!(error.contains("`\"0640\"`"), "{text}: {error}");
        }
        for text in ["1777", "4755", "7777"] {
            let error = text.parse::<FileMode>().unwrap_err().to_string();
            assert!(error.contains("0777"), "{text}: {error}");
        }
        let error = serde_json::from_str::<FileMode>("416").unwrap_err().to_string();
        assert!(error.contains("octal"), "{error}");
    }

    #[test]
    fn groups_are_names_or_numbers() {
        let read = |json: &str| serde_json::from_str::<FileGroup>(json).map(FileGroup::id);
        for (json, id) in [("\"root\"", 0), ("0", 0), ("12345", 12_345), ("\"12345\"", 12_345)] {
            assert_eq!(read(json).unwrap(), id, "{json}");
        }
        assert_eq!(serde_json::to_string(&"root".parse::<FileGroup>().unwrap()).unwrap(), "0");
        for (json, says) in [
            ("\"no such group\"", "there is no group `no such group`; `getent group`"),
            ("4294967295", "below 4294967295"),
            ("-1", "0 or more"),
            ("true", "a group's name or number"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
    }
}
