//! Tests of what clients keep, over all operations.

mod keeping;
mod revoking;
