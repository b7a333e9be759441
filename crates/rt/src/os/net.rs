//! Stub.
use crate::net::{Addr, Conn, Frame, FrameLimit};
use std::io;
#[derive(Clone)]
pub struct Net {}
pub struct Listener {}
#[derive(Clone)]
pub struct Sender {}
pub struct Receiver {}
impl Net {
    pub async fn listen(&self, addr: &Addr) -> io::Result<Listener> {
        unimplemented!()
    }
    pub async fn connect(&self, addr: &Addr) -> io::Result<Conn> {
        unimplemented!()
    }
}
impl Listener {
    pub async fn accept(&mut self) -> io::Result<Conn> {
        unimplemented!()
    }
    pub fn addr(&self) -> Addr {
        unimplemented!()
    }
}
impl Sender {
    pub async fn send(&self, frame: Frame) -> io::Result<()> {
        unimplemented!()
    }
    pub fn close(&self) {
        unimplemented!()
    }
}
impl Receiver {
    pub async fn recv(&mut self) -> io::Result<Frame> {
        unimplemented!()
    }
    pub fn set_limit(&mut self, limit: FrameLimit) {
        unimplemented!()
    }
}
