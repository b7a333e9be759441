//! The engine that reads /dev/fuse: several threads, each with a descriptor of its own.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno as OsErrno;
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use super::{Reply, Serve};
use crate::kernel::abi::{self, InHeader, OutHeader, WriteIn};
use crate::kernel::init::WRITE_BYTES_MAX;
use crate::kernel::request::{Dialect, Request};
use client::posix::Errno;

/// Where the kernel's FUSE is.
pub const DEVICE: &str = "/dev/fuse";
/// Room for everything of a WRITE but its data, and for two names.
const HEADER_BYTES_MAX: usize = 4096;
/// A read gets the largest request into this many bytes.
const BUFFER_BYTES: usize = WRITE_BYTES_MAX as usize + HEADER_BYTES_MAX;
const _: () = assert!(BUFFER_BYTES >= abi::READ_BUFFER_BYTES_MIN);
/// Bytes of a page of memory.
const PAGE_BYTES: usize = 4096;
/// Pieces that one writev takes (IOV_MAX, the header being one).
const PIECES_MAX: usize = 1023;
/// Pieces of an answer that need no room on the heap.
const PIECES_USUAL: usize = 8;

/// Opens the device.
pub fn open() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open(DEVICE)?.into())
}

/// A second descriptor for the connection of `device`.
#[allow(unsafe_code)]
pub fn clone(device: &OwnedFd) -> io::Result<OwnedFd> {
    let new = open()?;
    let from = device.as_raw_fd().cast_unsigned();
    // SAFETY: the ioctl reads one u32 through the pointer, which is valid for the whole call, and changes nothing
    // but the file behind `new`.
    let result = unsafe { libc::ioctl(new.as_raw_fd(), abi::DEVICE_CLONE as libc::Ioctl, &raw const from) };
    if result == 0 { Ok(new) } else { Err(io::Error::last_os_error()) }
}

/// Room for one message, placed so that the data of a WRITE begins with a page: the kernel copies page by page, and a page
/// that comes to lie on two costs two copies.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        let bytes = vec![0; BUFFER_BYTES + 2 * PAGE_BYTES];
        let data = size_of::<InHeader>() + size_of::<WriteIn>();
        let start =
            (bytes.as_ptr().addr() + data).next_multiple_of(PAGE_BYTES) - data - bytes.as_ptr().addr();
        Buffer { bytes, start }
    }
}

/// Reads the next message into `buffer`; `None` when the connection is gone.
pub fn next<'a>(device: &OwnedFd, buffer: &'a mut Buffer) -> io::Result<Option<&'a [u8]>> {
    let room = &mut buffer.bytes[buffer.start..];
    loop {
        match rustix::io::read(device, &mut *room) {
            Ok(len) => return Ok(Some(&room[..len])),
            // ENOENT: the request was taken back while it was read.
            Err(OsErrno::NOENT | OsErrno::INTR | OsErrno::AGAIN) => {}
            // Unmounted, or aborted.
            Err(OsErrno::NODEV | OsErrno::CONNABORTED | OsErrno::NOTCONN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives requests of `device` to `serve` until the connection is gone.
pub fn run(device: Arc<OwnedFd>, serve: &dyn Serve, dialect: Dialect) -> io::Result<()> {
    let mut buffer = Buffer::default();
    while let Some(message) = next(&device, &mut buffer)? {
        hand_over(&device, message, serve, dialect);
    }
    Ok(())
}

fn hand_over(device: &Arc<OwnedFd>, message: &[u8], serve: &dyn Serve, dialect: Dialect) {
    match Request::parse(message, dialect) {
        Ok(request) => {
            let reply = Reply::device(request.unique, device.clone());
            serve.serve(request, reply);
        }
        Err(error) => {
            tracing::warn!(%error, len = message.len(), "the kernel sent what is no request");
            if let Ok((header, _)) = InHeader::read_from_prefix(message) {
                Reply::device(header.unique, device.clone()).send(Err(Errno::IO));
            }
        }
    }
}

/// Writes an answer.
pub fn write(device: &OwnedFd, unique: u64, errno: i32, pieces: &[&[u8]]) {
    let joined;
    let one;
    let pieces = if pieces.len() > PIECES_MAX {
        joined = pieces.concat();
        one = [&joined[..]];
        &one[..]
    } else {
        pieces
    };
    let len = size_of::<OutHeader>() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
    let Ok(len) = u32::try_from(len) else {
        return write(device, unique, libc::EIO, &[]);
    };
    let header = OutHeader { len, error: -errno, unique };
    let mut slices: SmallVec<[IoSlice<'_>; PIECES_USUAL]> = SmallVec::new();
    slices.push(IoSlice::new(header.as_bytes()));
    slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
    match rustix::io::writev(device, &slices) {
        // ENOENT: whoever asked was killed and the request with it. The others: nobody is there any more.
        Ok(_)
        | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::PERM | OsErrno::CONNABORTED | OsErrno::NOTCONN) => {}
        Err(error) => {
            tracing::error!(%error, unique, len, "the kernel does not take an answer");
            if errno == 0 {
                write(device, unique, libc::EIO, &[]);
            }
        }
    }
}
