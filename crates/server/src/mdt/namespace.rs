//! Inodes and entries as operations read and change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proto::changelog::Record;
use proto::wire::messages::{BitLock, LOCK_ALL, LOCK_UPDATE};
use proto::{Code, DataTarget, Fid, FileKind, Name, Timestamp};
use service::VERSION_OF_THIS;
use smallvec::SmallVec;
use store::sums::{self, INODE_OWNERS, INODES};
use store::{Batch, Change, Store, Sums};

use super::changelog::Records;
use super::inode::Inode;
use super::locks::Locks;
use super::owners::{self, Numbers};
use super::plan::{Plan, Reads, Step};
use super::quota::{Bound, Bounds};
use super::sharing::Key;
use super::{Ctx, Mdt, Outcome, keys};

/// Space that a file takes on an MDT, as `statfs` estimates it, in bytes.
pub const BYTES_PER_FILE: u64 = 1024;

/// What an operation is going to commit.
#[derive(Default)]
pub struct Changes {
    changes: Vec<Change>,
    /// Where each key stands in them, if they were joined.
    places: BTreeMap<Bytes, usize>,
    /// Bytes of keys and values that were joined.
    bytes: usize,
    /// Targets whose lists get longer.
    ordered: SmallVec<[DataTarget; 4]>,
    /// What of which file others see change (`LOCK_*` bits).
    affected: SmallVec<[(Fid, u32); 4]>,
    /// Files that lose their last name.
    nameless: SmallVec<[Fid; 1]>,
    /// Inodes that are taken away.
    gone: SmallVec<[Fid; 1]>,
    /// What others may build on.
    shared: SmallVec<[Key; 8]>,
    /// Inodes that there are more, and of which owners.
    sums: Sums,
    /// Layout ids that name nothing any more then.
    dead: SmallVec<[Fid; 1]>,
    /// What the changelog says of it.
    records: Records,
}

impl Changes {
    fn put(&mut self, key: Bytes, value: Bytes) {
        self.changes.push(Change { key, value: Some(value) });
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: Bytes) {
        self.changes.push(Change { key, value: None });
    }

    /// Writes a key that is none of those below.
    pub fn put_raw(&mut self, key: Bytes, value: Bytes) {
        self.put(key, value);
    }

    /// Makes an inode.
    pub fn add_inode(&mut self, inode: &Inode) {
        self.sums.add(&INODES.key(), 1);
        self.count_owners(inode, 1);
        self.put_new_inode(inode);
    }

    fn count_owners(&mut self, inode: &Inode, by: i64) {
        owners(inode).iter().for_each(|key| self.sums.add(key, by));
    }

    /// An inode has other owners than `before`.
    pub fn change_owners(&mut self, before: &Inode, after: &Inode) {
        self.count_owners(before, -1);
        self.count_owners(after, 1);
    }

    /// The change fails if it gives owners more than `bounds` permit.
    pub fn bound(&mut self, bounds: Bounds) {
        for Bound { kind, id, most, change } in bounds {
            self.sums.limit(&INODE_OWNERS.key(kind, id), most);
            self.changes.extend(change);
        }
    }

    /// Writes an inode that nobody knows yet, or nobody knows any more.
    fn put_new_inode(&mut self, inode: &Inode) {
        self.shared.push(Key::inode(inode.fid));
        self.put(keys::inode(inode.fid), inode.encode());
    }

    /// Writes an inode of which others see `bits` (`LOCK_*`) change.
    pub fn put_inode(&mut self, inode: &Inode, bits: u32) {
        self.affected.push((inode.fid, bits));
        if !inode.is_dir() || bits & !LOCK_UPDATE != 0 {
            self.shared.push(Key::inode(inode.fid));
        }
        self.put(keys::inode(inode.fid), inode.encode());
    }

    /// Makes `name` in `parent` mean `fid`, over what it meant before.
    pub fn put_entry(&mut self, parent: Fid, name: &Name, fid: Fid, kind: FileKind) {
        self.shared.extend([Key::entry(parent, name), Key::entries(parent)]);
        self.put(keys::entry(parent, name), keys::entry_value(fid, kind));
        self.put(keys::link(fid, parent, name), Bytes::new());
    }

    /// Takes `name`, which means `fid`, out of `parent`.
    pub fn remove_entry(&mut self, parent: Fid, name: &Name, fid: Fid) {
        self.shared.extend([Key::entry(parent, name), Key::entries(parent)]);
        self.remove(keys::entry(parent, name));
        self.remove_link(parent, name, fid);
    }

