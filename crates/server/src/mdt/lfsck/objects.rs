//! Whether each object belongs to a file, each file has the object with its last byte, and data is as it was written.
//!
//! Files are taken in the order of their ids, some at a time, and of each target the objects whose layouts have ids in between.
//! What seems wrong is looked at again as it is then: files change meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::layout::Place;
use proto::wire::messages::{Destroy, InspectObjects, InspectedPage, ObjectPlace};
use proto::{DataTarget, Fid, MdtIndex, ObjectId};
use rpc::RpcError;
use rt::wait::join_all;
use service::keys::behind;
use store::{Scan, Snapshot, StoreError};

use super::claims::{Claims, Damage, File, Foreign, Unclaimed};
use super::order::Check;
use super::{End, KEYS_AT_A_TIME, PAUSE};
use crate::mdt::inode::Inode;
use crate::mdt::{Mdt, keys};

/// Objects that nobody claims at first and that are gathered before all files are asked: so much memory it takes at most, about 100 bytes
/// each.
const UNCLAIMED_MAX: usize = 200_000;
/// How often somebody who waits looks whether the check is to end.
const LOOK_TICK: Duration = Duration::from_millis(500);
/// Names of directories above a file that a path has at most.
const DEPTH_MAX: usize = 4096;

/// Behind all ids.
const LAST: Fid = Fid { seq: u64::MAX, oid: u32::MAX, ver: u32::MAX };

/// How long it takes to read so many bytes at `rate` bytes per second; no time if that is 0: then they are read as fast as they can be.
fn time_for(bytes: u64, rate: u64) -> Duration {
    // A large file system has more bytes than milliseconds times bytes have room for in 64 bits.
    let millis = (u128::from(bytes) * 1000).checked_div(u128::from(rate)).unwrap_or(0);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Numbers of a check.
#[derive(Default)]
struct Counts {
    inodes: u64,
    objects: u64,
    bytes: u64,
    damaged: u64,
    missing: u64,
    orphans: u64,
    destroyed: u64,
}

impl Counts {
    fn lines(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("checked_phase1", self.objects),
            ("checked_inodes", self.inodes),
            ("bytes_read", self.bytes),
            ("found_damaged", self.damaged),
            ("found_missing", self.missing),
            ("found_orphan", self.orphans),
            ("repaired_orphan", self.destroyed),
        ]
    }
}

struct Walk<'a> {
    mdt: &'a Arc<Mdt>,
    check: Check,
    claims: Claims,
    counts: Counts,
    begun: rt::Time,
}

/// Some files, and the first id that is not looked at.
struct Files {
    files: Vec<File>,
    /// All inodes, of whatever kind.
    count: u64,
    /// An inode could not be read: which objects it has nobody knows.
    has_damage: bool,
    until: Fid,
}

pub(super) async fn check(mdt: &Arc<Mdt>, check: Check) -> Result<(), End> {
    let begun = mdt.rt.now();
    let mut walk = Walk { mdt, check, claims: Claims::default(), counts: Counts::default(), begun };
    let mut from = Fid::ZERO;
    while from != LAST {
        let files = walk.files_from(from).await?;
        walk.counts.inodes += files.count;
        walk.claims.begin(files.files);
        walk.objects_between(from, files.until).await?;
        if check.layout {
            walk.look_for_missing().await?;
        }
        from = files.until;
    }
    walk.settle().await?;
    walk.show(String::new());
    Ok(())
}

