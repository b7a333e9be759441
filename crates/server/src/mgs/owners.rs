//! Who owns targets that several servers may serve: `proto::owner` with a clock and a disk.
//!
//! A grant is durable before it is told. Renewals are not: an owner of before a restart is believed to have renewed just
//! before it. Keys: `docs/disk.md#mgs`.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::limits::NIDS_MAX;
use proto::owner::{Owners, Record, Server, TTL, Verdict};
use proto::wire::messages as msg;
use proto::wire::{DecodeError, Reader, Wire};
use proto::{Code, TargetId, TargetKind, Transno};
use rt::sync::Notify;
use rt::{Rt, Time};
use service::{Stop, code_of, keys};
use store::{Batch, Change, Store, StoreError};

use super::{SERVER_BYTES_MAX, table};

/// `[MGS + 4][kind: 1][index: 4 BE]`: the newest owner of a target.
const OWNER: u8 = keys::MGS + 4;
/// Version of the format of an owner.
const FORMAT: u8 = 2;
/// The format without a former owner.
const FORMAT_WITHOUT_FORMER: u8 = 1;
/// Most names of servers.
const SERVERS_MAX: usize = 16_384;
/// Longest time that a server waits for a target.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What a server gets, and who may still use it.
type Given = (msg::Taken, Option<msg::FormerOwner>);

/// The owners, as an MGS keeps them.
pub struct OwnerTable {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    owners: Mutex<Owners>,
    /// The newest question of each server that waits: it has given the ones before up.
    newest: Mutex<BTreeMap<String, u64>>,
    /// Something was released, or expires sooner than before.
    changed: Notify,
}

