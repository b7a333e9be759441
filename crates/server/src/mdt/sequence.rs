//! Sequences of FIDs: reserved in durable blocks, granted once and never again.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::SEQ_BITS;
use proto::{Code, Fid, Transno};
use service::{Claimant, Stop, code_of};
use store::{Batch, Change, Store, StoreError};

use super::keys;

/// Sequences of one reservation.
const BLOCK: u64 = 1024;
/// Sequences that an MDT does not give while an older copy of it exists.
const JUMP: u64 = 1 << 28;
/// Sequences of one MDT: they begin at this multiple of its index.
const PER_MDT: u64 = 1 << 34;

/// The sequences of an MDT. Nothing is reserved before it is needed: while clients replay, the target draws no
/// transno of its own.
pub struct Sequences {
    state: Mutex<State>,
    /// The newest FID that names a layout; of a sequence that no other boot uses.
    own: Mutex<Fid>,
    end: u64,
    /// Has it remembered that a block was taken, before anything of it is granted: an older copy of the target knows nothing of that.
    claimant: Option<(Arc<Claimant>, Stop)>,
}

struct State {
    next: u64,
    /// Sequences below are reserved durably.
    durable: u64,
    /// Sequences below are reserved as soon as the change with this transno is durable.
    reserved: (u64, Transno),
}

/// What has to be durable so that an older copy of an MDT gives no sequence that the other one may have given since.
pub fn jump(store: &Store) -> Result<Change, StoreError> {
    let state = Sequences::open(store, None)?;
    let next = state.state.lock().next.saturating_add(JUMP).min(state.end);
    Ok(Change {
        key: Bytes::from_static(&[keys::SEQUENCE]),
        value: Some(Bytes::copy_from_slice(&next.to_le_bytes())),
    })
}

impl Sequences {
    /// Goes on behind the last reservation.
    pub fn open(store: &Store, claimant: Option<(Arc<Claimant>, Stop)>) -> Result<Sequences, StoreError> {
        let start = Fid::SEQ_NORMAL_START + PER_MDT * u64::from(store.label().target.index);
        let next = match store.get(&[keys::SEQUENCE])? {
            None => start,
            Some(value) => match value.bytes.as_ref().try_into() {
                Ok(bytes) => u64::from_le_bytes(bytes),
                Err(_) => return Err(StoreError::Corrupt { what: "the sequences".into() }),
            },
        };
        Ok(Sequences {
            state: Mutex::new(State { next, durable: next, reserved: (next, Transno(0)) }),
            own: Mutex::new(Fid { seq: 0, oid: Fid::OID_MAX, ver: 0 }),
            end: (start + PER_MDT).min(1 << SEQ_BITS),
            claimant,
        })
    }

    /// A sequence that nobody had before.
    pub async fn take(&self, store: &Store) -> Result<u64, Code> {
        loop {
            let (until, transno) = {
                let mut state = self.state.lock();
                if state.next < state.durable {
                    state.next += 1;
                    return Ok(state.next - 1);
                }
                if state.reserved.0 == state.durable {
                    state.reserved = self.reserve(store, state.durable)?;
                }
                state.reserved
            };
            store.committed(transno).await.map_err(|error| code_of(&error))?;
            if let Some((claimant, stop)) = &self.claimant {
                let noted = stop.unless(Box::pin(claimant.note())).await;
                noted.ok_or(Code::TryAgain)?.map_err(|_| Code::TryAgain)?;
            }
            let mut state = self.state.lock();
            state.durable = state.durable.max(until);
        }
    }

    fn reserve(&self, store: &Store, durable: u64) -> Result<(u64, Transno), Code> {
        let until = durable.saturating_add(BLOCK).min(self.end);
        if until <= durable {
            return Err(Code::NoSpace);
        }
        let key = Bytes::from_static(&[keys::SEQUENCE]);
        let value = Some(Bytes::copy_from_slice(&until.to_le_bytes()));
        let batch = Batch { changes: vec![Change { key, value }], ..Batch::default() };
        Ok((until, store.commit(batch).map_err(|error| code_of(&error))?))
    }

    /// Waits until [`Sequences::fresh`] has something to give.
    pub async fn ready(&self, store: &Store) -> Result<(), Code> {
        if self.own.lock().oid < Fid::OID_MAX {
            return Ok(());
        }
        let seq = self.take(store).await?;
        let mut own = self.own.lock();
        if own.oid == Fid::OID_MAX {
            *own = Fid { seq, oid: 0, ver: 0 };
        }
        Ok(())
    }

    /// What [`Sequences::fresh`] gives is of `first` or a later sequence from now on.
    pub fn begin_at(&self, first: u64) {
        let mut own = self.own.lock();
        if own.seq < first {
            own.oid = Fid::OID_MAX;
        }
    }

    /// A FID that names nothing yet: a layout id.
    pub fn fresh(&self) -> Result<Fid, Code> {
        let mut own = self.own.lock();
        if own.oid == Fid::OID_MAX {
            return Err(Code::TryAgain);
        }
        own.oid += 1;
        Ok(*own)
    }
}

#[cfg(test)]
mod tests {
    use crate::mdt::testing::World;
    use proto::Fid;
    use proto::wire::messages::GetSequence;

    #[test]
    fn no_sequence_is_granted_twice() {
        let mut world = World::new();
        let mut seen = std::collections::BTreeSet::new();
        for round in 1..6 {
            let client = world.client(round);
            assert!(seen.insert(client.sequence.get()));
            for _ in 0..300 {
                let sequence = client.call(GetSequence {}).expect("there are enough").seq;
                assert!(sequence >= Fid::SEQ_NORMAL_START && seen.insert(sequence));
            }
            world = if round % 2 == 0 { world.restart() } else { world.crash() };
        }
    }
}
