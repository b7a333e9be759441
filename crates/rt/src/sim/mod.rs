//! Stub: sim driver.
#![allow(missing_docs, clippy::unused_async, unused_variables)]
pub mod disk;
pub mod net;

use crate::BoxFuture;
use crate::time::{Time, Wall};

/// Handle.
#[derive(Clone)]
pub struct Node {}

impl Node {
    pub fn now(&self) -> Time {
        unimplemented!()
    }
    pub fn wall(&self) -> Wall {
        unimplemented!()
    }
    pub async fn sleep_until(&self, time: Time) {
        unimplemented!()
    }
    pub fn spawn(&self, future: BoxFuture<'static, ()>) {
        unimplemented!()
    }
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        unimplemented!()
    }
    pub fn random_bytes(&self, bytes: &mut [u8]) {
        unimplemented!()
    }
    pub fn disk(&self) -> disk::Disk {
        unimplemented!()
    }
    pub fn net(&self) -> net::Net {
        unimplemented!()
    }
}
