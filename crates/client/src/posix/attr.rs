//! chmod(2), chown(2), utimensat(2), truncate(2).

use proto::Fid;
use proto::types::{MODE_SETGID, MODE_SETUID};

use super::{Posix, Result};
use crate::{AttrChange, Caller, Handle, Told};

impl Posix {
    /// Attributes.
    pub async fn getattr(&self, fid: Fid) -> Result<Told> {
        match fid {
            Fid::ROOT => self.getattr_root().await,
            fid => Ok(self.client.names().getattr(fid).await?),
        }
    }

    /// Changes attributes.
    pub async fn setattr(
        &self,
        caller: &Caller,
        fid: Fid,
        mut change: AttrChange,
        handle: Option<Handle>,
    ) -> Result<Told> {
        if fid == Fid::ROOT {
            self.away.forget();
        }
        if change.mode.is_some_and(|mode| mode & (MODE_SETUID | MODE_SETGID) != 0) {
            self.opens.privileges_are_on(fid);
        }
        // No system call changes the mode together with something else. The kernel adds the mode to a change of size
        // or owner to take privilege bits away, which the caller need not be permitted to do by itself.
        let other_change = change.size.is_some() || change.uid.is_some() || change.gid.is_some();
        let killed = if other_change { change.mode.take() } else { None };
        let Some(mode) = killed else {
            return Ok(self.client.files().setattr(caller, fid, change, handle).await?);
        };
        {
            let told = self.client.files().setattr(caller, fid, change, handle).await?;
            if told.mode & 0o7777 == mode & 0o7777 {
                return Ok(told);
            }
        }
        let change = AttrChange { mode: Some(mode & 0o7777), ..AttrChange::default() };
        Ok(self.client.files().setattr(&Caller::root(), fid, change, None).await?)
    }
}
