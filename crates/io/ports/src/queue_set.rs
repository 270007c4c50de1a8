//! The queues that an app uses of a port.

use std::fmt;

/// The queues that an app uses: all of a port of its own, or some of a port that several apps share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueSet {
    /// All queues of a port that belongs to this app alone: this many.
    Whole(u16),
    /// The queues with these numbers, in ascending order. Other apps use the others.
    Part(Vec<u16>),
}

impl QueueSet {
    /// Their number.
    pub fn count(&self) -> usize {
        match self {
            QueueSet::Whole(count) => (*count).into(),
            QueueSet::Part(numbers) => numbers.len(),
        }
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<u16> {
        match self {
            QueueSet::Whole(count) => (0..*count).collect(),
            QueueSet::Part(numbers) => numbers.clone(),
        }
    }

    /// Whether other apps may use the same port.
    pub fn is_part(&self) -> bool {
        matches!(self, QueueSet::Part(_))
    }
}

impl From<u16> for QueueSet {
    fn from(count: u16) -> QueueSet {
        QueueSet::Whole(count)
    }
}

impl fmt::Display for QueueSet {
    /// The number of all, or the list of a part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueSet::Whole(count) => write!(f, "{count}"),
            QueueSet::Part(numbers) => f.debug_list().entries(numbers).finish(),
        }
    }
}
