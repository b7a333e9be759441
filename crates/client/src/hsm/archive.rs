//! What a copytool does to archive a file, and to remove what is archived.

use std::time::Duration;

use proto::wire::messages::{HSM_BEGIN_ARCHIVE, HSM_END_ARCHIVE, HSM_FORGET, HsmState, SetHsm};
use proto::{Attr, Code, Fid};

use crate::{Caller, Client, Error, Result};

/// How often it is looked whether nobody writes any more, and how long it is waited between.
const QUIET_LOOKS: usize = 20;
const QUIET_PAUSE: Duration = Duration::from_millis(250);

impl Client {
    /// From now on the MDT notices who may change the data. Gives the attributes of what is to be copied. If somebody goes on writing,
    /// the copy is made, and is an old one.
    ///
    /// # Errors
    /// `Released`: there is nothing to copy. `NotPermitted`: the file is not to be archived.
    pub async fn hsm_begin_archive(&self, fid: Fid, copy: u64) -> Result<Attr> {
        for _ in 0..QUIET_LOOKS {
            let begin = SetHsm { copy, ..self.hsm_change(fid, HSM_BEGIN_ARCHIVE) };
            match self.change_hsm(&Caller::root(), begin).await {
                // Closes come a moment after close(2).
                Err(Error::Refused(Code::Busy)) => self.shared.rt.sleep(QUIET_PAUSE).await,
                begun => {
                    begun?;
                    break;
                }
            }
        }
        let entry = self.shared.names.layouts.fetch_entry(fid).await?;
        self.shared.names.sizes.complete(&entry).await
    }

    /// The archive has a copy, durably. The file is dirty if anybody may have changed it meanwhile. The answer says which copy counts
    /// from now on, and which one can go.
    ///
    /// # Errors
    /// `Released`: another copy counts.
    pub async fn hsm_end_archive(&self, fid: Fid, (archive, copy): (u32, u64)) -> Result<HsmState> {
        let end = SetHsm { archive, copy, ..self.hsm_change(fid, HSM_END_ARCHIVE) };
        self.change_hsm(&Caller::root(), end).await
    }

    /// The archive's copy counts no more: the answer says which one can be removed.
    ///
    /// # Errors
    /// `NotPermitted`: it is all that there is of the data.
    pub async fn hsm_forget(&self, fid: Fid) -> Result<HsmState> {
        let forget = self.hsm_change(fid, HSM_FORGET);
        self.change_hsm(&Caller::root(), forget).await
    }
}
