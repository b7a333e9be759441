//! Changelogs, read through a mount. What `lfs changelog` and `lctl changelog_register` have in common.

use std::io;

use bytes::Bytes;
use fuse::changelog::{CHANGELOG, Order, USERS};
use fuse::session::MountEntry;
use proto::wire::messages::{ChangelogPage, ChangelogState, OrderChangelog};
use proto::wire::{Body, Reader};
use proto::{TargetId, TargetKind};

use crate::failure::Failure;
use crate::{ask, mountpoint};

/// The changelog of an MDT of a file system that is mounted here.
pub struct Changelog {
    mount: MountEntry,
    target: TargetId,
    /// `w-MDT0000`.
    pub name: String,
}

impl Changelog {
    /// The one of the MDT that `name` names: `w-MDT0000`.
    pub fn find(name: &str) -> Result<Changelog, Failure> {
        let wrong = || {
            Failure::usage(format!("{name} names no MDT: write it as in w-MDT0000, 'lfs mdts' lists them"))
        };
        let (fsname, target) = name.rsplit_once('-').ok_or_else(wrong)?;
        let target: TargetId = target.trim_end_matches("_UUID").parse().map_err(|_| wrong())?;
        if target.kind != TargetKind::Mdt {
            return Err(wrong());
        }
        for mount in mountpoint::survey()?.mounts {
            if mount.status.fsname != fsname {
                continue;
            }
            let Ok(config) = ask::configuration(&mount.entry) else { continue };
            if !config.targets.iter().any(|known| known.id() == target) {
                return Err(Failure::new(format!("{fsname} has no {target}; 'lfs mdts' lists its MDTs")));
            }
            return Ok(Changelog { mount: mount.entry, target, name: name.to_owned() });
        }
        Err(Failure::new(format!("no file system {fsname} is mounted here, and answers")))
    }

    /// The one that a mount asks.
    pub fn at(mount: &MountEntry, target: TargetId, name: &str) -> Changelog {
        Changelog { mount: mount.clone(), target, name: name.to_owned() }
    }

    /// Records behind one, some at a time; none if there are no more.
    pub fn page(&self, behind: u64) -> Result<ChangelogPage, Failure> {
        self.get(&behind.to_string())
    }

    /// Who reads it.
    pub fn state(&self) -> Result<ChangelogState, Failure> {
        self.get(USERS)
    }

    /// The same for a reader who waits for more anyhow: none, too, while the server is away.
    pub fn page_when_there(&self, behind: u64) -> Result<ChangelogPage, Failure> {
        match self.ask(&behind.to_string()) {
            Err(error) if error.raw_os_error() == Some(libc::EHOSTUNREACH) => {
                Ok(ChangelogPage { records: Vec::new() })
            }
            answer => self.decoded(answer),
        }
    }

    fn ask(&self, what: &str) -> io::Result<Vec<u8>> {
        ask::bytes(&self.mount, &format!("{CHANGELOG}{}.{what}", self.target))
    }

    fn get<T: Body>(&self, what: &str) -> Result<T, Failure> {
        self.decoded(self.ask(what))
    }

    fn decoded<T: Body>(&self, answer: io::Result<Vec<u8>>) -> Result<T, Failure> {
        let bytes = answer.map_err(|error| self.refused(&error))?;
        T::take_fields(&mut Reader::new(Bytes::from(bytes))).map_err(|_| {
            Failure::new(format!("{}: its answer is not understood; it may run another version", self.name))
        })
    }

    /// Gives an order.
    pub fn order(&self, order: OrderChangelog) -> io::Result<()> {
        let text = Order(order).to_string();
        ask::set(&self.mount, &format!("{CHANGELOG}{}", self.target), text.as_bytes())
    }

    /// Why it was refused.
    pub fn refused(&self, error: &io::Error) -> Failure {
        let why = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => "only root may read and order that".to_owned(),
            Some(libc::EOPNOTSUPP | libc::ENODATA | libc::ENOTTY) => {
                "its server, or the mount, runs an older version without a changelog".to_owned()
            }
            Some(libc::EHOSTUNREACH) => "it does not answer".to_owned(),
            _ => crate::control::describe(error),
        };
        Failure::new(format!("{}: {why}", self.name))
    }
}

/// The number of the reader `cl1`.
pub fn user(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("cl").and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        "write a reader as in cl1, 'lctl get_param mdd.*.changelog_users' lists them".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_have_numbers() {
        assert_eq!(user("cl12"), Ok(12));
        for wrong in ["12", "cl", "cl-1", "clx"] {
            assert!(user(wrong).is_err(), "{wrong}");
        }
    }
}
