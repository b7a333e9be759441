//! Key files: 64 hexadecimal digits, readable by their owner only, which is root or the user who runs the program.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use proto::FsName;
use rpc::{Key, Role};
use rt::Rt;

use crate::{Failure, Result};

/// Most bytes of a key's file that are read: more is no key.
const KEY_FILE_BYTES_MAX: u64 = 4096;

/// Where keys are if nothing else is said: /etc/weft for root, ~/.config/weft for a user.
///
/// # Errors
/// Neither HOME nor the variable is set.
pub fn directory() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/etc/weft"));
    }
    user_directory("XDG_CONFIG_HOME", ".config")
}

/// A directory of weft's below the home directory, or where the environment says that such things are.
///
/// # Errors
/// Neither HOME nor `variable` is set.
pub fn user_directory(variable: &str, below_home: &str) -> Result<PathBuf> {
    if let Some(base) = std::env::var_os(variable).filter(|base| Path::new(base).is_absolute()) {
        return Ok(PathBuf::from(base).join("weft"));
    }
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(PathBuf::from(home).join(below_home).join("weft")),
        None => Err(Failure::new(format!(
            "neither HOME nor {variable} is set; set HOME, or name the files yourself"
        ))),
    }
}

/// The usual file of a key.
pub fn path(directory: &Path, fsname: &FsName, role: Role) -> PathBuf {
    let role = match role {
        Role::Server => "server",
        Role::Client => "client",
    };
    directory.join(format!("{fsname}.{role}.key"))
}

/// The file to use: the one named, or the usual one.
///
/// # Errors
/// None is named, and there is no usual place.
pub fn resolve(named: Option<&Path>, fsname: &FsName, role: Role) -> Result<PathBuf> {
    match named {
        Some(file) => Ok(file.to_owned()),
        None => Ok(path(&directory()?, fsname, role)),
    }
}

/// The same file, for processes elsewhere.
///
/// # Errors
/// The working directory is gone.
pub fn absolute(file: PathBuf) -> Result<PathBuf> {
    std::path::absolute(&file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

/// Reads a key.
///
/// # Errors
/// There is none, others can read or change it, or it is not one.
pub fn read(file: &Path) -> Result<Key> {
    let name = file.display();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!(
            "there is no key {name}; copy it from the server where the file system was made, or name another with --key"
        )),
        _ => Failure::new(format!(
            "the key {name} cannot be read: {error}; run as its owner, or name another with --key"
        )),
    };
    let opened = File::open(file).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::new(format!("others can read the key {name}; run \"chmod 600 {name}\"")));
    }
    let caller = rustix::process::geteuid().as_raw();
    if !is_trusted(metadata.uid(), caller) {
        return Err(Failure::new(format!(
            "the key {name} belongs to user {}, who can change it; it has to be root's or user {caller}'s: run \"chown {caller} {name}\" as root",
            metadata.uid()
        )));
    }
    let mut text = String::new();
    opened.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    parse(text.trim())
        .ok_or_else(|| Failure::new(format!("{name} is not a key; copy it again from the server")))
}

/// Whether a key of `owner` may be used by `caller`: nobody else is to say who is let in.
fn is_trusted(owner: u32, caller: u32) -> bool {
    owner == 0 || owner == caller
}

/// Makes a key, unless the file is there already.
///
/// # Errors
/// The file cannot be made, or what is there is no key ([`read`]).
pub fn create(rt: &Rt, file: &Path) -> Result<()> {
    let failed = |error: io::Error| {
        Failure::new(format!(
            "the key {} cannot be made: {error}; name another file with --key",
            file.display()
        ))
    };
    if file.exists() {
        return read(file).map(drop);
    }
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    let mut key = [0; 32];
    rt.random_bytes(&mut key);
    let unfinished = directory.join(format!(".weft-key-{:016x}", rt.random_u64()));
    let result = write_new(&unfinished, &key).and_then(|()| match fs::hard_link(&unfinished, file) {
        // Somebody else was faster: that key counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = fs::remove_file(&unfinished);
    result.and(removed).and_then(|()| File::open(directory)?.sync_all()).map_err(failed)
}

fn write_new(file: &Path, key: &[u8; 32]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(format!("{}\n", format_key(key)).as_bytes())?;
    file.sync_all()
}

fn format_key(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Option<Key> {
    let text = text.as_bytes();
    if text.len() != 64 || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_user_are_not_used() {
        assert!(is_trusted(0, 0) && is_trusted(0, 1000) && is_trusted(1000, 1000));
        assert!(!is_trusted(1000, 0) && !is_trusted(1000, 1001));
    }

    #[test]
    fn keys_are_text() {
        let key = [0xa5; 32];
        assert_eq!(parse(&format_key(&key)), Some(Key(key)));
        assert_eq!(parse(""), None);
        assert_eq!(parse(&"g".repeat(64)), None);
        assert_eq!(parse(&"a".repeat(63)), None);
    }
}
