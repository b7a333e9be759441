//! Statahead: asks for names before applications do, when they look at one after the other (FEATURES C10).
//!
//! [`pattern`] says which come next. They are asked for together, in few frames, and kept as any answer is; whoever comes for one that is on
//! its way waits for it. What READDIR brings has its attributes with it, so listing a directory needs nothing of this (`docs/fuse.md`).

mod pattern;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::wire::messages::Lookup;
use proto::{Code, Fid, Name};
use rpc::job::{self, OfJob};
use rt::Rt;
use rt::sync::Notify;

use super::cache::{Known, MetadataCache};
use crate::order::{LEAF, Mutex};
use crate::targets::Targets;
use crate::{Caller, Error};

use pattern::Sequences;
pub(crate) use pattern::Settings;

/// Most names that are on their way.
const COMING_MAX: usize = 2048;

/// What is asked for ahead.
pub(crate) struct Statahead {
    rt: Rt,
    meta: Arc<MetadataCache>,
    targets: Arc<Targets>,
    table: Mutex<LEAF, Table>,
    /// Some names were asked for: those that are looked at and known count, too.
    is_used: AtomicBool,
    /// The MDT is in this process: there is no way to hide.
    is_here: AtomicBool,
    arrived: Notify,
}

#[derive(Default)]
struct Table {
    settings: Settings,
    sequences: Sequences,
    coming: BTreeSet<(Fid, Name)>,
    counts: Counts,
}

/// What came of it, by Lustre's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Sequences in which names were asked for (`statahead total`, `fname_total`).
    pub sequences: u64,
    /// Those that ended before what was asked for (`statahead wrong`).
    pub ended: u64,
    /// Names that were there when somebody looked at them (`hit_total`).
    pub hits: u64,
    /// Names of a sequence that had to be asked for all the same (`miss_total`).
    pub misses: u64,
}

impl Statahead {
    pub(super) fn new(rt: Rt, meta: Arc<MetadataCache>, targets: Arc<Targets>) -> Statahead {
        Statahead {
            rt,
            meta,
            targets,
            table: Mutex::default(),
            is_used: AtomicBool::new(false),
            is_here: AtomicBool::new(false),
            arrived: Notify::new(),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        self.table.lock().settings
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.table.lock().settings);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.table.lock().counts
    }

    pub(crate) fn clear(&self) {
        self.table.lock().counts = Counts::default();
    }

    /// Waits for `name` of `parent` if it is on its way; says whether it was.
    pub(super) async fn until_come(&self, parent: Fid, name: &Name) -> bool {
        if !self.is_used.load(Ordering::Relaxed) {
            return false;
        }
        let wanted = (parent, name.clone());
        let mut waited = false;
        loop {
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if !self.table.lock().coming.contains(&wanted) {
                return waited;
            }
            waited = true;
            arrived.await;
        }
    }

    /// A caller has looked at a name without asking the MDT.
    pub(super) fn saw_known(self: &Arc<Self>, caller: &Caller, parent: Fid, name: &Name) {
        if self.is_used.load(Ordering::Relaxed) {
            self.saw(caller, parent, name, true);
        }
    }

    /// A caller has asked the MDT for a name that is there.
    pub(super) fn saw_asked(self: &Arc<Self>, caller: &Caller, parent: Fid, name: &Name) {
        self.saw(caller, parent, name, false);
    }

    fn saw(self: &Arc<Self>, caller: &Caller, parent: Fid, name: &Name, known: bool) {
        if self.is_here.load(Ordering::Relaxed) {
            return;
        }
        let now = self.rt.now();
        let wanted = {
            let table = &mut *self.table.lock();
            if !table.settings.by_name || table.settings.max == 0 {
                return;
            }
            let seen = table.sequences.saw(parent, name, now, &table.settings);
            table.counts.hits += u64::from(seen.was_ahead && known);
            table.counts.misses += u64::from(seen.was_ahead && !known);
            table.counts.sequences += u64::from(seen.begins);
            seen.wanted
        };
        if !wanted.is_empty() {
            self.ask_for(caller, parent, wanted);
        }
    }

    fn ask_for(self: &Arc<Self>, caller: &Caller, parent: Fid, mut wanted: Vec<Name>) {
        if !self.targets.mdt_of(parent).is_ok_and(|mdt| mdt.is_connected()) {
            // What is not reached now may be in another process again.
            let is_here = self.targets.mdt_of(parent).is_ok_and(|mdt| mdt.is_in_process());
            self.is_here.store(is_here, Ordering::Relaxed);
            return;
        }
        wanted.retain(|name| matches!(self.meta.kept.name(caller, parent, name), Known::Unknown));
        {
            let coming = &mut self.table.lock().coming;
            let room = COMING_MAX.saturating_sub(coming.len());
            wanted.retain(|name| coming.insert((parent, name.clone())));
            for name in wanted.drain(room.min(wanted.len())..) {
                coming.remove(&(parent, name));
            }
        }
        if wanted.is_empty() {
            return;
        }
        self.is_used.store(true, Ordering::Relaxed);
        let (statahead, caller, job) = (self.clone(), caller.clone(), job::current());
        self.rt.spawn(async move {
            let asking = wanted.into_iter().map(|name| statahead.ask_one(&caller, parent, name)).collect();
            let all = pin!(statahead.targets.hub().together(asking));
            OfJob::new(job, all).await;
        });
    }

    async fn ask_one(&self, caller: &Caller, parent: Fid, name: Name) {
        let asked = self.meta.inodes.ask();
        let look = |cred| Lookup { parent, name: Some(name.clone()), cred };
        let answered = self.targets.ask(parent, caller, look).await;
        let ended = matches!(answered, Err(Error::Refused(Code::NotFound)));
        if let Ok(answered) = answered {
            self.meta.answers.learn_named(&asked, parent, &name, &answered.reply);
        }
        drop(asked);
        {
            let table = &mut *self.table.lock();
            if ended {
                table.counts.ended += u64::from(table.sequences.ended(parent, &name));
            }
            table.coming.remove(&(parent, name));
        }
        self.arrived.notify_waiters();
    }
}
