//! Who may use the files and sockets that apps make: their mode and their group.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bellows_sys::access::{FileAccess, group_id, user_id};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::values::ValueError;

/// The permission bits of a file or socket, as text in octal: `0640`. From `0000` to `0777`; the umask does not change
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileMode(u32);

/// The group of a file or socket, by its name or number: `wireshark`, `118`. There is a group of that name; a number
/// may be that of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileGroup(u32);

impl FileMode {
    /// The permission bits.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl FileGroup {
    /// The number of the group.
    pub const fn id(self) -> u32 {
        self.0
    }
}

/// What two optional keys give, for the system.
pub fn file_access(mode: Option<FileMode>, group: Option<FileGroup>) -> FileAccess {
    FileAccess { mode: mode.map(FileMode::bits), group: group.map(FileGroup::id) }
}

/// How a mode is written.
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
                    format!("`{text}` has more than permissions; the most is `0777`, for everybody all of them");
                Err(ValueError::new(message))
            }
            _ => Err(ValueError::new(format!("`{text}` is no mode of a file; {MODE}"))),
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
        struct Mode;
        impl Visitor<'_> for Mode {
            type Value = FileMode;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a mode such as `\"0640\"`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FileMode, E> {
                text.parse().map_err(E::custom)
            }

            // Whether a number is meant in octal is not to be known.
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<FileMode, E> {
                Err(E::custom(format!("a number such as {number} does not say whether it is octal; {MODE}")))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<FileMode, E> {
                Err(E::custom(format!("a number such as {number} does not say whether it is octal; {MODE}")))
            }
        }
        deserializer.deserialize_any(Mode)
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

impl FromStr for FileGroup {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<FileGroup, ValueError> {
        // A name comes first: some begin with digits, and those of digits alone are names, too.
        match group_id(text) {
            Ok(Some(group)) => Ok(FileGroup(group)),
            found => {
                if let Ok(number) = text.parse::<u64>() {
                    return FileGroup::of(number);
                }
                let why = match found {
                    Err(error) => format!("the group `{text}` cannot be looked up: {error}"),
                    _ => format!("there is no group `{text}`"),
                };
                let help = "`getent group` lists them; give one of these, or a group's number";
                Err(ValueError::new(format!("{why}; {help}")))
            }
        }
    }
}

impl FileGroup {
    /// The group of this number. The last one is no group: the system takes it for "leave the group as it is".
    fn of(number: u64) -> Result<FileGroup, ValueError> {
        match u32::try_from(number) {
            Ok(number) if number < u32::MAX => Ok(FileGroup(number)),
            _ => Err(ValueError::new(format!("`{number}` is no group; give a number below {}", u32::MAX))),
        }
    }
}

impl fmt::Display for FileGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl Serialize for FileGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for FileGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileGroup, D::Error> {
        struct Group;
        impl Visitor<'_> for Group {
            type Value = FileGroup;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a group's name or number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FileGroup, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<FileGroup, E> {
                FileGroup::of(number).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<FileGroup, E> {
                let below = |_| E::custom(format!("`{number}` is no group; give its name, or its number, 0 or more"));
                u64::try_from(number).map_err(below).and_then(|number| self.visit_u64(number))
            }
        }
        deserializer.deserialize_any(Group)
    }
}

impl JsonSchema for FileGroup {
    fn schema_name() -> Cow<'static, str> {
        "FileGroup".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "format": "group",
            "minimum": 0,
            "maximum": u32::MAX - 1,
            "examples": ["wireshark", 118],
            "x-type": "name or number of a group",
        })
    }
}

/// A user of the system, by name or number: `qemu`, `107`. There is a user of that name; a number may be that of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct User(u32);

impl User {
    /// The number of the user.
    pub const fn id(self) -> u32 {
        self.0
    }

    fn of(number: u64) -> Result<User, ValueError> {
        match u32::try_from(number) {
            Ok(number) if number < u32::MAX => Ok(User(number)),
            _ => Err(ValueError::new(format!("`{number}` is no user; give a number below {}", u32::MAX))),
        }
    }
}

impl FromStr for User {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<User, ValueError> {
        // A name comes first, as for groups.
        match (user_id(text), text.parse::<u64>()) {
            (Ok(Some(user)), _) => Ok(User(user)),
            (_, Ok(number)) => User::of(number),
            (found, Err(_)) => {
                let why = match found {
                    Err(error) => format!("the user `{text}` cannot be looked up: {error}"),
                    _ => format!("there is no user `{text}`"),
                };
                let help = "`getent passwd` lists them; give one of these, or a user's number";
                Err(ValueError::new(format!("{why}; {help}")))
            }
        }
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<User, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = User;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a user's name or number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<User, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<User, E> {
                User::of(number).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<User, E> {
                let below = |_| E::custom(format!("`{number}` is no user; give a name, or a number, 0 or more"));
                u64::try_from(number).map_err(below).and_then(|number| self.visit_u64(number))
            }
        }
        deserializer.deserialize_any(Name)
    }
}

impl JsonSchema for User {
    fn schema_name() -> Cow<'static, str> {
        "User".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "minimum": 0,
            "maximum": u32::MAX - 1,
            "examples": ["qemu", 107],
            "x-type": "name or number of a user",
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
