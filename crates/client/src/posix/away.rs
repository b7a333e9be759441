//! The root of a mount while its MDT is away. `df` and `umount` look at it, open it, and ask for the space: they are not to wait until a
//! server is back (`docs/posix.md#away`). Nothing below the root can be reached by what is told here.

use std::collections::BTreeMap;
use std::pin::pin;

use proto::{Attr, Fid, TargetId};

use super::{Posix, Result};
use crate::order::{LEAF, Mutex};
use crate::{Caller, Handle, OpenFlags, Told};

/// Handles of the root that nobody was asked for are numbered from here on; the client counts its own up from 1.
const FIRST: u64 = 1 << 63;

/// What is known of the root, and who opened it while nobody could be asked.
#[derive(Default)]
pub(super) struct Away {
    /// Its attributes, as they were told last.
    root: Mutex<LEAF, Option<Attr>>,
    opened: Mutex<LEAF, Opened>,
}

#[derive(Default)]
struct Opened {
    /// By handle: for whom the right to read is still to be checked, if for anybody.
    by: BTreeMap<u64, Option<Caller>>,
    count: u64,
}

impl Away {
    /// What was told of the root is not true any more.
    pub(super) fn forget(&self) {
        *self.root.lock() = None;
    }

    /// A handle of the root.
    fn open(&self, caller: &Caller) -> Handle {
        let mut opened = self.opened.lock();
        opened.count += 1;
        let number = FIRST + opened.count;
        opened.by.insert(number, Some(caller.clone()));
        Handle(number)
    }

    /// Whether it is a handle of [`Away::open`].
    pub(super) fn has(handle: Handle) -> bool {
        handle.0 >= FIRST
    }

    /// A handle of [`Away::open`] is not open any more.
    pub(super) fn close(&self, handle: Handle) {
        self.opened.lock().by.remove(&handle.0);
    }
}

impl Posix {
    /// What `asked` gives, or nothing if the MDT is away.
    async fn unless_away<T>(&self, asked: impl Future<Output = T>) -> Option<T> {
        let (mut asked, admin) = (pin!(asked), self.client.admin());
        loop {
            match admin.glance(asked.as_mut()).await {
                None if admin.is_away(TargetId::mdt(0)) => return None,
                None => {}
                given => return given,
            }
        }
    }

    /// Attributes of the root; as they were told last if the MDT is away.
    pub(super) async fn getattr_root(&self) -> Result<Told> {
        let asked = self.client.names().getattr(Fid::ROOT);
        let Some(told) = self.unless_away(asked).await else {
            let before = self.away.root.lock().clone();
            return match before {
                Some(attr) => Ok(Told::once(attr)),
                None => Ok(self.client.names().getattr(Fid::ROOT).await?),
            };
        };
        let told = told?;
        *self.away.root.lock() = Some(told.attr.clone());
        Ok(told)
    }

    /// Opens the root to read its entries. If the MDT is away, reading them waits for it, and it checks the right to do so then.
    pub(super) async fn open_root(&self, caller: &Caller, flags: OpenFlags) -> Result<Handle> {
        match self.unless_away(self.client.files().open(caller, Fid::ROOT, flags)).await {
            Some(opened) => Ok(opened?),
            None => Ok(self.away.open(caller)),
        }
    }

    /// Whoever opened the root while nobody could be asked may read it.
    pub(super) async fn check_root(&self, handle: Handle) -> Result<()> {
        let caller = self.away.opened.lock().by.get(&handle.0).cloned().flatten();
        if let Some(caller) = caller {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let opened = self.client.files().open(&caller, Fid::ROOT, flags).await?;
            self.client.files().release(opened).await;
            if let Some(unchecked) = self.away.opened.lock().by.get_mut(&handle.0) {
                *unchecked = None;
            }
        }
        Ok(())
    }
}
