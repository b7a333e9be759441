//! Accepts a directory that holds an older copy of a target (`docs/operations.md#older`).
//!
//! Nobody knows what the other one did since: so its starts, its transnos and its sequences of FIDs are jumped over, and sessions
//! with it are over. Nothing that it gave a name to is given that name again.

use bytes::Bytes;
use proto::{Code, TargetKind, Transno};
use rt::Rt;
use service::{Claimant, Unclaimed, keys, replaced};
use store::{Batch, Change, Label, Store, StoreError};

use crate::mdt;

/// Transnos that a target does not get to while an older copy of it exists.
const TRANSNOS: u64 = 1 << 40;
/// Targets that have an index one after the other have so many transnos each.
const TRANSNOS_OF_ONE: u64 = 1 << 48;

/// What was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Who the target is.
    pub label: Label,
    /// Its last change: what came behind that is lost.
    pub last: Transno,
}

/// Makes the copy in `path`, which nobody may serve meanwhile, the target.
///
/// # Errors
/// The directory cannot be opened, is that of an MGS, or of a target with service nodes: their starts are numbered elsewhere.
pub async fn accept_older(rt: &Rt, path: &str) -> Result<Accepted, StoreError> {
    let label = Store::read_label(rt, path).await?;
    if label.target.kind == TargetKind::Mgs {
        return Err(StoreError::NotATarget("nobody remembers how far an MGS was: start it as it is".into()));
    }
    if !label.service.is_empty() {
        return Err(StoreError::NotATarget(
            "an older copy of a target with service nodes cannot be accepted: restore all targets together"
                .into(),
        ));
    }
    let store = Store::open_copy(rt, path).await?;
    let done = jump(&store).await;
    store.close().await?;
    Ok(Accepted { label, last: done? })
}

async fn jump(store: &Store) -> Result<Transno, StoreError> {
    let last = store.last_transno();
    let boot = store.boot().to_le_bytes();
    let accepted = Some(Bytes::copy_from_slice(&boot));
    let mut changes = vec![
        Change { key: Bytes::from_static(&[keys::ACCEPTED]), value: accepted },
        Change { key: Bytes::from_static(&[keys::REFUSED]), value: None },
    ];
    if store.label().target.kind == TargetKind::Mdt {
        changes.push(mdt::sequences_jump(store)?);
    }
    let replay = Some(Transno(last.0.saturating_add(TRANSNOS)));
    let transno = store.commit(Batch { changes, replay, ..Batch::default() })?;
    store.committed(transno).await?;
    Ok(last)
}

/// Has the MGS know of this start of a target, before anybody else does. A copy that it refused stays refused, and so does one that wanted to
/// take the place of a target that was served. One that takes a place has transnos that nobody had there before.
pub(crate) async fn claim(store: &Store, claimant: &Claimant) -> Result<(), Unclaimed> {
    if store.get(&[keys::REFUSED]).map_err(Unclaimed::Lost)?.is_some() {
        let waits = replaced::waits(store);
        return Err(Unclaimed::Refused(if waits { Code::IndexUsed } else { Code::Older }));
    }
    let claimed = claimant.note().await;
    if let Err(Unclaimed::Refused(code)) = &claimed
        && (matches!(code, Code::Older | Code::Busy) || *code == Code::IndexUsed && replaced::waits(store))
    {
        let refused = Change { key: Bytes::from_static(&[keys::REFUSED]), value: Some(Bytes::new()) };
        keep(store, Batch { changes: vec![refused], ..Batch::default() }).await?;
    }
    let before = claimed?;
    let first = Transno(u64::from(before).saturating_mul(TRANSNOS_OF_ONE));
    if replaced::waits(store) && store.last_transno() < first {
        let changes = vec![replaced::change(replaced::UNKNOWN)];
        keep(store, Batch { changes, replay: Some(first), ..Batch::default() }).await?;
    }
    Ok(())
}

/// Makes something durable.
async fn keep(store: &Store, batch: Batch) -> Result<(), Unclaimed> {
    let transno = store.commit(batch).map_err(Unclaimed::Lost)?;
    store.committed(transno).await.map_err(Unclaimed::Lost)
}
