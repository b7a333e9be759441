//! A target's store without a server: objects of an OST that nobody else knows, written and read as a server does it.

use std::path::Path;
use std::sync::Arc;

use proto::{ClientId, Fid, FsName, Nid, ObjectId, TargetId, Timestamp};
use rt::Rt;
use rt::os::Node;
use store::{Label, Objects, Store, StoreError};

use super::scratch::Scratch;
use super::{Bounds, DEPTHS, Data, Measure, PIECE, Speed, Way};
use crate::failure::Failure;

/// As many objects are written side by side, as files of several clients are.
const OBJECTS: u64 = 8;
const DIR: &str = "store";

/// An open store.
struct Open {
    store: Arc<Store>,
    objects: Arc<Objects>,
}

/// Measures it, in `dir`.
///
/// # Errors
/// The directory cannot be used, or the store fails.
pub fn measure(
    (node, rt): (&Node, &Rt),
    dir: &Path,
    bounds: &Bounds<'_>,
    data: &Data,
) -> Result<Vec<Speed>, Failure> {
    // Each depth writes objects of its own.
    let scratch = Scratch::new(dir, bounds.bytes.saturating_mul(DEPTHS.len() as u64))?;
    let path = format!("{}/{DIR}", scratch.text()?);
    let fsname: FsName =
        "survey".parse().map_err(|_| Failure::new("\"survey\" is no name of a file system"))?;
    let label = Label {
        fsname,
        target: TargetId::ost(0),
        uuid: ClientId(u128::from(rt.random_u64())),
        mgs: vec![Nid::lo()],
        service: Vec::new(),
    };
    std::fs::create_dir(&path).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let failed = |error: StoreError| Failure::new(format!("{}: {error}", dir.display()));
    let open = node.block_on(open(rt, &path, &label)).map_err(failed)?;
    let speeds = load(node, &open, bounds, data);
    // A store that is not closed goes on writing into what is removed.
    let closed = node.block_on(async {
        open.objects.close().await?;
        open.store.close().await
    });
    let speeds = speeds?;
    closed.map_err(failed)?;
    Ok(speeds)
}

async fn open(rt: &Rt, path: &str, label: &Label) -> Result<Open, StoreError> {
    Store::format(rt, path, label).await?;
    let store = Store::open(rt, path).await?;
    let objects = Objects::open(rt, store.clone()).await?;
    Ok(Open { store, objects })
}

/// Where a piece of the run with this number is.
fn place(run: u64, piece: u64) -> (ObjectId, u64) {
    let oid = u32::try_from(1 + run * OBJECTS + piece % OBJECTS).unwrap_or(1);
    let layout = Fid { seq: Fid::SEQ_NORMAL_START, oid, ver: 0 };
    (ObjectId { layout, stripe: 0 }, piece / OBJECTS * PIECE)
}

fn load(node: &Node, open: &Open, bounds: &Bounds<'_>, data: &Data) -> Result<Vec<Speed>, Failure> {
    let Open { store, objects } = open;
    let said = |error: StoreError| error.to_string();
    let mut speeds: Vec<Speed> = Vec::new();
    for (run, depth) in (0..).zip(DEPTHS) {
        let write = |piece: u64| {
            let (id, at) = place(run, piece);
            let slices = vec![data.of(piece)];
            let extra = store::object::Extra::default();
            let write = objects.write(id, at, slices, Timestamp::default(), None, extra);
            node.block_on(write).map(drop).map_err(said)
        };
        let durable = || node.block_on(store.committed(store.last_transno())).map_err(said);
        speeds.push(Measure { what: "store: write", way: Way::Write, depth }.run(bounds, write, durable)?);
    }
    for (run, depth) in (0..).zip(DEPTHS) {
        let written = speeds.get(run as usize).map_or(PIECE, |speed| speed.bytes.max(PIECE));
        let read = |piece: u64| {
            let (id, at) = place(run, piece % (written / PIECE));
            node.block_on(objects.read(id, at, PIECE as u32)).map(drop).map_err(said)
        };
        speeds.push(Measure { what: "store: read", way: Way::Read, depth }.run(bounds, read, || Ok(()))?);
    }
    Ok(speeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_side_by_side() {
        let (first, at) = place(0, 0);
        assert_eq!((first.layout.oid, at), (1, 0));
        assert_eq!(place(0, OBJECTS), (first, PIECE));
        assert_ne!(place(0, 1).0, first);
        assert_ne!(place(1, 0).0, first);
    }
}
