//! HSM through a mount (`docs/hsm.md`): `weft.hsm` of a file tells its state, and takes an order.

use client::hsm::HsmFlags;
use client::posix::{Errno, Result};
use client::{Caller, Client};
use proto::Fid;
use proto::hsm::Action;
use serde::{Deserialize, Serialize};

use crate::control;

/// The attribute.
pub const HSM: &str = "weft.hsm";

/// The HSM state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmFile {
    /// Bits of [`proto::hsm::flag`].
    pub flags: u32,
    /// The archive that has the copy; 0 for none.
    pub archive: u32,
    /// What is going on, or waits to: a number of [`Action`], 0 for nothing.
    pub action: u8,
    /// A number of [`proto::hsm::ActionState`].
    pub state: u8,
    /// Bytes that are copied.
    pub done: u64,
}

/// What is to be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum HsmOrder {
    /// A copytool copies it to an archive; 0 for the default one.
    Archive(u32),
    /// A copytool brings its data back.
    Restore,
    /// A copytool removes the copy.
    Remove,
    /// The data goes, which the archive has.
    Release,
    /// Whatever was asked for is wanted no more.
    Cancel,
    /// Flags are set and cleared.
    Flags {
        /// Bits of [`proto::hsm::flag`] that are set.
        set: u32,
        /// Those that are cleared.
        clear: u32,
        /// The archive; 0 for the one that it has.
        archive: u32,
    },
}

/// Tells the state of a file.
pub(crate) async fn get(client: &Client, fid: Fid) -> Result<Vec<u8>> {
    let state = client.hsm_state(fid).await?;
    Ok(control::encode(&HsmFile {
        flags: state.flags,
        archive: state.archive,
        action: state.action,
        state: state.state,
        done: state.done,
    }))
}

/// Gives an order.
pub(crate) async fn set(client: &Client, caller: &Caller, fid: Fid, value: &[u8]) -> Result<()> {
    let ask = |action, archive| client.hsm_ask(caller, fid, action, archive);
    match control::decode(value).map_err(|_| Errno::INVALID)? {
        HsmOrder::Archive(archive) => ask(Some(Action::Archive), archive).await.map(drop)?,
        HsmOrder::Restore => ask(Some(Action::Restore), 0).await.map(drop)?,
        HsmOrder::Remove => ask(Some(Action::Remove), 0).await.map(drop)?,
        HsmOrder::Cancel => ask(None, 0).await.map(drop)?,
        HsmOrder::Release => client.hsm_release(caller, fid).await?,
        HsmOrder::Flags { set, clear, archive } => {
            client.hsm_set(caller, fid, HsmFlags { set, clear, archive }).await.map(drop)?;
        }
    }
    Ok(())
}
