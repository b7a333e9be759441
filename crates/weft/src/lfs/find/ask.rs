//! Pages of a search, from the process behind a mount.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use bytes::Bytes;
use fuse::control;
use fuse::session::MountEntry;
use proto::Fid;
use proto::wire::messages::{Find, FoundPage};
use proto::wire::{Body, Reader};

use crate::ask::{self, Way};
use crate::mountpoint;

/// Bytes of a page that the process itself hands over, and of one that comes as an attribute through the kernel.
const PAGE_BYTES: u32 = 900 << 10;
const ATTRIBUTE_PAGE_BYTES: u32 = 40 << 10;
/// Bytes of a question that fit into the name of an attribute.
const PART_BYTES: usize = 100;
/// How often a question is asked again that the mount has forgotten because others asked much.
const TRIES_MAX: usize = 10;

/// Why there is no page.
#[derive(Debug)]
pub enum Error {
    /// The moment as of which the search looked at the file system has gone.
    Ended,
    /// What it began with, or the directory that it was in, was removed or moved away.
    Gone,
    /// It cannot be had, in a sentence.
    Refused(String),
}

impl Error {
    /// What a user is told.
    pub fn sentence(self) -> String {
        match self {
            Error::Ended => "the search waited too long, or a server restarted".to_owned(),
            Error::Gone => "it was removed or moved away during the search".to_owned(),
            Error::Refused(why) => why,
        }
    }
}

/// The mount that a place lies in, to be asked for what lies below.
pub struct Asked {
    mount: MountEntry,
    /// The place.
    pub fid: Fid,
    attribute: String,
    way: Way,
}

impl Asked {
    /// Who is asked about what lies below `start`.
    pub fn of(start: &OsStr) -> Result<Asked, String> {
        let path = Path::new(start);
        // As the kernel resolves it: what the user may not reach stays out of reach.
        let fid = crate::control::get_text_of_link(path, control::FID).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOTTY | libc::ENODATA) => "not in a weft file system".to_owned(),
                _ => crate::control::describe(&error),
            }
        })?;
        let fid = fid.parse().map_err(|_| "the mount names no file for it".to_owned())?;
        // A link is in the file system of its directory, wherever it leads.
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|of| of.is_symlink());
        let place = match path.parent() {
            Some(parent) if is_link && parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) if is_link => parent,
            _ => path,
        };
        let mount = mountpoint::containing(place).map_err(|failure| failure.message)?;
        let mount = mount.ok_or_else(|| "not in a weft file system".to_owned())?;
        let attribute = format!("{}{}", control::FIND, std::process::id());
        Ok(Asked { mount, fid, attribute, way: Way::Socket })
    }

    /// The same mount, to be asked at the same time; each one has another `number`, from 1.
    pub fn beside(&self, number: usize) -> Asked {
        let (mount, attribute) = (self.mount.clone(), format!("{}.{number}", self.attribute));
        Asked { mount, fid: self.fid, attribute, way: self.way }
    }

    /// The mount.
    pub fn mount(&self) -> &MountEntry {
        &self.mount
    }

    /// The page that `find` asks for.
    pub fn page(&mut self, find: &mut Find) -> Result<FoundPage, Error> {
        for _ in 0..TRIES_MAX {
            find.bytes_max = if self.way == Way::Socket { PAGE_BYTES } else { ATTRIBUTE_PAGE_BYTES };
            let mut question = Vec::new();
            find.put_fields(&mut question);
            let way = self.way;
            let answer = self.say(&question).and_then(|()| ask::bytes_by(&self.mount, way, &self.attribute));
            match answer {
                Ok(bytes) => return decode(bytes),
                Err(error) if ask::is_closed(&error) && way == Way::Socket => self.way = Way::Attribute,
                Err(error) if error.raw_os_error() == Some(libc::ENODATA) => {}
                Err(error) => return Err(refused(find, &error)),
            }
        }
        Err(Error::Refused("the mount is asked for too many searches at once".to_owned()))
    }
}

impl Asked {
    /// Tells the mount what is asked.
    fn say(&self, question: &[u8]) -> io::Result<()> {
        if self.way == Way::Socket {
            return ask::set_by(&self.mount, self.way, &self.attribute, question);
        }
        // The kernel lets only those set attributes who may write to the directory, but everybody ask for one.
        for (n, part) in question.chunks(PART_BYTES).enumerate() {
            let digits: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
            let sign = if n == 0 { '=' } else { '+' };
            ask::bytes_by(&self.mount, self.way, &format!("{}{sign}{digits}", self.attribute))?;
        }
        Ok(())
    }
}

fn decode(bytes: Vec<u8>) -> Result<FoundPage, Error> {
    let page = FoundPage::take_fields(&mut Reader::new(Bytes::from(bytes)));
    page.map_err(|_| {
        Error::Refused("the mount's answer is not understood; it may run another version".to_owned())
    })
}

fn refused(find: &Find, error: &io::Error) -> Error {
    Error::Refused(match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => {
            "the servers do not know this search; they may run an older version".to_owned()
        }
        // What a server says of a moment that it has no more.
        Some(libc::ESTALE) if find.snapshot != 0 => return Error::Ended,
        Some(libc::ESTALE) => return Error::Gone,
        Some(libc::EBUSY) => "the metadata server has too many searches; try again later".to_owned(),
        Some(libc::E2BIG | libc::EINVAL) => "the expression is too long for one search".to_owned(),
        _ => crate::control::describe(error),
    })
}
