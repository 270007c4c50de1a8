//! The states of apps and shared objects.