impl OwnerTable {
    /// What was remembered.
    pub fn load(rt: &Rt, store: &Arc<Store>, stop: &Stop) -> Result<OwnerTable, StoreError> {
        let damaged = || StoreError::Corrupt { what: "an owner of a target".into() };
        let mut records = Vec::new();
        table::scan(store, OWNER, |key, value| {
            let target = table::target_of(key).ok_or_else(damaged)?;
            records.push((target, decode(value).map_err(|_| damaged())?));
            Ok(())
        })?;
        Ok(OwnerTable {
            rt: rt.clone(),
            store: store.clone(),
            stop: stop.clone(),
            owners: Mutex::new(Owners::new(rt.now().0, records)),
            newest: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Goes on with what a server holds.
    pub fn renew(&self, renew: &msg::RenewTargets) -> Result<msg::TargetsRenewed, Code> {
        check_lengths(&renew.server, renew.holds.len())?;
        let mut owners = self.owners.lock();
        let lost = owners.renew(self.rt.now().0, &renew.server, renew.instance, &renew.holds);
        Ok(msg::TargetsRenewed { ttl_ms: ttl_ms(), lost })
    }

    /// Gives a server what it wants, if that is free or will be in time.
    pub async fn take(&self, take: &msg::TakeTargets) -> Result<msg::TargetsTaken, Code> {
        check_lengths(&take.server, take.wanted.len())?;
        if take.nids.len() > NIDS_MAX || take.wanted.iter().any(|wanted| wanted.target == TargetId::MGS) {
            return Err(Code::Invalid);
        }
        let wait = Duration::from_millis(u64::from(take.wait_ms)).min(WAIT_MAX);
        let until = self.rt.now() + wait;
        let question = self.ask(&take.server)?;
        let server = Server { name: take.server.clone(), instance: take.instance, nids: take.nids.clone() };
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.is_newest(&take.server, question) {
                return Ok(nothing_taken());
            }
            let (given, transno, next) = self.try_take(&server, &take.wanted, until)?;
            if let Some(transno) = transno {
                self.store.committed(transno).await.map_err(|error| code_of(&error))?;
                let former = given.iter().filter_map(|(_, former)| former.clone()).collect();
                let taken = given.into_iter().map(|(taken, _)| taken).collect();
                return Ok(msg::TargetsTaken { ttl_ms: ttl_ms(), taken, former });
            }
            let now = self.rt.now();
            if now >= until {
                return Ok(nothing_taken());
            }
            let waiting = self.rt.timeout(next - now, changed);
            self.stop.unless(waiting).await.ok_or(Code::TryAgain)?;
        }
    }

    /// A server asks once more: its questions of before end.
    fn ask(&self, server: &str) -> Result<u64, Code> {
        let mut newest = self.newest.lock();
        if newest.len() >= SERVERS_MAX && !newest.contains_key(server) {
            return Err(Code::TooBig);
        }
        let question = newest.entry(server.to_owned()).or_default();
        *question += 1;
        let question = *question;
        drop(newest);
        self.changed.notify_waiters();
        Ok(question)
    }

    fn is_newest(&self, server: &str, question: u64) -> bool {
        self.newest.lock().get(server) == Some(&question)
    }

    /// Records a change of owners. Called under their lock: what is changed later comes later in the log.
    fn commit(&self, changes: Vec<Change>) -> Result<Transno, Code> {
        self.store.commit(Batch { changes, ..Batch::default() }).map_err(|error| code_of(&error))
    }

    /// What `server` gets now, and when that is durable, if there is something; and when to look again.
    fn try_take(
        &self,
        server: &Server,
        wanted: &[msg::Wanted],
        until: Time,
    ) -> Result<(Vec<Given>, Option<Transno>, Time), Code> {
        let now = self.rt.now().0;
        let (mut given, mut changes, mut next) = (Vec::new(), Vec::new(), until);
        let mut owners = self.owners.lock();
        for wanted in wanted {
            match owners.take(now, server, wanted) {
                Verdict::Granted(taken, record) => {
                    tracing::info!(target = %taken.target, server = server.name, epoch = taken.epoch, "owned");
                    changes.push(change(wanted.target, &record));
                    let former = record.former.map(|former| msg::FormerOwner {
                        target: wanted.target,
                        server: former.name,
                        nids: former.nids,
                    });
                    given.push((taken, former));
                }
                Verdict::Wait(time) => next = next.min(Time(time)),
            }
        }
        let transno = if given.is_empty() { None } else { Some(self.commit(changes)?) };
        Ok((given, transno, next))
    }

    /// A server has stopped a target.
    pub async fn release(&self, release: &msg::ReleaseTarget) -> Result<msg::Done, Code> {
        check_lengths(&release.server, 1)?;
        if release.to.len() > SERVER_BYTES_MAX {
            return Err(Code::Invalid);
        }
        let msg::ReleaseTarget { server, instance, tenure, to } = release;
        let now = self.rt.now().0;
        {
            let mut owners = self.owners.lock();
            let record = owners.release(now, server, *instance, tenure, to);
            // It is nobody's wish to release what is somebody else's by now.
            let Some(record) = record else { return Ok(msg::Done {}) };
            tracing::info!(target = %tenure.target, server, to, "released");
            // Who gets it next makes its own grant durable, and this with it: the log keeps the order.
            self.commit(vec![change(tenure.target, &record)])?;
        }
        self.changed.notify_waiters();
        Ok(msg::Done {})
    }

    /// An owner begins to use a target's directory.
    pub async fn settle(&self, settle: &msg::SettleTarget) -> Result<msg::Done, Code> {
        check_lengths(&settle.server, 1)?;
        let transno = {
            let mut owners = self.owners.lock();
            let record = owners.settle(&settle.server, settle.instance, &settle.tenure);
            self.commit(vec![change(settle.tenure.target, &record.ok_or(Code::Stale)?)])?
        };
        self.store.committed(transno).await.map_err(|error| code_of(&error))?;
        Ok(msg::Done {})
    }

    /// Whether the server is the owner that it says it is; 0 is the epoch of one that nobody else may serve. An owner with a
    /// larger epoch than the newest here was chosen by another store: gives what has to be durable of it.
    pub fn check(&self, register: &msg::Register) -> Result<Vec<Change>, Code> {
        let msg::Register { target, epoch, .. } = register;
        let mut owners = self.owners.lock();
        if *epoch == 0 || owners.is_owner(*target, *epoch) {
            return Ok(Vec::new());
        }
        let server = Server { name: register.server.clone(), instance: 0, nids: register.nids.clone() };
        let record = owners.adopt(self.rt.now().0, *target, *epoch, server).ok_or(Code::Stale)?;
        tracing::info!(%target, server = register.server, epoch, "owned, as another store of owners says");
        Ok(vec![change(*target, &record)])
    }

    /// The owners of those of `targets` that have one.
    pub fn of(&self, targets: impl Iterator<Item = TargetId>) -> Vec<msg::TargetOwner> {
        let owners = self.owners.lock();
        let owner = |target| {
            let record = owners.record(target).filter(|record| !record.released)?;
            Some(msg::TargetOwner { target, server: record.server.name.clone(), epoch: record.epoch })
        };
        targets.filter_map(owner).collect()
    }
}

fn ttl_ms() -> u32 {
    u32::try_from(TTL.as_millis()).unwrap_or(u32::MAX)
}

fn nothing_taken() -> msg::TargetsTaken {
    msg::TargetsTaken { ttl_ms: ttl_ms(), taken: Vec::new(), former: Vec::new() }
}

fn check_lengths(server: &str, targets: usize) -> Result<(), Code> {
    let sane = !server.is_empty() && server.len() <= SERVER_BYTES_MAX && targets <= msg::OWNED_MAX;
    if sane { Ok(()) } else { Err(Code::Invalid) }
}

fn change(target: TargetId, record: &Record) -> Change {
    assert!(target.kind != TargetKind::Mgs, "the MGS does not give itself away");
    let mut value = Vec::new();
    FORMAT.put(&mut value);
    record.epoch.put(&mut value);
    record.released.put(&mut value);
    record.server.instance.put(&mut value);
    record.server.name.put(&mut value);
    record.reserved.put(&mut value);
    record.server.nids.put(&mut value);
    record.former.is_some().put(&mut value);
    if let Some(former) = &record.former {
        former.instance.put(&mut value);
        former.name.put(&mut value);
        former.nids.put(&mut value);
    }
    Change { key: table::key(OWNER, target), value: Some(value.into()) }
}

fn decode(value: Bytes) -> Result<Record, DecodeError> {
    let mut from = Reader::new(value);
    let format = from.take::<u8>()?;
    if ![FORMAT_WITHOUT_FORMER, FORMAT].contains(&format) {
        return Err(DecodeError::BadValue);
    }
    let (epoch, released, instance) = (from.take()?, from.take()?, from.take()?);
    let (name, reserved, nids) = (from.take()?, from.take()?, from.take()?);
    let former = if format == FORMAT && from.take::<bool>()? {
        let (instance, name, nids) = (from.take()?, from.take()?, from.take()?);
        Some(Server { name, instance, nids })
    } else {
        None
    };
    Ok(Record { epoch, server: Server { name, instance, nids }, released, reserved, former })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_as_it_was_written() {
        let record = Record {
            epoch: 7,
            server: Server {
                name: "oss1".into(),
                instance: 9,
                nids: vec!["10.0.0.1@tcp".parse().expect("a NID")],
            },
            released: true,
            reserved: "oss2".into(),
            former: Some(Server { name: "oss3".into(), instance: 4, nids: vec![] }),
        };
        let Change { key, value } = change(TargetId::ost(3), &record);
        assert_eq!(table::target_of(&key), Some(TargetId::ost(3)));
        let value = value.expect("it has a value");
        assert_eq!(decode(value.clone()), Ok(record.clone()));
        for at in 0..value.len() {
            assert!(decode(value.slice(..at)).is_err(), "cut at {at}");
        }
        let record = Record { former: None, ..record };
        let mut old = change(TargetId::ost(3), &record).value.expect("it has a value").to_vec();
        old[0] = FORMAT_WITHOUT_FORMER;
        old.pop();
        assert_eq!(decode(old.into()), Ok(record), "of an older MGS");
    }
}
