//! One directory: its names now, and what a crash may leave of them.

use std::collections::{BTreeMap, VecDeque};

use super::super::rng::Rng;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Dir(u64),
}

/// Whose change it is that no crash of a single node undoes.
const NOBODY: u32 = u32::MAX;

/// A change of names that is not durable yet.
pub(super) enum Change {
    Put {
        name: String,
        entry: Entry,
    },
    Take {
        name: String,
        entry: Entry,
    },
    Move {
        from: String,
        to: String,
        entry: Entry,
    },
    /// It was lost with the node that made it.
    Lost,
}

/// A change, and the node that made it.
struct Pending {
    by: u32,
    change: Change,
}

#[derive(Default)]
pub(super) struct Names {
    now: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    pending: VecDeque<Pending>,
    /// Changes that became durable: the number of the first pending one.
    synced: u64,
    /// The node, and its incarnation, that has the directory for itself.
    pub(super) locked_by: Option<(u32, u32)>,
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<Entry> {
        self.now.get(name).copied()
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.now.keys().cloned().collect()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.now.values().copied()
    }

    pub(super) fn put(&mut self, by: u32, name: &str, entry: Entry) {
        self.now.insert(name.to_owned(), entry);
        self.note(by, Change::Put { name: name.to_owned(), entry });
    }

    /// Puts a name that no crash takes away.
    pub(super) fn put_durably(&mut self, name: &str, entry: Entry) {
        self.now.insert(name.to_owned(), entry);
        self.durable.insert(name.to_owned(), entry);
    }

    pub(super) fn take(&mut self, by: u32, name: &str) {
        if let Some(entry) = self.now.remove(name) {
            self.note(by, Change::Take { name: name.to_owned(), entry });
        }
    }

    /// Renames over what is there; gives what that was.
    pub(super) fn rename(&mut self, by: u32, from: &str, to: &str) -> Option<Entry> {
        let entry = self.now.remove(from)?;
        let replaced = self.now.insert(to.to_owned(), entry);
        self.note(by, Change::Move { from: from.to_owned(), to: to.to_owned(), entry });
        replaced.filter(|replaced| *replaced != entry)
    }

    fn note(&mut self, by: u32, change: Change) {
        self.pending.push_back(Pending { by, change });
    }

    /// A node looks at the directory: what others have changed there is not lost with them any more.
    pub(super) fn seen_by(&mut self, node: u32) {
        self.pending.iter_mut().filter(|pending| pending.by != node).for_each(|pending| pending.by = NOBODY);
    }

    /// Begins a sync; gives what [`Names::end_sync`] wants.
    pub(super) fn begin_sync(&self) -> u64 {
        self.synced + self.pending.len() as u64
    }

    /// Changes before number `end` are durable now; gives the files that lost a durable name.
    pub(super) fn end_sync(&mut self, end: u64) -> Vec<Entry> {
        let mut lost = Vec::new();
        while self.synced < end {
            let Pending { change, .. } =
                self.pending.pop_front().expect("a sync ends behind changes that were there");
            self.synced += 1;
            lost.extend(match &change {
                Change::Put { name, entry } => self.durable.insert(name.clone(), *entry),
                Change::Take { name, .. } => self.durable.remove(name),
                Change::Move { from, to, entry } => {
                    self.durable.remove(from);
                    self.durable.insert(to.clone(), *entry)
                }
                Change::Lost => None,
            });
        }
        lost
    }

    /// Whether a crash could bring the file back.
    pub(super) fn may_return(&self, entry: Entry) -> bool {
        self.durable.values().any(|durable| *durable == entry)
            || self.pending.iter().any(|pending| match &pending.change {
                Change::Put { entry: of, .. }
                | Change::Take { entry: of, .. }
                | Change::Move { entry: of, .. } => *of == entry,
                Change::Lost => false,
            })
    }

    /// Power fails: each unsynced change survives with `keep` parts per million, on its own.
    pub(super) fn crash(&mut self, rng: &mut Rng, keep: u32) {
        for Pending { change, .. } in std::mem::take(&mut self.pending) {
            self.synced += 1;
            if rng.below(1_000_000) < u64::from(keep) {
                survive(&mut self.durable, &change);
            }
        }
        self.now = self.durable.clone();
        self.locked_by = None;
    }

    /// One of several nodes that use the directory fails: the same for what it changed and nobody else has seen.
    pub(super) fn crash_of(&mut self, node: u32, rng: &mut Rng, keep: u32) {
        for pending in self.pending.iter_mut().filter(|pending| pending.by == node) {
            pending.by = NOBODY;
            if rng.below(1_000_000) >= u64::from(keep) {
                pending.change = Change::Lost;
            }
        }
        self.now = self.durable.clone();
        self.pending.iter().for_each(|pending| survive(&mut self.now, &pending.change));
        self.locked_by = self.locked_by.filter(|(by, _)| *by != node);
    }
}

/// Carries out a change of which those before it may be lost.
fn survive(names: &mut BTreeMap<String, Entry>, change: &Change) {
    match change {
        Change::Put { name, entry } => {
            names.insert(name.clone(), *entry);
        }
        Change::Take { name, entry } => {
            if names.get(name) == Some(entry) {
                names.remove(name);
            }
        }
        Change::Move { to, entry, .. } => {
            // A rename before this one may be lost; the file has one name all the same.
            names.retain(|_, named| named != entry);
            names.insert(to.clone(), *entry);
        }
        Change::Lost => {}
    }
}
