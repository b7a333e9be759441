//! FIDs for new files: from sequences that the MDT grants to this session, one at a time.

use std::sync::Arc;

use proto::wire::messages::{Created, GetSequence, Operation};
use proto::{Code, Cred, Fid};
use rpc::Answered;
use rt::Rt;
use rt::sync::Semaphore;

use crate::names::Changes;
use crate::order::{LEAF, Mutex};
use crate::targets::Targets;
use crate::{Caller, Error, Result};

/// With so few FIDs left, the next sequence is fetched in the background.
const LEFT_MIN: u32 = 4096;
/// So many sequences may be too old, one after the other.
const OLD_SEQUENCES_MAX: usize = 4;
/// FIDs that were taken and not used are kept for the next files; more are lost.
const UNUSED_MAX: usize = 1024;

#[derive(Default)]
struct State {
    /// The sequence in use and its next oid.
    current: Option<(u64, u32)>,
    /// Those that named nothing after all. A FID that never names anything would lie between those that are dead, for ever, and an OST keeps a
    /// tombstone on each side of it.
    unused: Vec<Fid>,
    spare: Option<u64>,
    fetching: bool,
    /// The session that has them; 0 before the first.
    session: u64,
}

/// Makes FIDs.
pub(crate) struct Fids {
    rt: Rt,
    targets: Arc<Targets>,
    changes: Arc<Changes>,
    state: Mutex<LEAF, State>,
    /// Held by the one caller that fetches while all others wait.
    gate: Semaphore,
}

impl State {
    /// A FID that was never used, and whether it is time to fetch another sequence.
    fn take(&mut self) -> Option<(Fid, bool)> {
        let state = self;
        if let Some(fid) = state.unused.pop() {
            return Some((fid, false));
        }
        if state.current.is_none_or(|(_, oid)| oid > Fid::OID_MAX) {
            state.current = state.spare.take().map(|seq| (seq, 1));
        }
        let (seq, oid) = state.current?;
        state.current = Some((seq, oid + 1));
        let low = Fid::OID_MAX - oid < LEFT_MIN && state.spare.is_none() && !state.fetching;
        state.fetching |= low;
        Some((Fid { seq, oid, ver: 0 }, low))
    }

    /// The same of the sequences of `session`.
    fn take_of(&mut self, session: u64) -> (Option<Fid>, bool) {
        if self.session == session
            && let Some((fid, low)) = self.take()
        {
            return (Some(fid), low);
        }
        (None, !std::mem::replace(&mut self.fetching, true))
    }

    /// The sequence `seq` names nothing new any more; the FIDs that others took of it are refused one by one.
    fn drop_sequence(&mut self, seq: u64) {
        self.current.take_if(|(current, _)| *current == seq);
        self.spare.take_if(|spare| *spare == seq);
        self.unused.retain(|fid| fid.seq != seq);
    }

    /// A FID of `session` that was taken named nothing, and nobody knows of it.
    fn give_back(&mut self, fid: Fid, session: u64) {
        // One of a sequence that was dropped, or that is over, is left alone.
        let is_current = self.current.is_some_and(|(seq, _)| seq == fid.seq);
        if session == self.session && is_current && self.unused.len() < UNUSED_MAX {
            self.unused.push(fid);
        }
    }

    /// Takes a sequence over; those of a session that is over are worth nothing.
    fn put(&mut self, seq: u64, session: u64) {
        let state = self;
        if session != state.session {
            *state = State { session, ..State::default() };
        }
        state.spare = Some(seq);
        state.fetching = false;
    }
}

impl Fids {
    pub(super) fn new(rt: Rt, targets: Arc<Targets>, changes: Arc<Changes>) -> Fids {
        Fids { rt, targets, changes, state: Mutex::default(), gate: Semaphore::new(1) }
    }

    /// A FID for a new file, and the session that its sequence was granted to.
    async fn new_fid(self: &Arc<Self>) -> Result<(Fid, u64)> {
        loop {
            let taken = {
                let mut state = self.state.lock();
                let session = state.session;
                state.take().map(|(fid, low)| (fid, low, session))
            };
            if let Some((fid, low, session)) = taken {
                self.fetch_if(low);
                return Ok((fid, session));
            }
            let _turn = self.gate.acquire().await.map_err(|_| Error::Closed)?;
            let empty = {
                let state = self.state.lock();
                state.spare.is_none() && state.current.is_none_or(|(_, oid)| oid > Fid::OID_MAX)
            };
            if empty {
                self.fetch_sequence().await?;
            }
        }
    }

    /// The same, of the sequences of `session`, if there is one without waiting. If there is none, one is fetched for those that come later: after
    /// a restart of the MDT the session has another name, and nobody knows whether the sequences of before are the client's still.
    pub(crate) fn at_hand(self: &Arc<Self>, session: u64) -> Option<Fid> {
        let (fid, low) = self.state.lock().take_of(session);
        self.fetch_if(low);
        fid
    }

    /// One that [`Fids::at_hand`] gave for `session` named nothing, and nobody knows of it.
    pub(crate) fn give_back(&self, fid: Fid, session: u64) {
        self.state.lock().give_back(fid, session);
    }

