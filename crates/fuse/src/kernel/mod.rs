//! The language of the kernel: bytes to requests, replies to bytes. Nothing here does I/O or knows a client.

pub mod abi;
pub mod init;
mod parse;
pub mod reply;
pub mod request;