    /// Forgets that `fid` has `name` in `parent`; the entry itself means another file now.
    pub fn remove_link(&mut self, parent: Fid, name: &Name, fid: Fid) {
        self.remove(keys::link(fid, parent, name));
    }

    /// Whether others see something change of files that have a name.
    pub fn concerns_others(&self) -> bool {
        self.affected.iter().any(|(_, bits)| *bits != 0)
    }

    /// Layout ids that name nothing any more once this is durable.
    pub fn dead(&self) -> SmallVec<[Fid; 1]> {
        self.dead.clone()
    }

    /// The inodes that are taken away.
    pub fn gone(&mut self) -> SmallVec<[Fid; 1]> {
        std::mem::take(&mut self.gone)
    }

    /// Notes what dies with `inode`. A file's FID may name the layout of another one, with which it exchanged: only what its layout
    /// has is dead. What never has a layout gave its FID to none.
    fn note_dead(&mut self, inode: &Inode) {
        match &inode.layout {
            Some(layout) => self.dead.extend(layout.ids()),
            None if inode.kind() != FileKind::File => self.dead.push(inode.fid),
            None => {}
        }
    }

    /// Has the changelog say it.
    pub fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The targets on which objects are to be destroyed, or got another owner.
    pub fn ordered(&self) -> SmallVec<[DataTarget; 4]> {
        self.ordered.clone()
    }

    /// Notes that the objects of `inode` are to be destroyed once this is durable.
    pub fn destroy_objects(&mut self, inode: &Inode) {
        let Some(layout) = inode.layout.as_ref().filter(|_| inode.may_have_objects()) else { return };
        for component in &layout.components {
            for (target, stripes) in super::destroy::stripes_by_target(component) {
                self.put(keys::destroy(target, component.id), super::destroy::encode(&stripes));
                self.ordered.push(target);
            }
        }
    }

    /// Notes that the objects of `inode`, which has another owner now, are to know it once this is durable. Objects that were not there
    /// are then, so the inode has something to be destroyed.
    pub fn give_objects(&mut self, inode: &mut Inode, numbers: &Numbers) {
        let Some(layout) = inode.layout.as_ref().filter(|_| inode.may_have_objects()) else { return };
        for component in &layout.components {
            for (target, stripes) in super::destroy::stripes_by_target(component) {
                let key = keys::owners(target, component.id, numbers.next());
                self.put(key, owners::encode(inode.owner(), &stripes));
                self.ordered.push(target);
                inode.written = true;
            }
        }
    }

    /// What is known of `key` once they are committed; `None`: they do not change it.
    pub(super) fn changed(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.places.get(key).and_then(|place| self.changes.get(*place)).map(|change| &change.value)
    }

    /// Bytes of keys and values that were joined.
    pub fn joined_bytes(&self) -> usize {
        self.bytes
    }

    /// `later` changes are committed with these, and come behind them.
    pub fn join(&mut self, later: Changes) {
        for change in later.changes {
            self.bytes += change.key.len() + change.value.as_ref().map_or(0, Bytes::len);
            self.supersede(&change.key);
            match self.places.get(&change.key) {
                Some(place) => {
                    if let Some(before) = self.changes.get_mut(*place) {
                        before.value = change.value;
                    }
                }
                None => {
                    self.places.insert(change.key.clone(), self.changes.len());
                    self.changes.push(change);
                }
            }
        }
        self.ordered.extend(later.ordered);
        self.affected.extend(later.affected);
        self.nameless.extend(later.nameless);
        self.shared.extend(later.shared);
        self.sums.join(later.sums);
        self.dead.extend(later.dead);
        self.gone.extend(later.gone);
        self.records.extend(later.records);
    }

    /// Objects that get another owner once more in one transaction are told of the last one alone: to them both would be of the same age.
    fn supersede(&mut self, key: &Bytes) {
        let Some(objects) = keys::owned(key) else { return };
        for (_, place) in self.places.range(Bytes::copy_from_slice(objects)..key.clone()) {
            if let Some(before) = self.changes.get_mut(*place) {
                before.value = None;
            }
        }
    }

    /// The changes as the store takes them.
    pub fn into_batch(self) -> Batch {
        Batch { changes: self.changes, sums: self.sums, ..Batch::default() }
    }
}

/// The sums in which an inode is counted for its owners.
fn owners(inode: &Inode) -> SmallVec<[[u8; 6]; 3]> {
    sums::owners(inode.owner()).into_iter().map(|(kind, id)| INODE_OWNERS.key(kind, id)).collect()
}

/// The inode that a record says.
fn decoded(fid: Fid, record: &Bytes, version: u64) -> Step<Inode> {
    Inode::decode(fid, record, version).ok_or_else(|| {
        tracing::error!(%fid, "the record of an inode is damaged");
        Code::Corrupt.into()
    })
}