    /// Fetches the next sequence in the background, if it is time to.
    fn fetch_if(self: &Arc<Self>, low: bool) {
        if low {
            let fids = self.clone();
            self.rt.spawn(async move {
                if fids.fetch_sequence().await.is_err() {
                    fids.state.lock().fetching = false;
                }
            });
        }
    }

    async fn fetch_sequence(&self) -> Result<()> {
        let mdt = self.targets.first_mdt()?;
        let answered = mdt.call(GetSequence {}).await?;
        let (seq, session) = (answered.reply.seq, answered.session);
        if !(Fid { seq, oid: 1, ver: 0 }).is_sane() {
            return Err(Error::Refused(Code::Malformed));
        }
        self.state.lock().put(seq, session);
        Ok(())
    }

    /// Makes a file with a new FID below `parent`. Sequences belong to the session: if the MDT has forgotten this client, it
    /// refuses the FID, and one of a new sequence is taken, whether anything else was lost or not. The same is done if the sequence is
    /// older than an OST that took the place of a lost one.
    pub(crate) async fn make<O: Operation<Reply = Created>>(
        self: &Arc<Self>,
        parent: Fid,
        caller: &Caller,
        create: impl Fn(Fid, Cred) -> O,
    ) -> Result<Answered<Created>> {
        for _ in 0..OLD_SEQUENCES_MAX {
            let (fid, session) = self.new_fid().await?;
            let made = self.ask_made(parent, caller, |cred| create(fid, cred)).await;
            let is_of_before = match made {
                Err(Error::Refused(Code::OldSequence)) => true,
                Err(Error::Refused(Code::Invalid)) => self.targets.mdt_of(parent)?.session() != session,
                _ => false,
            };
            if !is_of_before {
                if is_unused(fid, &made) {
                    self.give_back(fid, session);
                }
                return made;
            }
            self.state.lock().drop_sequence(fid.seq);
        }
        let (fid, _) = self.new_fid().await?;
        self.ask_made(parent, caller, |cred| create(fid, cred)).await
    }

    async fn ask_made<O: Operation<Reply = Created>>(
        &self,
        parent: Fid,
        caller: &Caller,
        create: impl Fn(Cred) -> O,
    ) -> Result<Answered<Created>> {
        let made = self.targets.ask(parent, caller, create).await?;
        self.changes.changed(made.reply.attr.fid, made.transno);
        Ok(made)
    }
}

/// Whether the MDT has made nothing of `fid`: there was a file of that name, or none may be made.
fn is_unused(fid: Fid, made: &Result<Answered<Created>>) -> bool {
    match made {
        Ok(made) => made.reply.attr.fid != fid,
        Err(Error::Refused(code)) => {
            matches!(code, Code::Exists | Code::NotFound | Code::AccessDenied | Code::NotDirectory)
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_named_nothing_is_used_again() {
        let fid = |seq, oid| Fid { seq, oid, ver: 0 };
        let mut fids = State::default();
        fids.put(0x2_0000_0400, 1);
        let taken: Vec<Fid> = (0..3).filter_map(|_| fids.take_of(1).0).collect();
        assert_eq!(taken, [1, 2, 3].map(|oid| fid(0x2_0000_0400, oid)));
        fids.give_back(taken[1], 1);
        fids.give_back(taken[0], 2);
        fids.give_back(fid(0x2_0000_0300, 7), 1);
        let next: Vec<Fid> = (0..2).filter_map(|_| fids.take_of(1).0).collect();
        assert_eq!(next, [2, 4].map(|oid| fid(0x2_0000_0400, oid)), "of another session or sequence none is");
        fids.give_back(taken[2], 1);
        fids.drop_sequence(0x2_0000_0400);
        assert_eq!(fids.take_of(1).0, None);
    }

    #[test]
    fn sequences_of_another_session_are_not_at_hand() {
        let mut fids = State::default();
        assert_eq!(fids.take_of(1), (None, true));
        assert_eq!(fids.take_of(1), (None, false), "it is being fetched");
        fids.put(0x2_0000_0400, 1);
        let first = |seq| Some(Fid { seq, oid: 1, ver: 0 });
        assert_eq!(fids.take_of(1), (first(0x2_0000_0400), false));
        assert_eq!(fids.take_of(2), (None, true));
        fids.put(0x2_0000_0401, 2);
        assert_eq!(fids.take_of(2), (first(0x2_0000_0401), false));
    }

    #[test]
    fn a_sequence_is_used_to_its_end_and_then_the_next() {
        let mut fids = State::default();
        assert!(fids.take().is_none());
        fids.put(0x2_0000_0400, 0);
        let mut asked = 0;
        for oid in 1..=Fid::OID_MAX {
            let (fid, low) = fids.take().expect("the sequence lasts");
            assert_eq!((fid.seq, fid.oid), (0x2_0000_0400, oid));
            asked += u32::from(low);
        }
        assert_eq!(asked, 1, "the next sequence is asked for once");
        assert!(fids.take().is_none());
        fids.put(0x2_0000_0401, 0);
        assert_eq!(fids.take().map(|(fid, _)| (fid.seq, fid.oid)), Some((0x2_0000_0401, 1)));
        fids.put(0x2_0000_0402, 1);
        assert_eq!(fids.take().map(|(fid, _)| (fid.seq, fid.oid)), Some((0x2_0000_0402, 1)));
    }
}
