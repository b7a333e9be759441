//! Objects as a whole, in a simulated machine.

mod basics;
mod crowded;
mod full;
mod logged;
mod merged;
mod model;
mod reserved;
mod sealed;
mod summary;

use std::sync::Arc;

use bytes::Bytes;
use proto::{ClientId, Fid, FileOwner, ObjectId, TargetId, Timestamp, Transno};
use rt::Rt;
use rt::sim::{Options, Sim};

use super::check;
use super::logged::Kept;
use super::supply::Ready;
use super::{By, Extra, Limits, Objects, Seek};
use crate::check::Report;
use crate::error::StoreError;
use crate::label::Label;
use crate::target::{Change, Store};

const PATH: &str = "ost";
const NODE: &str = "oss";

/// Limits so small that a short test meets each of them. A hole takes one commit still: only then is it there
/// wholly or not at all after a crash.
const SMALL: Limits = Limits {
    tail_changes_max: 1,
    hole_changes_max: 2048,
    reserved_max: 2,
    neighbours_max: 2,
    cache_bytes_max: 4096,
};

/// An open target.
#[derive(Clone)]
struct Target {
    store: Arc<Store>,
    objects: Arc<Objects>,
}

/// Runs `test` with a new target.
fn check<F: Future<Output = Result<(), StoreError>>>(test: impl FnOnce(Rt, Target) -> F) {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let target = Target::make(&rt).await?;
        test(rt, target).await
    })
    .expect("no operation fails");
}

impl Target {
    async fn make(rt: &Rt) -> Result<Target, StoreError> {
        Target::make_with(rt, Limits::default()).await
    }

    async fn make_with(rt: &Rt, limits: Limits) -> Result<Target, StoreError> {
        Store::format(rt, PATH, &label()).await?;
        Target::open(rt, limits).await
    }

    async fn open(rt: &Rt, limits: Limits) -> Result<Target, StoreError> {
        let store = Store::open(rt, PATH).await?;
        let objects = Objects::open_with(rt, store.clone(), limits, Ready::AtOnce).await?;
        rt.spawn({
            let objects = objects.clone();
            async move { objects.finish().await }
        });
        Ok(Target { store, objects })
    }

    async fn close(self) -> Result<(), StoreError> {
        self.objects.close().await?;
        self.store.close().await
    }

    async fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<Transno, StoreError> {
        let data = vec![Bytes::copy_from_slice(data)];
        let by = By { time: at(1), owner: owner(offset) };
        Ok(self.objects.write(id, offset, data, by, None, nothing()).await?.1)
    }

    async fn punch(&self, id: ObjectId, start: u64, end: u64) -> Result<Transno, StoreError> {
        Ok(self.objects.punch(id, start, end, at(1), None, nothing()).await?.1)
    }

    async fn allocate(&self, id: ObjectId, start: u64, end: u64) -> Result<Transno, StoreError> {
        Ok(self.objects.allocate(id, start..end, at(1), None, nothing()).await?.1)
    }

    async fn destroy(&self, ids: &[ObjectId]) -> Result<Transno, StoreError> {
        self.objects.destroy(ids, &[], None, nothing()).await
    }

    async fn read(&self, id: ObjectId, offset: u64, len: u32) -> Result<Vec<u8>, StoreError> {
        Ok(self.objects.read(id, offset, len).await?.0.concat())
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.store.committed(self.store.last_transno()).await
    }

    /// What the checker finds.
    async fn findings(&self) -> Result<Vec<String>, StoreError> {
        let mut report = Report::default();
        check::structure_of(self.store.dir(), &*self.store, &mut report).await?;
        crate::recount::check_of(&*self.store, &mut report)?;
        check::data_of(self.store.dir(), &*self.store, &Kept::default(), &mut report).await?;
        Ok(report.findings)
    }

    async fn data_files(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.store.dir().subdir(super::files::DIR).await?.list().await?)
    }

    /// All objects in order.
    fn list(&self) -> Result<Vec<ObjectId>, StoreError> {
        let (from, until) = super::keys::records();
        let found = self.store.scan(&from, &until, usize::MAX)?;
        Ok(found
            .iter()
            .map(|(key, _)| super::keys::parse_record_key(key).expect("the key of an object"))
            .collect())
    }

    /// Number of extents of an object.
    fn extent_count(&self, id: ObjectId) -> Result<usize, StoreError> {
        let (from, until) = (super::keys::extent_key(id, 0), super::keys::extent_key(id, u64::MAX));
        Ok(self.store.scan(&from, &until, usize::MAX)?.len())
    }
}

fn label() -> Label {
    Label {
        fsname: "weft".parse().expect("a file system's name"),
        target: TargetId::ost(0),
        uuid: ClientId(7),
        mgs: Vec::new(),
        service: Vec::new(),
    }
}

fn id(oid: u32) -> ObjectId {
    stripe(oid, 0)
}

fn stripe(oid: u32, stripe: u32) -> ObjectId {
    ObjectId { layout: Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 }, stripe }
}

/// One of a few users and groups, whose version is `version` and one more.
fn owner(version: u64) -> FileOwner {
    FileOwner {
        uid: 1 + (version % 3) as u32,
        gid: 7 + (version % 2) as u32,
        version: version + 1,
        project: (version % 2) as u32,
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn nothing() -> Extra {
    Extra::default()
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 17) % 251) as u8).collect()
}
