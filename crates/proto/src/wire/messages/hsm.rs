//! What an MDT is asked of files that have a copy in an archive. Rules: `docs/hsm.md`.

use crate::code::Code;
use crate::hsm::{Action, ActionState};
use crate::ids::Fid;
use crate::time::Timestamp;
use crate::types::Cred;
use crate::wire::messages::SizeUpdate;
use crate::wire_struct;

/// Most actions that a copytool gets at a time.
pub const HSM_ACTIONS_MAX: u32 = 1024;
/// Longest name of a copytool, in bytes.
pub const HSM_AGENT_BYTES_MAX: usize = 255;
/// Longest time that a copytool may wait for actions, in milliseconds.
pub const HSM_WAIT_MAX_MS: u32 = 10_000;

/// [`SetHsm::change`]: `set` and `clear` say flags; `archive` the archive, unless it is 0.
pub const HSM_SET_FLAGS: u8 = 0;
/// [`SetHsm::change`]: a copytool begins to read the data, for `copy`. Refused with Busy while somebody has the file open for writing.
pub const HSM_BEGIN_ARCHIVE: u8 = 1;
/// [`SetHsm::change`]: `archive` has a copy, durably. It is complete if nothing can have changed since `copy` began.
pub const HSM_END_ARCHIVE: u8 = 2;
/// [`SetHsm::change`]: the copy in the archive is about to be removed. Refused if the data is there alone.
pub const HSM_FORGET: u8 = 3;

wire_struct! {
    /// Asks for the HSM state of a file.
    pub struct GetHsm {
        /// The file.
        pub fid: Fid,
    }
}

wire_struct! {
    /// The HSM state of a file.
    pub struct HsmState {
        /// Bits of [`crate::hsm::flag`].
        pub flags: u32,
        /// The archive that has the copy; 0 for none.
        pub archive: u32,
        /// What is going on, or waits to: a number of [`Action`], 0 for nothing.
        pub action: u8,
        /// One of [`ActionState`].
        pub state: u8,
        /// Bytes that are copied.
        pub done: u64,
        /// Names the copy in the archive; 0 for none.
        pub copy: u64,
        /// Of an answer to [`SetHsm`]: the copy that counted before, and can go; 0 for none.
        pub replaced: u64,
    }
}

wire_struct! {
    /// Changes the HSM state of a file.
    pub struct SetHsm {
        /// The file.
        pub fid: Fid,
        /// One of `HSM_*`.
        pub change: u8,
        /// Flags that are set.
        pub set: u32,
        /// Flags that are cleared.
        pub clear: u32,
        /// The archive.
        pub archive: u32,
        /// Not read; 0.
        pub cookie: u64,
        /// Names the copy. No two copies have the same name, so that nobody writes over what counts.
        pub copy: u64,
        /// Who asks.
        pub cred: Cred,
        /// Time of the application's call.
        pub time: Timestamp,
    }
}

wire_struct! {
    /// Gives the data of a file up, which an archive has: its objects become those of a file without a name, and go with it. Whoever
    /// asks has sealed the layout ([`super::SealLayout`]). Refused with Busy if the archive may have other data.
    pub struct ReleaseData {
        /// The file.
        pub fid: Fid,
        /// A file without a name that takes the objects over.
        pub with: Fid,
        /// The generation of the file's layout; refused with Busy if it has another one.
        pub generation: u32,
        /// Who asks: the owner.
        pub cred: Cred,
        /// The size, for a file whose last writer was lost.
        pub size: SizeUpdate,
    }
}

wire_struct! {
    /// Asks for an action on a file. Answered at once: a copytool does it later. The same question joins the action that is there.
    pub struct AskHsm {
        /// The file.
        pub fid: Fid,
        /// A number of [`Action`]; 0 cancels what is asked for of the file.
        pub action: u8,
        /// The archive; 0 for the one that has a copy, or the default.
        pub archive: u32,
        /// Of an action that was asked for before: tells how it ended. 0 for none.
        pub cookie: u64,
        /// Who asks.
        pub cred: Cred,
    }
}

wire_struct! {
    /// How an action stands.
    pub struct HsmAsked {
        /// Of the action; 0 if there is nothing to do.
        pub cookie: u64,
        /// One of [`ActionState`].
        pub state: u8,
        /// Why it failed; 0 otherwise.
        pub code: u32,
    }
}

wire_struct! {
    /// A copytool asks for work, and says that it is there.
    pub struct TakeHsm {
        /// The copytool, as `hsm.agents` shows it.
        pub agent: String,
        /// The archives that it serves; empty for all.
        pub archives: Vec<u32>,
        /// What it works on: all else that it got is given out again.
        pub working: Vec<HsmProgress>,
        /// Most actions that it takes.
        pub max: u32,
        /// How long it waits for one, in milliseconds.
        pub wait_ms: u32,
    }
}

wire_struct! {
    /// How far a copytool is with an action.
    pub struct HsmProgress {
        /// Of the action.
        pub cookie: u64,
        /// Bytes that are copied.
        pub done: u64,
    }
}

wire_struct! {
    /// Work for a copytool.
    pub struct HsmWork {
        /// What it is to do.
        pub actions: Vec<HsmItem>,
        /// Of what it works on: what nobody wants any more.
        pub canceled: Vec<u64>,
    }
}

wire_struct! {
    /// An action for a copytool.
    pub struct HsmItem {
        /// Of the action.
        pub cookie: u64,
        /// The file.
        pub fid: Fid,
        /// A number of [`Action`].
        pub action: u8,
        /// The archive.
        pub archive: u32,
    }
}

wire_struct! {
    /// A copytool is done with an action.
    pub struct EndHsm {
        /// Of the action.
        pub cookie: u64,
        /// The copytool.
        pub agent: String,
        /// Why it failed; 0 if it did not.
        pub code: u32,
    }
}

impl HsmAsked {
    /// How the action stands; an unknown state is one of failure.
    pub fn state(&self) -> ActionState {
        ActionState::of(self.state).unwrap_or(ActionState::Failed)
    }

    /// Why the action failed.
    pub fn failure(&self) -> Code {
        Code::from_u32(self.code).unwrap_or(Code::Io)
    }
}

impl HsmItem {
    /// The action; `None` for one that this version does not know.
    pub fn action(&self) -> Option<Action> {
        Action::of(self.action)
    }
}
