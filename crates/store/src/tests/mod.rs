//! The store as a whole, on files of this machine.

// What a crash leaves behind is made here behind the store's back.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod basics;
mod full;
mod idle;
mod killed;
mod model;
mod owned;
mod simulated;
mod snapshots;
mod torn;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::{ClientId, TargetId, Transno};
use rt::Rt;
use rt::sim::Rng;

use crate::error::StoreError;
use crate::label::Label;
use crate::limits::Limits;
use crate::reserve::Sizes;
use crate::{Batch, Change, Need, Store};

/// Runs `test` with a formatted target in a directory of its own.
fn check<F: Future<Output = Result<(), StoreError>>>(test: impl FnOnce(Rt, String) -> F) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("target").to_str().expect("temporary names are plain").to_owned();
    with_node(async |rt| {
        Store::format(&rt, &path, &label()).await?;
        test(rt, path.clone()).await
    });
}

/// Runs `test` with a node, which gives back whatever it locked when the test is done.
fn with_node<F: Future<Output = Result<(), StoreError>>>(test: impl FnOnce(Rt) -> F) {
    let node = rt::os::Node::start(2).expect("a node starts");
    let result = node.block_on(test(Rt::os(node.clone())));
    result.expect("no operation fails");
    node.stop(Duration::from_secs(5));
}

fn label() -> Label {
    Label {
        fsname: "weft".parse().expect("a file system's name"),
        target: TargetId::mdt(0),
        uuid: ClientId(7),
        mgs: vec!["10.1.1.2@tcp".parse().expect("a NID")],
        service: Vec::new(),
    }
}

/// Limits so small that a short test meets each of them.
fn small() -> Limits {
    Limits {
        commit_bytes: 16 << 10,
        segment_bytes: 128 << 10,
        allocate_bytes: 64 << 10,
        unsynced_bytes_max: 64 << 10,
        unapplied_bytes_max: 256 << 10,
        log_bytes_max: 1 << 20,
        apply_after_bytes: 64 << 10,
        apply_bytes: 32 << 10,
        engine_table_bytes_min: 16 << 10,
        table_bytes_max: 32 << 10,
        engine_target_bytes: 128 << 10,
        reserve: Sizes { pieces: 256 << 10, margin: 128 << 10 },
        ..Limits::default()
    }
}

fn put(key: &str, value: &str) -> Change {
    Change {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    }
}

fn delete(key: &str) -> Change {
    Change { key: Bytes::copy_from_slice(key.as_bytes()), value: None }
}

fn batch(changes: impl Into<Vec<Change>>) -> Batch {
    Batch { changes: changes.into(), ..Batch::default() }
}

fn value_of(store: &Arc<Store>, key: &str) -> Option<(String, u64)> {
    let value = store.get(key.as_bytes()).expect("reads do not fail")?;
    Some((String::from_utf8_lossy(&value.bytes).into_owned(), value.version.0))
}

fn transno(n: u64) -> Transno {
    Transno(n)
}
