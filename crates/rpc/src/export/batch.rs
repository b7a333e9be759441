//! The answers to the requests of one batch: those that are there at once go back in one frame.

use parking_lot::Mutex;
use proto::TargetId;
use proto::wire::Header;
use proto::wire::batch::{self, Filling, Member};
use proto::wire::header::SLOT_NONE;
use rt::Frame;

use super::admission::Class;
use crate::frame;

/// Answers that wait for each other while their batch is being begun. What takes longer is answered alone.
pub(super) struct Answers {
    target: TargetId,
    session: u64,
    session_epoch: u64,
    gathered: Mutex<Option<Gathered>>,
}

#[derive(Default)]
struct Gathered {
    /// Of the newest answer: its marks hold for those before, too.
    header: Option<Header>,
    members: Vec<Member>,
    filling: Filling,
    classes: Vec<Class>,
}

impl Answers {
    /// For a batch with this header.
    pub(super) fn new(header: &Header) -> Answers {
        let Header { target, session, session_epoch, .. } = *header;
        Answers { target, session, session_epoch, gathered: Mutex::new(Some(Gathered::default())) }
    }

    /// Takes an answer without bulk in; false if it has to be sent alone.
    pub(super) fn add(&self, header: &Header, body: &[u8], class: Class) -> bool {
        if (header.target, header.session) != (self.target, self.session)
            || header.session_epoch != self.session_epoch
        {
            return false;
        }
        let mut gathered = self.gathered.lock();
        let Some(gathered) = gathered.as_mut() else { return false };
        if !gathered.filling.add(body.len()) {
            return false;
        }
        gathered.members.push(Member {
            opcode: header.opcode,
            flags: 0,
            status: header.status,
            xid: header.xid,
            transno: header.transno,
            slot: SLOT_NONE,
            body: body.to_vec().into(),
        });
        gathered.classes.push(class);
        let mut newest = header.clone();
        if let Some(before) = &gathered.header {
            newest.last_committed = newest.last_committed.max(before.last_committed);
            if newest.room.0 == 0 {
                newest.room = before.room;
            }
        }
        gathered.header = Some(newest);
        true
    }

    /// The frame with what is there, and how its requests counted. From now on every answer is sent alone.
    pub(super) fn close(&self) -> Option<(Frame, Vec<Class>)> {
        let Gathered { header, members, classes, .. } = self.gathered.lock().take()?;
        let mut header = header?;
        let frame = match &members[..] {
            [one] => {
                (header.opcode, header.status) = (one.opcode, one.status);
                frame::encode(header, &one.body)
            }
            _ => {
                batch::mark(&mut header);
                frame::encode(header, &batch::encode(&members))
            }
        };
        Some((frame, classes))
    }
}
