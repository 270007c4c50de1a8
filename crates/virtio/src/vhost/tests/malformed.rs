//! Driver's processes that break the rules.
