//! The wire format is what the files in `vectors` say, and decoders stand any input.

// The other crates know this one by its short name.
extern crate weft_proto as proto;

mod hsm;
mod mutation;
mod random;
mod samples;
mod vectors;
