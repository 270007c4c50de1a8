//! Routes, neighbours, associations and addresses.
