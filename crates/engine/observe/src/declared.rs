//! What an app counts: one list gives the symbol, the name, the unit and the meaning of each counter.

use std::marker::PhantomData;

use crate::counter::Counter;

macro_rules! symbols {
    ($($(#[$doc:meta])* $symbol:ident)*) => {$(
        $(#[$doc])*
        pub struct $symbol<A> {
            position: usize,
            _app: PhantomData<fn(A)>,
        }

        impl<A> $symbol<A> {
            /// For [`counters!`](crate::counters) alone.
            #[doc(hidden)]
            pub const fn at_position(position: usize) -> $symbol<A> {
                $symbol { position, _app: PhantomData }
            }

            /// Its position in its list.
            #[inline]
            pub const fn position(self) -> usize {
                self.position
            }
        }

        impl<A> Clone for $symbol<A> {
            fn clone(&self) -> $symbol<A> {
                *self
            }
        }

        impl<A> Copy for $symbol<A> {}
    )*};
}

symbols! {
    /// A reason for which an app of this type drops packets, from its list of [`counters!`](crate::counters).
    DropReason
    /// Something that an app of this type counts.
    Count
    /// A number that an app of this type sets.
    Gauge
}

/// Counters of an app of this type that follow from a table of something else: one for each kind of error, say.
pub struct CountTable<A> {
    first: usize,
    length: usize,
    _app: PhantomData<fn(A)>,
}

impl<A> CountTable<A> {
    /// For [`counters!`](crate::counters) alone.
    #[doc(hidden)]
    pub const fn at_position(first: usize, length: usize) -> CountTable<A> {
        CountTable { first, length, _app: PhantomData }
    }

    /// The counter of one row.
    ///
    /// # Panics
    /// If the table has no such row.
    pub const fn row(&self, row: usize) -> Count<A> {
        assert!(row < self.length, "the table has no such row");
        Count::at_position(self.first + row)
    }
}

/// All counters of apps of one type, for `App::COUNTERS`.
pub struct Counters<A> {
    drops: &'static [Counter],
    others: &'static [Counter],
    _app: PhantomData<fn(A)>,
}

impl<A> Counters<A> {
    /// No counters.
    pub const NONE: Counters<A> = Counters::listed(&[], &[]);

    /// For [`counters!`](crate::counters) alone.
    #[doc(hidden)]
    pub const fn listed(drops: &'static [Counter], others: &'static [Counter]) -> Counters<A> {
        Counters { drops, others, _app: PhantomData }
    }

    /// Why apps of this type drop packets.
    pub const fn drops(&self) -> &'static [Counter] {
        self.drops
    }

    /// What else they count.
    pub const fn others(&self) -> &'static [Counter] {
        self.others
    }
}

/// Named counters and those of a table as one list, for [`counters!`](crate::counters) alone.
#[doc(hidden)]
pub const fn joined_counters<const LENGTH: usize>(named: &[Counter], tables: &[&[Counter]]) -> [Counter; LENGTH] {
    let mut all = [Counter::new("", ""); LENGTH];
    let mut index = 0;
    while index < LENGTH {
        all[index] = if index < named.len() { named[index] } else { tables[0][index - named.len()] };
        index += 1;
    }
    all
}

