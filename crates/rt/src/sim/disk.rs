//! Stub.
use crate::disk::Space;
use bytes::Bytes;
use std::io;
#[derive(Clone)]
pub struct Disk {}
#[derive(Clone)]
pub struct Dir {}
#[derive(Clone)]
pub struct File {}
impl Disk {
    pub async fn open_dir(&self, path: &str) -> io::Result<Dir> {
        unimplemented!()
    }
    pub async fn create_dir(&self, path: &str) -> io::Result<Dir> {
        unimplemented!()
    }
}
impl Dir {
    pub async fn create(&self, name: &str) -> io::Result<File> {
        unimplemented!()
    }
    pub async fn open(&self, name: &str) -> io::Result<File> {
        unimplemented!()
    }
    pub async fn list(&self) -> io::Result<Vec<String>> {
        unimplemented!()
    }
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn sync(&self) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn subdir(&self, name: &str) -> io::Result<Dir> {
        unimplemented!()
    }
    pub async fn lock(&self) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn space(&self) -> io::Result<Space> {
        unimplemented!()
    }
    pub fn path(&self) -> &std::path::Path {
        unimplemented!()
    }
}
impl File {
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        unimplemented!()
    }
    pub async fn write_at(&self, offset: u64, slices: Vec<Bytes>) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn sync(&self) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        unimplemented!()
    }
    pub async fn len(&self) -> io::Result<u64> {
        unimplemented!()
    }
}
