//! Sequences of FIDs: reserved in durable blocks, granted once and never again.

use parking_lot::Mutex;
use proto::limits::SEQ_BITS;
use proto::{Code, Fid, Transno};
use store::{Batch, Change, Store, StoreError};

use super::keys;
use crate::target::code_of;

/// Sequences of one reservation.
const BLOCK: u64 = 1024;
/// Sequences of one MDT: they begin at this multiple of its index.
const PER_MDT: u64 = 1 << 34;

/// The sequences of an MDT.
pub struct Sequences {
    state: Mutex<State>,
    own: Mutex<Fid>,
    end: u64,
}

struct State {
    next: u64,
    /// Sequences below are reserved durably.
    durable: u64,
    /// Sequences below are reserved as soon as the change with this transno is durable.
    reserved: (u64, Transno),
}

impl Sequences {
    /// Reserves a block and takes the first sequence of it for the MDT's own use.
    pub async fn open(store: &Store) -> Result<Sequences, StoreError> {
        let start = Fid::SEQ_NORMAL_START + PER_MDT * u64::from(store.label().target.index);
        let end = (start + PER_MDT).min(1 << SEQ_BITS);
        let first = match store.get(&[keys::SEQUENCE])? {
            None => start,
            Some(value) => match value.bytes.as_ref().try_into() {
                Ok(bytes) => u64::from_le_bytes(bytes),
                Err(_) => return Err(StoreError::Corrupt { what: "the sequences".into() }),
            },
        };
        let durable = first.saturating_add(BLOCK).min(end);
        let transno = reserve(store, durable)?;
        store.committed(transno).await?;
        if first >= durable {
            return Err(StoreError::NoSpace);
        }
        Ok(Sequences {
            state: Mutex::new(State { next: first + 1, durable, reserved: (durable, transno) }),
            own: Mutex::new(Fid { seq: first, oid: 0, ver: 0 }),
            end,
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
                    if state.durable >= self.end {
                        return Err(Code::NoSpace);
                    }
                    let until = (state.durable + BLOCK).min(self.end);
                    let transno = reserve(store, until).map_err(|error| code_of(&error))?;
                    state.reserved = (until, transno);
                }
                state.reserved
            };
            store.committed(transno).await.map_err(|error| code_of(&error))?;
            let mut state = self.state.lock();
            state.durable = state.durable.max(until);
        }
    }

    /// A FID that names nothing yet: a layout id. Never waits; a boot of the MDT has a sequence of its own.
    pub fn fresh(&self) -> Result<Fid, Code> {
        let mut own = self.own.lock();
        if own.oid == Fid::OID_MAX {
            let mut state = self.state.lock();
            if state.next >= state.durable {
                return Err(Code::TryAgain);
            }
            *own = Fid { seq: state.next, oid: 0, ver: 0 };
            state.next += 1;
        }
        own.oid += 1;
        Ok(*own)
    }
}

fn reserve(store: &Store, until: u64) -> Result<Transno, StoreError> {
    let key = bytes::Bytes::from_static(&[keys::SEQUENCE]);
    let value = Some(bytes::Bytes::copy_from_slice(&until.to_le_bytes()));
    store.commit(Batch { changes: vec![Change { key, value }], ..Batch::default() })
}
