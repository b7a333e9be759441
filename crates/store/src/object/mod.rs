//! Objects of an OST. Stub: signatures only.
#![allow(unused_variables, clippy::unused_async, missing_docs)]

use std::sync::Arc;

use bytes::Bytes;
use proto::wire::messages::{ObjectAttr, Space};
use proto::{ObjectId, Timestamp, Transno};
use rt::Rt;

use crate::error::StoreError;
use crate::target::{Change, Store};

pub struct Objects {}

/// Keys that go into the same batch as a change of an object (reply slots), made once its result is known.
pub type Extra = Box<dyn FnOnce(&ObjectAttr) -> Vec<Change> + Send>;

impl Objects {
    pub async fn open(rt: &Rt, store: Arc<Store>) -> Result<Arc<Objects>, StoreError> {
        unimplemented!()
    }
    pub async fn write(
        &self,
        id: ObjectId,
        offset: u64,
        data: Vec<Bytes>,
        time: Timestamp,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        unimplemented!()
    }
    /// Slices that together are `[offset, offset+len)` cut at the object's end, holes as zeros; and the size.
    pub async fn read(&self, id: ObjectId, offset: u64, len: u32) -> Result<(Vec<Bytes>, u64), StoreError> {
        unimplemented!()
    }
    /// Cuts `[start, end)`; `end == u64::MAX` sets the size to `start`.
    pub async fn punch(
        &self,
        id: ObjectId,
        start: u64,
        end: u64,
        time: Timestamp,
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<(ObjectAttr, Transno), StoreError> {
        unimplemented!()
    }
    /// Size 0 and times 0 for an object that is not there; `Gone` for one that was destroyed.
    pub fn attr(&self, id: ObjectId) -> Result<ObjectAttr, StoreError> {
        unimplemented!()
    }
    /// Deletes for ever and leaves tombstones.
    pub async fn destroy(
        &self,
        ids: &[ObjectId],
        replay: Option<Transno>,
        extra: Extra,
    ) -> Result<Transno, StoreError> {
        unimplemented!()
    }
    pub fn list(&self, after: Option<ObjectId>, count_max: usize) -> Result<Vec<ObjectId>, StoreError> {
        unimplemented!()
    }
    pub async fn space(&self) -> Result<Space, StoreError> {
        unimplemented!()
    }
    pub async fn close(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
}
