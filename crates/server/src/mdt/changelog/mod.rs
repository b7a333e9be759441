//! The changelog: what changed in the name space, for registered readers.
//!
//! The records of a change are part of its own commit, so they are there exactly if it is, after any crash. They have numbers without gaps
//! in the order of the commits: whoever appends holds [`Changelog::state`] until the commit has its place in the log. A reader
//! gets durable records only, because the number of one that a crash takes is given again. As long as nobody is
//! registered, nothing is recorded and nothing is locked.

pub(super) mod clear;
mod orders;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::changelog::{self, Kind, NID_BYTES_MAX, Record};
use proto::parameters::{Parameter, TargetTree, Unit};
use proto::wire::messages as msg;
use proto::{Code, Fid, JobId, Timestamp};
use rt::sync::Notify;
use rt::{Rt, Time};
use service::keys::behind;
use service::{Done, Env, Recovery, Stop, code_of};
use smallvec::SmallVec;
use store::{Change, Store, StoreError};

use super::namespace::Changes;
use super::{Mdt, keys};
use record::Kept;

/// Most readers.
const USERS_MAX: usize = 64;
/// Records that a reader may be behind unless another number is set: whoever is further behind is taken for gone.
const IDLE_INDEXES: u64 = 50_000_000;
/// Records that are read or removed at a time.
const SCAN_COUNT: usize = 1024;

/// Records of one change.
pub type Records = SmallVec<[Record; 1]>;

/// The changelog of an MDT.
pub struct Changelog {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    state: Mutex<State>,
    /// The kinds that are recorded; none while nobody is registered.
    wanted: AtomicU32,
    /// Records that a reader may be behind.
    idle_max: AtomicU64,
    /// There may be records that nobody needs.
    cleared: Notify,
}

struct State {
    kept: Kept,
    users: BTreeMap<u32, User>,
}

/// A reader.
struct User {
    /// Records up to this one are not needed.
    index: u64,
    /// Of its registration.
    number: u64,
    /// When it did something.
    seen: Time,
}

impl State {
    /// Up to where nobody needs the records.
    fn needless(&self) -> u64 {
        self.users.values().map(|user| user.index).min().unwrap_or(self.kept.last)
    }

    fn change(&self) -> Change {
        Change { key: keys::changelog_state(), value: Some(self.kept.encode()) }
    }

    fn change_of(user: u32, state: Option<&User>) -> Change {
        let value = state.map(|user| record::encode_user(user.index, user.number));
        Change { key: keys::changelog_user(user), value }
    }
}

impl Changelog {
    /// The one in the store of `env`.
    pub fn open(env: &Env) -> Result<Changelog, StoreError> {
        let corrupt = || StoreError::Corrupt { what: "the changelog".into() };
        let kept = match env.store.get(&keys::changelog_state())? {
            None => Kept { last: 0, oldest: 1, next_user: 1, mask: changelog::MASK },
            Some(value) => Kept::decode(&value.bytes).ok_or_else(corrupt)?,
        };
        let mut users = BTreeMap::new();
        let prefix = [keys::CHANGELOG_USER];
        for (key, value) in env.store.scan(&prefix, &behind(&prefix), USERS_MAX)? {
            let user = keys::changelog_user_of(&key).ok_or_else(corrupt)?;
            let (index, number) = record::decode_user(&value.bytes).ok_or_else(corrupt)?;
            users.insert(user, User { index, number, seen: env.rt.now() });
        }
        let changelog = Changelog {
            rt: env.rt.clone(),
            store: env.store.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            state: Mutex::new(State { kept, users }),
            wanted: AtomicU32::new(0),
            idle_max: AtomicU64::new(IDLE_INDEXES),
            cleared: Notify::default(),
        };
        changelog.update_wanted(&changelog.state.lock());
        Ok(changelog)
    }

    fn update_wanted(&self, state: &State) {
        let wanted = if state.users.is_empty() { 0 } else { state.kept.mask };
        self.wanted.store(wanted, Ordering::Release);
    }

    fn wants(&self, kind: Kind) -> bool {
        self.wanted.load(Ordering::Acquire) & kind.bit() != 0
    }

    /// Commits by `commit`, together with the changes that record `records` of a client at `nid`, for `job`.
    pub fn commit(
        &self,
        records: Records,
        (nid, job): (impl FnOnce() -> String, JobId),
        commit: impl FnOnce(Vec<Change>) -> Result<Done, Code>,
    ) -> Result<Done, Code> {
        if records.is_empty() {
            return commit(Vec::new());
        }
        let mut nid = nid();
        if nid.len() > NID_BYTES_MAX {
            nid.clear();
        }
        let mut state = self.state.lock();
        if state.users.is_empty() {
            drop(state);
            return commit(Vec::new());
        }
        let now = self.rt.wall();
        let time = Timestamp { secs: now.secs, nanos: now.nanos };
        let before = state.kept;
        let mut changes = Vec::with_capacity(records.len() + 1);
        for record in records {
            state.kept.last += 1;
            let record =
                Record { index: state.kept.last, time, nid: nid.clone(), job: job.to_string(), ..record };
            changes.push(Change { key: keys::changelog(record.index), value: Some(record::encode(&record)) });
        }
        let late = self.late(&state);
        changes.extend(late.iter().map(|user| State::change_of(*user, None)));
        changes.push(state.change());
        match commit(changes) {
            Ok(done) => {
                self.drop_late(&mut state, &late);
                Ok(done)
            }
            Err(code) => {
                state.kept = before;
                Err(code)
            }
        }
    }

