//! POSIX: what a system call means to the client. A mount, a library for programs, and benchmarks share it.
//!
//! [`walk`] follows paths, [`files`] is what is done through descriptors, [`attr`] changes attributes, [`dirs`] are directory streams,
//! [`away`] is the root while nobody answers, [`errno`] the numbers that programs see. [`opens`] knows what is open, where a handle alone does not say what a write means.

mod attr;
mod away;
mod dirs;
mod errno;
mod files;
mod opens;
mod walk;

use std::sync::Arc;

use crate::Client;

use away::Away;
use dirs::Dirs;
pub use dirs::Item;
pub use errno::{Errno, Result};
pub use files::WriteRequest;
use opens::Opens;
pub use walk::{Process, Walked};

/// Whose access times are not kept, as mount options say. The kernel leaves access times to the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessTimes {
    /// Nobody's: `noatime`.
    pub none: bool,
    /// Not directories': `nodiratime`.
    pub no_directories: bool,
}

/// A mounted file system, as programs know file systems.
pub struct Posix {
    client: Arc<Client>,
    opens: Opens,
    dirs: Dirs,
    access_times: AccessTimes,
    away: Away,
}

impl Posix {
    /// Of a client.
    pub fn new(client: Arc<Client>, access_times: AccessTimes) -> Posix {
        Posix { client, opens: Opens::default(), dirs: Dirs::default(), access_times, away: Away::default() }
    }

    /// The file system below.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }
}