/// The names and inodes of a target: what is stored, and what is locked.
pub struct Names {
    pub(super) store: Arc<Store>,
    pub(super) locks: Locks,
}

impl Names {
    /// Those in `store`; nothing is locked.
    pub fn new(store: &Arc<Store>) -> Names {
        Names { store: store.clone(), locks: Locks::new(store.clone()) }
    }

    /// What a change that makes `inode`, or takes it away, adds to is in memory: the store reads it. Called before anything is changed.
    pub(super) fn counted(&self, reads: Reads, inode: &Inode) -> Step<()> {
        self.get(reads, &INODES.key())?;
        self.owners_counted(reads, inode)
    }

    /// The same for a change of its owners.
    pub(super) fn owners_counted(&self, reads: Reads, inode: &Inode) -> Step<()> {
        owners(inode).iter().try_for_each(|key| self.get(reads, key).map(drop))
    }

    /// The inode `fid`, if there is one, for a request.
    pub(super) fn find_inode(&self, ctx: &Ctx, fid: Fid) -> Step<Option<Inode>> {
        ctx.settled(fid)?;
        if let Some(changed) = ctx.changed(&keys::inode(fid)) {
            return changed.map(|record| decoded(fid, &record, VERSION_OF_THIS)).transpose();
        }
        let found = self.read_inode(ctx.reads(), fid);
        ctx.saw(Key::inode(fid));
        found
    }

    /// The inode `fid`, if there is one, for nobody to be told of.
    pub(super) fn read_inode(&self, reads: Reads, fid: Fid) -> Step<Option<Inode>> {
        let Some(value) = self.get(reads, &keys::inode(fid))? else { return Ok(None) };
        decoded(fid, &value.bytes, value.version.0).map(Some)
    }

    /// The inode `fid`.
    pub(super) fn inode(&self, ctx: &Ctx, fid: Fid) -> Step<Inode> {
        self.find_inode(ctx, fid)?.ok_or(Code::Stale.into())
    }

    /// The directory `fid`.
    pub(super) fn dir(&self, ctx: &Ctx, fid: Fid) -> Step<Inode> {
        let dir = self.inode(ctx, fid)?;
        if dir.is_dir() { Ok(dir) } else { Err(Code::NotDirectory.into()) }
    }

    /// The directory `fid`, to put an entry in: one that has no name any more takes none.
    pub(super) fn living_dir(&self, ctx: &Ctx, fid: Fid) -> Step<Inode> {
        let dir = self.dir(ctx, fid)?;
        if dir.nlink == 0 { Err(Code::NotFound.into()) } else { Ok(dir) }
    }

    /// What `name` means in `parent`.
    pub(super) fn find_entry(&self, ctx: &Ctx, parent: Fid, name: &Name) -> Step<Option<(Fid, FileKind)>> {
        if let Some(changed) = ctx.changed(&keys::entry(parent, name)) {
            return Ok(changed.and_then(|entry| keys::entry_of(&entry)));
        }
        let found = self.read_entry(ctx.reads(), parent, name);
        ctx.saw(Key::entry(parent, name));
        found
    }

    /// The same for nobody to be told of.
    pub(super) fn read_entry(&self, reads: Reads, parent: Fid, name: &Name) -> Step<Option<(Fid, FileKind)>> {
        let Some(value) = self.get(reads, &keys::entry(parent, name))? else { return Ok(None) };
        match keys::entry_of(&value.bytes) {
            Some(entry) => Ok(Some(entry)),
            None => {
                tracing::error!(%parent, ?name, "an entry is damaged");
                Err(Code::Corrupt.into())
            }
        }
    }

    /// Whether `dir`, which the caller has locked, has no entries.
    pub(super) fn is_empty(&self, ctx: &Ctx, dir: &Inode) -> Step<bool> {
        let found = ctx.plan.is_empty(dir)?;
        ctx.saw(Key::entries(dir.fid));
        Ok(found)
    }

    /// Whether `fid`, which has no name, may get one: it was made without.
    pub(super) fn is_linkable(&self, reads: Reads, fid: Fid) -> Step<bool> {
        Ok(self.get(reads, &keys::orphan(fid))?.is_some_and(|value| keys::is_linkable(&value.bytes)))
    }
}

