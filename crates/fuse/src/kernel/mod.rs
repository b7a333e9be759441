//! The language of the kernel: bytes to requests, replies to bytes. Nothing here does I/O or knows a client.

pub mod abi;
pub mod init;
pub mod reply;
pub mod request;
