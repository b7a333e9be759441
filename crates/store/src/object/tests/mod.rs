//! Objects as a whole.