/// Lists the counters of an app: for each its symbol, which becomes a constant of the app, its name in reports, and what it
/// counts. A unit other than packets is named behind that.
///
/// - `drop` is a reason for which the app drops packets, a [`DropReason`]; `asked drop` one that whoever configured the app
///   wants, such as what a rate limiter drops: the report of a run does not point it out as a loss.
/// - `count` is something that the app counts, a [`Count`].
/// - `gauge` is a number that it sets, a [`Gauge`].
/// - `table` gives as many counts as a list of [`Counter`]s has, a [`CountTable`]; there is one at most, and it comes last.
///
/// A generic app names its parameters first: `counters! { for[const N: usize] Filter<N>; … }`.
///
/// The whole list is the constant `COUNTED`, which `App::COUNTERS` is set to.
#[macro_export]
macro_rules! counters {
    (@list [$($generics:tt)*] $app:ty, [$($drops:tt)*] [$($others:tt)*]; asked drop $symbol:ident = $name:expr, $help:expr; $($rest:tt)*) => {
        $crate::counters!(@list [$($generics)*] $app,
            [$($drops)* ($symbol, $crate::Counter::new($name, $help).asked())] [$($others)*]; $($rest)*);
    };
    (@list [$($generics:tt)*] $app:ty, [$($drops:tt)*] [$($others:tt)*]; drop $symbol:ident = $name:expr, $help:expr; $($rest:tt)*) => {
        $crate::counters!(@list [$($generics)*] $app,
            [$($drops)* ($symbol, $crate::Counter::new($name, $help))] [$($others)*]; $($rest)*);
    };
    (@list [$($generics:tt)*] $app:ty, [$($drops:tt)*] [$($others:tt)*];
        count $symbol:ident = $name:expr, $help:expr $(, in $unit:literal)?; $($rest:tt)*) => {
        $crate::counters!(@list [$($generics)*] $app, [$($drops)*]
            [$($others)* (Count $symbol, $crate::Counter::new($name, $help)$(.in_unit($unit))?)]; $($rest)*);
    };
    (@list [$($generics:tt)*] $app:ty, [$($drops:tt)*] [$($others:tt)*];
        gauge $symbol:ident = $name:expr, $help:expr $(, in $unit:literal)?; $($rest:tt)*) => {
        $crate::counters!(@list [$($generics)*] $app, [$($drops)*]
            [$($others)* (Gauge $symbol, $crate::Counter::new($name, $help)$(.in_unit($unit))?.gauge())]; $($rest)*);
    };
    (@list [$($generics:tt)*] $app:ty, [$(($drop:ident, $drop_counter:expr))*] [$(($kind:ident $symbol:ident, $counter:expr))*];
        $(table $table:ident = $rows:expr;)?) => {
        const _: () = {
            #[allow(dead_code, non_camel_case_types, clippy::upper_case_acronyms, reason = "numbers the symbols")]
            enum Drops { $($drop,)* }
            #[allow(dead_code, non_camel_case_types, clippy::upper_case_acronyms, reason = "numbers the symbols")]
            enum Others { $($symbol,)* }

            const __NAMED: &[$crate::Counter] = &[$($counter,)*];
            const __ROWS: &[&[$crate::Counter]] = &[$(&$rows)?];

            impl<$($generics)*> $app {
                $(
                    #[doc = concat!("The drop reason `", stringify!($drop), "`.")]
                    pub(crate) const $drop: $crate::DropReason<$app> =
                        $crate::DropReason::at_position(Drops::$drop as usize);
                )*
                $(
                    #[doc = concat!("The counter `", stringify!($symbol), "`.")]
                    pub(crate) const $symbol: $crate::$kind<$app> =
                        $crate::$kind::at_position(Others::$symbol as usize);
                )*
                $(
                    #[doc = concat!("The counters `", stringify!($table), "`.")]
                    pub(crate) const $table: $crate::CountTable<$app> =
                        $crate::CountTable::at_position(__NAMED.len(), __ROWS[0].len());
                )?
                /// All counters of the app.
                pub(crate) const COUNTED: $crate::Counters<$app> = $crate::Counters::listed(
                    &[$($drop_counter,)*],
                    &$crate::joined_counters::<{ __NAMED.len() $(+ $rows.len())? }>(__NAMED, __ROWS),
                );
            }
        };
    };
    (for[$($generics:tt)*] $app:ty; $($list:tt)*) => {
        $crate::counters!(@list [$($generics)*] $app, [] []; $($list)*);
    };
    ($app:ty; $($list:tt)*) => {
        $crate::counters!(@list [] $app, [] []; $($list)*);
    };
}
