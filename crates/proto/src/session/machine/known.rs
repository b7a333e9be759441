//! What is known of a session, and what its client knows of that.

use crate::code::Code;
use crate::ids::{TargetId, Xid};
use crate::job::JobId;
use crate::session::Message;
use crate::wire::Header;
use crate::wire::header::SLOT_NONE;

/// What a client was told last of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    Open,
    Lost,
}

impl Told {
    /// The session goes on: true if the client has to be told, because it does not know.
    pub fn tell_open(&mut self) -> bool {
        let changes = *self == Told::Lost;
        if changes {
            *self = Told::Open;
        }
        changes
    }

    /// After the connection was lost: who was told of none has nothing to lose.
    pub fn lost(self) -> Told {
        match self {
            Told::Nothing => Told::Nothing,
            Told::Open | Told::Lost => Told::Lost,
        }
    }
}

/// What both sides know of the session.
#[derive(Debug)]
pub struct Known {
    /// As the target named it; 0 before the first.
    pub session: u64,
    /// The same as callers see it; 0 also after it was forgotten here.
    pub shown: u64,
    /// The newest epoch.
    pub epoch: u64,
    /// The target's boot; 0 while there is no session.
    pub boot: u64,
    /// How often the client has heard that the target had forgotten it.
    pub era: u64,
    /// Grows whenever the target knew nothing of this client: transnos of before and after do not compare.
    pub generation: u64,
    /// How often in a row the target knew a larger epoch.
    pub(super) outgrown: u32,
    /// What both sides have.
    pub features: u64,
    /// The target takes several requests in one frame.
    pub(super) batches: bool,
    /// The target takes the names of jobs.
    pub(super) jobs: bool,
    /// The target restarted, and was not told yet that no more replays come.
    pub(super) recovering: bool,
}

/// What went wrong.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Why the last attempt to reach the target failed; `None` while it is reached.
    pub problem: Option<String>,
    /// Counts refusals of a connect, so that each caller sees those that came while it waited.
    pub refusals: u64,
    /// Why the target has refused the client the last time.
    pub refusal: Option<Code>,
    /// How often the target had forgotten this client, and with it changes or requests.
    pub evictions: u64,
}

impl Known {
    /// A session that was never opened.
    pub(super) fn new(epoch: u64) -> Known {
        Known {
            session: 0,
            shown: 0,
            epoch,
            boot: 0,
            outgrown: 0,
            features: 0,
            batches: false,
            jobs: false,
            era: 0,
            generation: 0,
            recovering: false,
        }
    }

    /// The header of a request of this session.
    pub(super) fn header(&self, target: TargetId, message: &Message, xid: Xid, slot: Option<u32>) -> Header {
        Header {
            session: self.session,
            session_epoch: self.epoch,
            slot: slot.unwrap_or(SLOT_NONE),
            job: if self.jobs { message.job } else { JobId::NONE },
            ..Header::plain(message.opcode, target, xid)
        }
    }
}
