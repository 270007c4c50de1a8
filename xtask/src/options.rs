//! Values of options that several tasks have.

use std::ops::RangeInclusive;

use crate::TaskError;

/// The values of a comma-separated list.
pub fn list<T: Copy>(option: &str, names: &str, all: &[T], name: impl Fn(&T) -> String) -> Result<Vec<T>, TaskError> {
    let find = |wanted: &str| {
        let names = || all.iter().map(&name).collect::<Vec<_>>().join(", ");
        let found = all.iter().find(|thing| name(thing) == wanted).copied();
        found.ok_or_else(|| TaskError::usage(format!("{option}: there is no '{wanted}'; choose from {}", names())))
    };
    names.split(',').map(find).collect()
}

/// A number within a range.
pub fn number(option: &str, text: &str, range: RangeInclusive<usize>) -> Result<usize, TaskError> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    let failure = || TaskError::usage(format!("{option} needs a number from {} to {}", range.start(), range.end()));
    number.ok_or_else(failure)
}
