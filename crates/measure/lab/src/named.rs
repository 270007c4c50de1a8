//! Enumerations whose variants have names on command lines and in reports.

/// An error message about a text that is none of these names.
pub(crate) fn unknown(text: &str, names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => {
            format!("there is no `{text}`; give {} or {last}", others.join(", "))
        }
        _ => format!("there is no `{text}`; give {}", names.concat()),
    }
}

/// Declares an enumeration whose variants have names on command lines and in reports: of cases, for example. It has a
/// list of all, and is parsed and serialized by these names.
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        $visibility enum $name {
            $($(#[$variant_attribute])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All, in the order of reports.
            $visibility const ALL: [$name; [$($text),*].len()] = [$($name::$variant,)*];

            /// The name on command lines and in reports.
            $visibility fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                let found = $name::ALL.into_iter().find(|one| one.name() == text);
                found.ok_or_else(|| $crate::named::unknown(text, &$name::ALL.map($name::name)))
            }
        }
    };
}

pub(crate) use named;
