//! What a handler knows of a request besides its body, and what it gives back.

use std::sync::Arc;

use bytes::Bytes;
use proto::session::ReplyRecord;
use proto::wire::Reply;
use proto::wire::messages::Space;
use proto::{ClientId, Code, JobId, Transno, Xid};
use rpc::{Peer, Role};
use store::{Author, Batch, Change, Store, StoreError};

use crate::keys;
use crate::session::Session;

/// Stands in a reply for the version that the change itself makes: the transno is known only once the reply has
/// been recorded. Replaced before the reply is sent.
pub const VERSION_OF_THIS: u64 = u64::MAX;

/// One request of one session.
pub struct Ctx<S> {
    /// Who asks.
    pub peer: Peer,
    /// Number of the request in its session.
    pub xid: Xid,
    /// The transno that the request had before a restart lost it.
    pub replay: Option<Transno>,
    /// The job that it belongs to.
    pub job: JobId,
    slot: Option<u32>,
    session: Arc<Session<S>>,
    store: Arc<Store>,
}

impl<S> Ctx<S> {
    pub(crate) fn new(
        store: &Arc<Store>,
        session: Arc<Session<S>>,
        peer: Peer,
        xid: Xid,
        slot: Option<u32>,
        replay: Option<Transno>,
        job: JobId,
    ) -> Ctx<S> {
        Ctx { peer, xid, replay, job, slot, session, store: store.clone() }
    }

    /// The session.
    pub fn session(&self) -> &Arc<Session<S>> {
        &self.session
    }

    /// What the role keeps for the session.
    pub fn data(&self) -> &S {
        self.session.data()
    }

    /// Refuses peers that do not hold the servers' key.
    pub fn only_servers(&self) -> Result<(), Code> {
        if self.peer.role == Role::Server { Ok(()) } else { Err(Code::Forbidden) }
    }

    /// Whom its changes are made for.
    pub fn author(&self) -> Arc<Author> {
        self.session.author().clone()
    }

    /// Makes the record that answers this request if it is sent again; its change goes into the batch of the
    /// request's own changes.
    pub fn recorder(&self) -> Recorder {
        Recorder { client: self.session.client(), slot: self.slot, xid: self.xid }
    }

    /// Commits `batch` together with the record of `reply`: the usual end of a changing request.
    pub fn commit(&self, mut batch: Batch, reply: Reply) -> Result<Done, Code> {
        let record = self.recorder().record(&reply);
        let record = record.map(|(change, record)| {
            batch.changes.push(change);
            record
        });
        batch.replay = self.replay;
        batch.author = Some(self.author());
        let transno = self.store.commit(batch).map_err(|error| code_of(&error))?;
        Ok(Done { reply, bulk: Vec::new(), transno, record })
    }
}

/// Makes the record of a reply; free of borrows, for stores that learn the result late.
#[derive(Debug, Clone, Copy)]
pub struct Recorder {
    client: ClientId,
    slot: Option<u32>,
    xid: Xid,
}

impl Recorder {
    /// The change that records `reply`, and the record; `None` for a request without a slot. The stored record says
    /// transno 0: the value's version is the transno.
    pub fn record(&self, reply: &Reply) -> Option<(Change, ReplyRecord)> {
        let slot = self.slot?;
        let mut body = Vec::with_capacity(192);
        reply.put_body(&mut body);
        let record = ReplyRecord {
            xid: self.xid,
            opcode: reply.opcode(),
            status: 0,
            transno: Transno(0),
            body: body.into(),
        };
        let change = Change { key: keys::slot(self.client, slot), value: Some(record.encode()) };
        Some((change, record))
    }
}

/// A request that was carried out.
#[derive(Debug)]
pub struct Done {
    /// The reply.
    pub reply: Reply,
    /// The reply's bulk.
    pub bulk: Vec<Bytes>,
    /// Commit order number of the change; 0 for none.
    pub transno: Transno,
    /// The reply's record, if the batch had one; saves encoding it again.
    pub record: Option<ReplyRecord>,
}

impl Done {
    /// Nothing was changed.
    pub fn unchanged(reply: Reply) -> Done {
        Done { reply, bulk: Vec::new(), transno: Transno(0), record: None }
    }

    /// A change that was committed with its record by other means than [`Ctx::commit`].
    pub fn changed(reply: Reply, transno: Transno) -> Done {
        Done { reply, bulk: Vec::new(), transno, record: None }
    }
}

/// What a peer is told when the store refuses or fails. A failure of the disk is logged by the store.
pub fn code_of(error: &StoreError) -> Code {
    match error {
        StoreError::NoSpace => Code::NoSpace,
        StoreError::OverLimit => Code::Quota,
        StoreError::TooBig => Code::TooBig,
        StoreError::Gone | StoreError::Ended => Code::Gone,
        StoreError::Over => Code::Evicted,
        StoreError::Corrupt { .. } | StoreError::Damaged(_) => Code::Corrupt,
        StoreError::NotATarget(_) | StoreError::Poisoned | StoreError::NotOwner | StoreError::Io(_) => {
            Code::Io
        }
    }
}

/// What is to be known of a target's space besides, as [`Space`] tells it. A full one that nobody writes to looks whether there is room again, so
/// that the next one who asks is told that.
pub fn space_state(store: &Store) -> u32 {
    if !store.is_full() {
        return 0;
    }
    store.look_for_space();
    Space::FULL
}
