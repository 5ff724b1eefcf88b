//! Stores that are new, and connections that break.