impl Walk<'_> {
    fn go_on(&self) -> Result<(), End> {
        if self.mdt.lfsck.is_stopped(&self.mdt.stop) { Err(End::Stopped) } else { Ok(()) }
    }

    fn show(&self, position: String) {
        let mut state = self.mdt.lfsck.state.lock();
        state.layout.counts = self.counts.lines();
        state.layout.position = position;
    }

    fn find(&self, line: String) {
        self.mdt.lfsck.state.lock().findings.add(line);
    }

    /// The next files, as they are now.
    async fn files_from(&self, from: Fid) -> Result<Files, End> {
        let snapshot = self.mdt.store.snapshot().await?;
        Ok(self.mdt.rt.offload(move || files_of(&snapshot, from)).await?)
    }

    /// Every target that is part of the file system, each with its own place in the walk.
    fn targets(&self) -> Vec<DataTarget> {
        let table = self.mdt.objects.osts.table();
        let osts = table.osts().filter(|ost| !self.mdt.objects.osts.is_removed(*ost)).map(DataTarget::Ost);
        osts.chain([self.own()]).collect()
    }

    fn own(&self) -> DataTarget {
        MdtIndex(self.mdt.store.label().target.index).into()
    }

    /// Sees the objects of all targets whose layouts have ids from `from` on and before `until`.
    async fn objects_between(&mut self, from: Fid, until: Fid) -> Result<(), End> {
        let begin = ObjectPlace { object: ObjectId { layout: from, stripe: 0 }, offset: 0 };
        let mut places: BTreeMap<DataTarget, ObjectPlace> =
            self.targets().into_iter().map(|target| (target, begin)).collect();
        while !places.is_empty() {
            self.go_on()?;
            let asked = places.iter().map(|(target, place)| self.page(*target, *place, until));
            let pages = join_all(asked).await;
            let targets: Vec<DataTarget> = places.keys().copied().collect();
            for (target, page) in targets.into_iter().zip(pages) {
                let page = page?;
                self.counts.objects += page.objects.len() as u64;
                self.counts.bytes += page.bytes;
                page.objects.into_iter().for_each(|seen| self.claims.see(target, seen));
                match page.next {
                    Some(next) if Some(&next) > places.get(&target) => places.insert(target, next),
                    _ => places.remove(&target),
                };
            }
            self.tell_damage();
            if self.claims.unclaimed.len() >= UNCLAIMED_MAX {
                self.settle().await?;
            }
            self.show(places.values().next().map_or(until, |place| place.object.layout).to_string());
            self.pause().await?;
        }
        Ok(())
    }

    /// Waits until what was read is no more than may be.
    async fn pause(&self) -> Result<(), End> {
        let Check { rate, .. } = self.check;
        let due = time_for(self.counts.bytes, rate);
        loop {
            let early = due.saturating_sub(self.mdt.rt.now() - self.begun);
            self.mdt.rt.sleep(early.clamp(PAUSE, LOOK_TICK)).await;
            self.go_on()?;
            if early <= LOOK_TICK {
                return Ok(());
            }
        }
    }

    async fn page(&self, target: DataTarget, from: ObjectPlace, until: Fid) -> Result<InspectedPage, End> {
        self.inspect(target, InspectObjects { from, until, verifies: self.check.scrub }).await
    }

    async fn inspect(&self, target: DataTarget, asked: InspectObjects) -> Result<InspectedPage, End> {
        let DataTarget::Ost(ost) = target else { return Ok(self.mdt.data.inspect_here(&asked).await?) };
        let gone = || End::Failed(format!("{target} was taken out of the file system meanwhile"));
        let import = self.mdt.objects.osts.import(ost).ok_or_else(gone)?;
        loop {
            // A target that does not answer is waited for, as always, but not by whoever wants the check to end.
            let wait = self.mdt.rt.timeout(Duration::from_secs(5), import.call(asked.clone()));
            match self.mdt.stop.unless(wait).await {
                Some(Some(Ok(answered))) => return Ok(answered.reply),
                Some(Some(Err(RpcError::Refused(code)))) => {
                    return Err(End::Failed(format!("{target} refuses: {code}")));
                }
                Some(Some(Err(RpcError::Closed))) => return Err(gone()),
                Some(None) => self.show(format!("waits for {target}")),
                None => return Err(End::Stopped),
            }
            self.go_on()?;
        }
    }

    fn tell_damage(&mut self) {
        for damage in std::mem::take(&mut self.claims.damage) {
            self.tell_damaged(&damage);
        }
    }

    fn tell_damaged(&mut self, damage: &Damage) {
        self.counts.damaged += 1;
        let Damage { target, object, part, of } = damage;
        let whole = format!(
            "object {}:{} on {target}, bytes {} to {}",
            object.layout,
            object.stripe,
            part.start,
            part.end - 1
        );
        self.find(match of {
            Some((fid, bytes)) => {
                let path = self.path(*fid);
                format!("damaged: {path} bytes {} to {} ({whole})", bytes.start, bytes.end - 1)
            }
            None => format!("damaged: {whole}, which belongs to no file"),
        });
    }

    /// Files whose last byte no target has are looked at again.
    async fn look_for_missing(&mut self) -> Result<(), End> {
        for (fid, version, place, size) in self.claims.short() {
            let Place { object, target } = place;
            if !self.targets().contains(&target) {
                continue;
            }
            let found = self.look_again(target, object).await?;
            let is_as_before = self.version(fid)? == Some(version) && !self.mdt.opens.is_open(fid);
            if found.is_some_and(|found| found >= size) || !is_as_before {
                continue;
            }
            self.counts.missing += 1;
            let path = self.path(fid);
            let there = found.map_or("is missing".to_owned(), |found| format!("ends at {found}"));
            self.find(format!(
                "missing: {path}: object {}:{} on {target} {there}, and is to have byte {}",
                object.layout,
                object.stripe,
                size - 1
            ));
        }
        Ok(())
    }

    fn version(&self, fid: Fid) -> Result<Option<u64>, End> {
        Ok(self.mdt.store.get(&keys::inode(fid))?.map(|value| value.version.0))
    }

    /// The size of an object, if it is there.
    async fn look_again(&self, target: DataTarget, object: ObjectId) -> Result<Option<u64>, End> {
        let until = next_of(object.layout);
        let from = ObjectPlace { object, offset: 0 };
        let page = self.inspect(target, InspectObjects { from, until, verifies: false }).await?;
        Ok(page.objects.first().filter(|found| found.object == object).map(|found| found.size))
    }

    /// Asks all files for the objects that nobody has claimed so far, and tells of those that no file has.
    async fn settle(&mut self) -> Result<(), End> {
        let mut foreign = Foreign::new(std::mem::take(&mut self.claims.unclaimed));
        if foreign.is_empty() {
            return Ok(());
        }
        // Taken now: a file that has one of them had it before it was written to.
        let snapshot = Arc::new(self.mdt.store.snapshot().await?);
        let mut from = Fid::ZERO;
        while from != LAST {
            self.go_on()?;
            let read = snapshot.clone();
            let files = self.mdt.rt.offload(move || files_of(&read, from)).await?;
            files.files.iter().for_each(|file| foreign.ask(file));
            self.show(format!("asks files for objects {from}"));
            // Objects of a file that cannot be read are not to go.
            self.check.deletes_orphans &= !files.has_damage;
            from = files.until;
        }
        for damage in std::mem::take(&mut foreign.damage) {
            self.tell_damaged(&damage);
        }
        if self.check.layout {
            for one in foreign.left() {
                self.go_on()?;
                self.orphan(one).await?;
            }
        }
        Ok(())
    }

    /// No file had the object when all were asked.
    async fn orphan(&mut self, one: Unclaimed) -> Result<(), End> {
        let Unclaimed { target, object, damaged, .. } = one;
        // What is to be destroyed goes. An entry is taken off the list when the object is gone, so it is looked for first.
        if self.mdt.store.get(&keys::destroy(target, object.layout))?.is_some() {
            return Ok(());
        }
        let Some(size) = self.look_again(target, object).await? else { return Ok(()) };
        self.counts.orphans += 1;
        let mut line = format!(
            "orphan: object {}:{} on {target}, {size} bytes, belongs to no file",
            object.layout, object.stripe
        );
        if self.check.deletes_orphans {
            self.destroy(target, object).await?;
            self.counts.destroyed += 1;
            line.push_str(": deleted");
        }
        self.find(line);
        for part in damaged {
            self.tell_damaged(&Damage { target, object, part, of: None });
        }
        Ok(())
    }

    async fn destroy(&self, target: DataTarget, object: ObjectId) -> Result<(), End> {
        let DataTarget::Ost(ost) = target else {
            let transno = self.mdt.data.destroy_here(&[object], &[]).await?;
            return Ok(self.mdt.store.committed(transno).await?);
        };
        let failed = || End::Failed(format!("{target} does not destroy an object"));
        let import = self.mdt.objects.osts.import(ost).ok_or_else(failed)?;
        let order = async {
            let answered = import.call(Destroy { objects: vec![object], dead: Vec::new() }).await?;
            import.committed(answered.transno).await
        };
        self.mdt.stop.unless(order).await.ok_or(End::Stopped)?.map_err(|_| failed())
    }

    /// A path of the file as it is now, or its FID.
    fn path(&self, fid: Fid) -> String {
        let above = |fid: Fid| {
            let from = keys::of(keys::LINK, fid);
            let found = self.mdt.store.scan(&from, &behind(&from), 1).ok()?;
            keys::link_parts(&found.first()?.0)
        };
        let (mut names, mut at) = (Vec::new(), fid);
        while at != Fid::ROOT && names.len() < DEPTH_MAX {
            let Some((parent, name)) = above(at) else { return fid.to_string() };
            names.push(format!("/{}", name.as_bytes().escape_ascii()));
            at = parent;
        }
        names.into_iter().rev().collect()
    }
}