impl Mdt {
    /// The last name of `inode` went: it goes too, or stays nameless as long as it is open. The caller holds its
    /// lock and has not changed it. While clients replay nobody knows yet what is open: [`super::orphans`] looks afterwards.
    pub(super) fn drop_name(
        &self,
        plan: &Plan,
        changes: &mut Changes,
        inode: &mut Inode,
        time: Timestamp,
    ) -> Step<()> {
        self.names.counted(Reads::Known, inode)?;
        // Whoever keeps it open without need closes it when this is called back.
        changes.affected.push((inode.fid, LOCK_ALL));
        changes.nameless.push(inode.fid);
        let stays = self.opens.is_open(inode.fid) || self.recovery.is_active();
        if !stays {
            self.drop_inode(plan, changes, inode)?;
        }
        inode.nlink = 0;
        inode.touch(time);
        if stays {
            changes.put_new_inode(inode);
            changes.put_raw(keys::orphan(inode.fid), keys::orphan_value(false));
        }
        Ok(())
    }

    /// Takes an inode away with everything that belongs to it.
    fn drop_inode(&self, plan: &Plan, changes: &mut Changes, inode: &Inode) -> Step<()> {
        let xattrs = plan.xattrs(inode)?;
        changes.sums.add(&INODES.key(), -1);
        changes.count_owners(inode, -1);
        changes.note_dead(inode);
        changes.shared.push(Key::inode(inode.fid));
        changes.remove(keys::inode(inode.fid));
        changes.destroy_objects(inode);
        xattrs.into_iter().for_each(|key| changes.remove(key));
        self.opens.cutters(inode.fid).into_iter().for_each(|by| changes.remove(keys::cut(by, inode.fid)));
        changes.gone.push(inode.fid);
        Ok(())
    }

    /// The last of those who are known to have the inode open has closed it. The caller holds its lock.
    pub(super) fn closed_last(&self, plan: &Plan, changes: &mut Changes, inode: &Inode) -> Step<()> {
        if self.recovery.is_active() { Ok(()) } else { self.drop_if_nameless(plan, changes, inode) }
    }

    /// Takes the inode away if it has no name; nobody has it open any more. The caller holds its lock.
    pub(super) fn drop_if_nameless(&self, plan: &Plan, changes: &mut Changes, inode: &Inode) -> Step<()> {
        if inode.nlink != 0 {
            return Ok(());
        }
        changes.remove(keys::orphan(inode.fid));
        self.drop_inode(plan, changes, inode)
    }

    /// Commits the changes of a request with its reply. Others give back what the changes concern first: as long as
    /// they have not this fails, and the operation is carried out again.
    pub(super) fn commit(&self, ctx: &Ctx, mut changes: Changes, reply: proto::wire::Reply) -> Outcome {
        ctx.need(&changes.affected)?;
        if self.rt.verify() {
            self.check_affected(&changes);
        }
        let (ordered, dead) = (changes.ordered(), changes.dead());
        let nameless = std::mem::take(&mut changes.nameless);
        let gone = changes.gone();
        let shared = std::mem::take(&mut changes.shared);
        let records = std::mem::take(&mut changes.records);
        let done = ctx.changing(&shared, || {
            self.changelog.commit(records, (|| ctx.session().nid(), ctx.job), |recorded| {
                changes.changes.extend(recorded);
                ctx.commit(changes.into_batch(), reply)
            })
        })?;
        self.objects.destroyer.note_dead(&dead, done.transno);
        gone.into_iter().for_each(|fid| self.opens.gone(fid));
        // The client whose operation it was forgets what it kept of them.
        for fid in nameless {
            let lock = BitLock { fid, bits: LOCK_ALL, number: u64::MAX };
            self.grants.bits.given_up(ctx.session().handle(), &lock);
            self.grants.bits.removed(fid);
        }
        if !ordered.is_empty() {
            self.objects.destroyer.wake(&ordered);
        }
        Ok(done)
    }

    /// Whether everything that others see change is among what was called back.
    fn check_affected(&self, changes: &Changes) {
        for change in &changes.changes {
            let Some(fid) = keys::fid_of(&change.key).filter(|_| change.key.first() == Some(&keys::INODE))
            else {
                continue;
            };
            let Ok(Some(before)) = self.names.read_inode(Reads::Known, fid) else { continue };
            let after = change.value.as_ref().and_then(|record| Inode::decode(fid, record, before.version));
            let seen = match &after {
                Some(after) => before.seen_changes(after),
                // Nobody has anything of a file without a name.
                None if before.nlink == 0 => 0,
                None => LOCK_ALL,
            };
            let affected = changes.affected.iter().filter(|(of, _)| *of == fid);
            let called = affected.fold(0, |bits, (_, more)| bits | more);
            assert!(seen & !called == 0, "{fid}: bits {seen:#x} change, {called:#x} were called back");
        }
    }
}
