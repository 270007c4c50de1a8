//! Mistakes that have a name, a counter and a sentence each.

/// Makes an enumeration of mistakes, from a line for each: its variant, the name of its counter, what it says.
macro_rules! named_errors {
    (
        $(#[$kind_doc:meta])*
        $kind:ident;
        $($(#[$doc:meta])* $name:ident = $word:literal: $message:literal,)*
    ) => {
        $(#[$kind_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum $kind {
            $($(#[$doc])* #[error($message)] $name,)*
        }

        impl $kind {
            /// All of them, in the order of counters.
            pub const ALL: &'static [$kind] = &[$($kind::$name,)*];

            /// The name in counters and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$name => $word,)*
                }
            }

            /// What is wrong, in one sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $($kind::$name => $message,)*
                }
            }
        }
    };
}

pub(crate) use named_errors;
