//! HSM: files whose data has a copy in an archive (FEATURES I7). Rules: `docs/hsm.md`.
//!
//! For whoever asks for actions: state, flags, requests, and [`release`]. For copytools: [`copytool`], with what it reads ([`archive`]) and
//! writes ([`restore`]). Whoever reads released data waits for it in [`crate::names`].

mod archive;
mod copytool;
mod release;
mod restore;

pub use copytool::{Archive, Copy, Copytool, CopytoolOptions, Done, Get, Put};
pub use restore::Restoring;

use proto::hsm::Action;
use proto::wire::messages::{
    AskHsm, EndHsm, GetHsm, HSM_SET_FLAGS, HsmAsked, HsmState, HsmWork, SetHsm, TakeHsm,
};
use proto::{Code, Cred, Fid};
use rt::BoxFuture;

use crate::{Caller, Client, Result};

/// Flags of a file that are to change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HsmFlags {
    /// Bits of [`proto::hsm::flag`] that are set.
    pub set: u32,
    /// Those that are cleared.
    pub clear: u32,
    /// The archive; 0 for the one that it has.
    pub archive: u32,
}

impl Client {
    /// The HSM state of a regular file.
    pub async fn hsm_state(&self, fid: Fid) -> Result<HsmState> {
        Ok(self.shared.targets.settled_mdt_of(fid).await?.call(GetHsm { fid }).await?.reply)
    }

    /// Sets and clears flags (`lfs hsm_set`, `lfs hsm_clear`).
    ///
    /// # Errors
    /// `NotPermitted`: the caller may not, or the archive has all that there is of the data.
    pub async fn hsm_set(&self, caller: &Caller, fid: Fid, flags: HsmFlags) -> Result<HsmState> {
        let HsmFlags { set, clear, archive } = flags;
        self.change_hsm(caller, SetHsm { set, clear, archive, ..self.hsm_change(fid, HSM_SET_FLAGS) }).await
    }

    fn hsm_change(&self, fid: Fid, change: u8) -> SetHsm {
        let time = self.shared.names.clock.time();
        SetHsm { fid, change, set: 0, clear: 0, archive: 0, cookie: 0, copy: 0, cred: Cred::root(), time }
    }

    fn change_hsm<'a>(&'a self, caller: &'a Caller, change: SetHsm) -> BoxFuture<'a, Result<HsmState>> {
        Box::pin(async move {
            let fid = change.fid;
            let _changing = self.shared.names.meta.inodes.change(&[fid], &[]);
            let set = |cred| SetHsm { cred, ..change.clone() };
            let answered = self.shared.targets.ask(fid, caller, set).await?;
            self.shared.names.meta.changes.changed(fid, answered.transno);
            Ok(answered.reply)
        })
    }

    /// Asks for an action; a copytool does it later. `None` cancels what was asked for of the file.
    pub async fn hsm_ask(
        &self,
        caller: &Caller,
        fid: Fid,
        action: Option<Action>,
        archive: u32,
    ) -> Result<HsmAsked> {
        self.shared.names.ahead.share(fid).await;
        self.shared.names.sizes.close_soon(fid);
        let action = action.map_or(0, |action| action as u8);
        let ask = |cred| AskHsm { fid, action, archive, cookie: 0, cred };
        Ok(self.shared.targets.ask(fid, caller, ask).await?.reply)
    }

    /// Takes work as a copytool, and waits for it as long as `take` says.
    pub async fn hsm_take(&self, take: TakeHsm) -> Result<HsmWork> {
        Ok(self.shared.targets.first_mdt()?.call(take).await?.reply)
    }

    /// A copytool is done with an action; `why` says why it failed.
    pub async fn hsm_end(&self, agent: &str, (fid, cookie): (Fid, u64), why: Option<Code>) -> Result<()> {
        let end = EndHsm { cookie, agent: agent.to_owned(), code: why.map_or(0, Code::to_u32) };
        self.shared.targets.settled_mdt_of(fid).await?.call(end).await.map(|_| ())
    }
}
