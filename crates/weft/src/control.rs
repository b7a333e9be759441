//! Talking to the mount that a path lies in, about what the path names.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::control;
use fuse::moves::{self, Move};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

/// Largest answer, in bytes: what the kernel allows for an attribute.
const ANSWER_BYTES_MAX: usize = 65_536;
/// How often a move is asked for whose wish the mount has forgotten.
const MOVE_TRIES: u32 = 3;

/// Asks the mount for a document.
pub fn get<T: DeserializeOwned>(path: &Path, attribute: &str) -> io::Result<T> {
    let bytes = get_bytes(path, attribute)?;
    let document = serde_json::from_slice(&bytes);
    document.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the mount for text.
pub fn get_text(path: &Path, attribute: &str) -> io::Result<String> {
    String::from_utf8(get_bytes(path, attribute)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the mount for text about what a path names, a symbolic link itself if it is one.
pub fn get_text_of_link(path: &Path, attribute: &str) -> io::Result<String> {
    let mut buffer = vec![0; ANSWER_BYTES_MAX];
    let len = rustix::fs::lgetxattr(path, attribute, &mut buffer[..]).map_err(elsewhere)?;
    buffer.truncate(len);
    String::from_utf8(buffer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the mount for bytes.
pub fn get_bytes(path: &Path, attribute: impl rustix::path::Arg) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; ANSWER_BYTES_MAX];
    let len = rustix::fs::getxattr(path, attribute, &mut buffer[..]).map_err(elsewhere)?;
    buffer.truncate(len);
    Ok(buffer)
}

/// Tells the mount something.
pub fn set(path: &Path, attribute: impl rustix::path::Arg, value: &[u8]) -> io::Result<()> {
    rustix::fs::setxattr(path, attribute, value, rustix::fs::XattrFlags::empty()).map_err(elsewhere)
}

/// Has the data of a file moved; returns when it has been.
pub fn migrate(path: &Path, wanted: &Move) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let word = format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let (attribute, value) = (format!("{}{word}", moves::MIGRATE), control::encode(wanted));
    let mut tries = 0;
    loop {
        set(path, &attribute, &value)?;
        tries += 1;
        match get_bytes(path, &attribute) {
            // The mount has forgotten it for others.
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) && tries < MOVE_TRIES => {}
            moved => return moved.map(drop),
        }
    }
}

/// Takes something away from the mount.
pub fn remove(path: &Path, attribute: &str) -> io::Result<()> {
    rustix::fs::removexattr(path, attribute).map_err(elsewhere)
}

/// Other file systems know no such attributes. The tools' users know the answer as that of an unknown ioctl.
fn elsewhere(error: Errno) -> io::Error {
    match error {
        Errno::OPNOTSUPP => io::Error::from_raw_os_error(libc::ENOTTY),
        other => other.into(),
    }
}

/// Makes a file with a layout.
pub fn create(directory: &Path, name: &[u8], hint: &control::Hint) -> io::Result<()> {
    let mut value = control::encode(hint);
    let attribute = [control::CREATE_NAME.as_bytes(), name].concat();
    if attribute.len() <= proto::limits::XATTR_NAME_BYTES_MAX {
        return set(directory, &attribute[..], &value);
    }
    value.push(0);
    value.extend_from_slice(name);
    set(directory, control::CREATE, &value)
}

/// What the system calls an error, without the number that Rust puts behind it.
pub fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