    /// Readers that are too far behind to be waited for.
    fn late(&self, state: &State) -> Vec<u32> {
        let (last, idle_max) = (state.kept.last, self.idle_max.load(Ordering::Relaxed));
        // When the disk is full, whoever keeps most of it goes.
        let full = self.store.is_full() && last > state.needless() + SCAN_COUNT as u64;
        let least = state.needless();
        let is_late = |user: &User| last - user.index > idle_max || full && user.index == least;
        state.users.iter().filter(|(_, user)| is_late(user)).map(|(user, _)| *user).collect()
    }

    fn drop_late(&self, state: &mut State, late: &[u32]) {
        for id in late {
            let Some(user) = state.users.remove(id) else { continue };
            tracing::warn!(
                user = format!("cl{id}"),
                records = state.kept.last - user.index,
                "a reader of the changelog is too far behind and is registered no more: it has to register again, and to look at all files"
            );
        }
        if !late.is_empty() {
            self.update_wanted(state);
            self.cleared.notify_one();
        }
    }

    /// Durable records behind one.
    fn page(&self, behind_index: u64, bytes_max: u32) -> Result<Vec<Record>, Code> {
        // In this order: what is durable by then is seen.
        let durable = self.store.last_committed();
        let from = keys::changelog(behind_index.saturating_add(1));
        let found = self
            .store
            .scan(&from, &behind(&[keys::CHANGELOG]), SCAN_COUNT)
            .map_err(|error| code_of(&error))?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for (key, value) in found {
            bytes += key.len() + value.bytes.len() + 64;
            let is_enough = !records.is_empty() && bytes > bytes_max as usize;
            if is_enough || value.version > durable || records.len() == msg::CHANGELOG_RECORDS_MAX {
                break;
            }
            let index = keys::changelog_of(&key).ok_or(Code::Corrupt)?;
            let record = record::decode(index, &value.bytes);
            records.push(record.ok_or_else(|| {
                tracing::error!(index, "a record of the changelog is damaged");
                Code::Corrupt
            })?);
        }
        Ok(records)
    }

    /// As Lustre has them, below `mdd`.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        tree.of_directories(Parameter::text("changelog_users", || self.users_text()));
        let mask = Parameter::text("changelog_mask", || changelog::words_of(self.state.lock().kept.mask));
        let takes = "write kinds, as in CREAT MKDIR, or changes, as in +ATIME -CLOSE";
        tree.of_directories(mask.settable(takes, |text: &str| {
            let mut state = self.state.lock();
            state.kept.mask = changelog::parse_mask(text, state.kept.mask).ok_or(Code::Invalid)?;
            self.update_wanted(&state);
            Ok(())
        }));
        let idle = Parameter::gauge("changelog_max_idle_indexes", Unit::None, || {
            self.idle_max.load(Ordering::Relaxed)
        });
        tree.of_directories(idle.settable("write a number of records", |text: &str| {
            let number: u64 = text.trim().parse().ok().filter(|number| *number > 0).ok_or(Code::Invalid)?;
            self.idle_max.store(number, Ordering::Relaxed);
            Ok(())
        }));
    }

    fn users_text(&self) -> String {
        let state = self.state.lock();
        let mut text = format!("current_index: {}\nID    index (idle seconds)\n", state.kept.last);
        for (id, user) in &state.users {
            let idle = (self.rt.now() - user.seen).as_secs();
            text.push_str(&format!("{:<5} {} ({idle})\n", format!("cl{id}"), user.index));
        }
        text
    }
}

impl Mdt {
    /// Has `changes` be recorded as `kind` of `target`, if somebody reads that. `more` adds what is known besides.
    pub(super) fn tell(
        &self,
        changes: &mut Changes,
        kind: Kind,
        target: Fid,
        more: impl FnOnce(Record) -> Record,
    ) {
        if self.changelog.wants(kind) {
            changes.record(more(Record::new(kind, target)));
        }
    }
}

/// A record, done by the user of `cred`.
pub(super) fn by(cred: &proto::Cred) -> impl FnOnce(Record) -> Record + '_ {
    |record| record.by(cred.uid, cred.gid)
}

/// The same, of the entry `name` of `parent`.
pub(super) fn named<'a>(
    parent: Fid,
    name: &'a proto::Name,
    cred: &'a proto::Cred,
) -> impl FnOnce(Record) -> Record + 'a {
    move |record| record.named(parent, &name.to_bytes()).by(cred.uid, cred.gid)
}

/// An attribute that changed.
pub(super) fn of_xattr<'a>(name: &'a Bytes, cred: &'a proto::Cred) -> impl FnOnce(Record) -> Record + 'a {
    move |record| Record { xattr: name.clone(), ..record.by(cred.uid, cred.gid) }
}