/// The files with ids from `from` on, and all ids that are not behind the last of them.
fn files_of(snapshot: &Snapshot, from: Fid) -> Result<Files, StoreError> {
    let page = Scan::scan(snapshot, &keys::inode(from), &behind(&[keys::INODE]), KEYS_AT_A_TIME)?;
    let until = match page.last() {
        Some((key, _)) if page.len() == KEYS_AT_A_TIME => keys::fid_of(key).map_or(LAST, next_of),
        _ => LAST,
    };
    let count = page.len() as u64;
    let inode = |(key, value): (bytes::Bytes, store::Value)| {
        Inode::decode(keys::fid_of(&key)?, &value.bytes, value.version.0)
    };
    // Those that cannot be read the check of the name space names.
    let inodes: Vec<Inode> = page.into_iter().filter_map(inode).collect();
    let has_damage = inodes.len() as u64 != count;
    let files = inodes.into_iter().filter_map(File::of).collect();
    Ok(Files { files, count, has_damage, until })
}

/// The next id.
fn next_of(fid: Fid) -> Fid {
    match (fid.ver.checked_add(1), fid.oid.checked_add(1)) {
        (Some(ver), _) => Fid { ver, ..fid },
        (None, Some(oid)) => Fid { oid, ver: 0, ..fid },
        (None, None) => Fid { seq: fid.seq.saturating_add(1), oid: 0, ver: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_a_large_file_system_is_paced_as_that_of_a_small_one() {
        assert_eq!(time_for(3 << 20, 1 << 20), Duration::from_secs(3));
        assert_eq!(time_for(1 << 55, 1 << 30), Duration::from_secs(1 << 25));
        assert_eq!(time_for(u64::MAX, 1), Duration::from_millis(u64::MAX));
        assert_eq!(time_for(1 << 55, 0), Duration::ZERO, "there is no limit");
    }
}
