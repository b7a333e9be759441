//! Files in which the kernel tells of processes and mounts, and is told. They lie in its memory: who reads them waits for no disk.

// They are the kernel's answers, and no files of a node.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What /proc tells of a thread, or of a process: `of` is its number, or `self`.
pub(crate) fn read(of: impl Display, file: &str) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{of}/{file}"))
}

/// The same of what may have any bytes.
pub(crate) fn bytes(of: impl Display, file: &str) -> io::Result<Vec<u8>> {
    std::fs::read(format!("/proc/{of}/{file}"))
}

/// The table of mounts that this process sees, whose paths may have any bytes.
pub(crate) fn mounts() -> io::Result<Vec<u8>> {
    bytes("self", "mountinfo")
}

/// The memory of a process.
pub(crate) struct Memory(File);

/// Opens the memory of the process that has this thread.
pub(crate) fn memory(of: impl Display) -> io::Result<Memory> {
    File::open(format!("/proc/{of}/mem")).map(Memory)
}

impl Memory {
    /// Fills `bytes` with what lies at an address.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }
}

/// Sets a value in sysfs.
pub(crate) fn set(path: &str, value: &str) -> io::Result<()> {
    std::fs::write(path, value)
}
