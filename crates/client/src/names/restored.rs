//! Released files: whoever needs the data has it restored, and waits (`docs/hsm.md#reading`).

use std::sync::Arc;
use std::time::Duration;

use proto::hsm::{Action, ActionState};
use proto::wire::messages::AskHsm;
use proto::{Code, Cred, Fid, Layout};

use crate::data::FileState;
use crate::names::relaid::Layouts;
use crate::{Error, Result};

/// Waiting time after a first question; doubles up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

impl Layouts {
    /// The layout of a file as `file` knows it, once its data is there.
    pub(crate) async fn there(self: &Arc<Self>, file: &Arc<FileState>) -> Result<Arc<Layout>> {
        loop {
            let layout = file.layout()?;
            if !layout.is_released() {
                return Ok(layout);
            }
            file.set_layout(Box::pin(self.restored(file.fid)).await?);
        }
    }

    /// Waits until the data of a file is there; gives its layout then. It waits for a copytool as long as nobody says that the data
    /// cannot be had.
    pub(crate) async fn restored(self: &Arc<Self>, fid: Fid) -> Result<Option<Layout>> {
        let (mut cookie, mut pause) = (0, PAUSE_MIN);
        loop {
            let layout = self.fetch_entry(fid).await?.layout;
            if layout.as_ref().is_none_or(|layout| !layout.is_released()) {
                return Ok(layout);
            }
            let action = Action::Restore as u8;
            let ask = AskHsm { fid, action, archive: 0, cookie, cred: Cred::root() };
            match self.targets.settled_mdt_of(fid).await?.call(ask).await {
                Ok(asked) => match asked.reply.state() {
                    ActionState::Failed | ActionState::Canceled => {
                        let why = asked.reply.failure();
                        tracing::warn!(%fid, %why, "a released file cannot be read: its data was not restored");
                        return Err(Error::Refused(Code::Io));
                    }
                    // It was restored, and may have been released again since: that is another action.
                    ActionState::Succeeded => cookie = 0,
                    _ => cookie = asked.reply.cookie,
                },
                // There are too many, or the coordinator is shut down.
                Err(Error::Refused(Code::Busy)) => cookie = 0,
                Err(error) => return Err(error),
            }
            self.rt.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Whether the data has to be restored before what was refused can be done.
pub(crate) fn is_released(error: Error) -> bool {
    error == Error::Refused(Code::Released)
}
