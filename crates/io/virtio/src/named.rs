//! Errors with a name, a counter and a sentence each.

/// Defines an enumeration of errors; each line gives a variant, the name of its counter, and its sentence.
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

            /// The error in one sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $($kind::$name => $message,)*
                }
            }
        }
    };
}

pub(crate) use named_errors;
