//! What an engine does from moment to moment, packets, filters and apps.
