//! The receiving half of a connection.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::prefix::{PREFIX_BYTES, Prefix};
use super::room::{Room, Taken};
use super::sender::Ends;
use super::socket::Socket;
use crate::buf::AlignedBuf;
use crate::net::{Frame, FrameLimit, SEAL_BYTES_MAX, Unseal};

/// Bytes that are read at once while what comes is small. The start of a bulk that comes with them is copied, so it
/// is short.
const INPUT_BYTES: usize = 16 << 10;
/// What a peer may send until the owner of the connection says otherwise.
const LIMIT_DEFAULT: FrameLimit = FrameLimit { head_bytes_max: 2 << 20, bulk_bytes_max: 8 << 20 };

/// Receives frames.
pub struct Receiver {
    ends: Arc<Ends>,
    room: Arc<Room>,
    limit: FrameLimit,
    input: Input,
    /// Here and not in the future, so that a dropped future loses nothing.
    partial: Partial,
    unseal: Option<Box<dyn Unseal>>,
}

/// Bytes that were read and not yet used.
struct Input {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

/// The part of a frame that is there.
enum Partial {
    Prefix,
    /// There is no room for it yet.
    Announced {
        prefix: Prefix,
    },
    Head {
        prefix: Prefix,
        head: Vec<u8>,
        taken: Taken,
    },
    Bulk {
        head: Bytes,
        bulk: AlignedBuf,
        filled: usize,
        taken: Taken,
    },
}

impl Receiver {
    pub(super) fn new(ends: Arc<Ends>, room: Arc<Room>) -> Receiver {
        let input = Input { memory: vec![0; INPUT_BYTES], start: 0, end: 0 };
        let limit = LIMIT_DEFAULT;
        Receiver { ends, room, limit, input, partial: Partial::Prefix, unseal: None }
    }

    /// The next frame; an error means that the connection is gone, or that the peer sent nonsense.
    pub async fn recv(&mut self) -> io::Result<Frame> {
        self.ends.serve();
        loop {
            if self.ends.link().is_closed() {
                return Err(self.ends.link().ending());
            }
            let step = match self.next_frame().and_then(|frame| self.unsealed(frame)) {
                Ok(Some(Some(frame))) => return Ok(frame),
                Ok(Some(None)) => Ok(()),
                Ok(None) if let Partial::Announced { prefix } = self.partial => {
                    self.partial = begin(prefix, self.room.take(bytes_of(prefix)).await);
                    continue;
                }
                Ok(None) => self.read_more(),
                Err(error) => Err(error),
            };
            match step {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = self.readable().await {
                        self.ends.link().close();
                        return Err(error);
                    }
                }
                Err(error) => {
                    self.ends.link().close();
                    return Err(error);
                }
            }
        }
    }

    /// Waits until there is something to read. An error if the peer keeps room that others wait for, and sends nothing, or
    /// too little for too long.
    async fn readable(&self) -> io::Result<()> {
        let socket = self.ends.link().socket();
        let (Partial::Head { taken, .. } | Partial::Bulk { taken, .. }) = &self.partial else {
            return socket.readable().await;
        };
        let late = |what| io::Error::new(io::ErrorKind::TimedOut, what);
        loop {
            if taken.is_late() && self.room.is_wanted() {
                return Err(late("the peer sends a frame too slowly"));
            }
            let waiting = self.ends.link().driver().within(self.room.silence_max(), socket.readable());
            match waiting.await {
                Some(result) => return result,
                None if self.room.is_wanted() => {
                    return Err(late("the peer does not send the rest of a frame"));
                }
                None => {}
            }
        }
    }

    /// Sets what the peer may send from the next frame on.
    pub fn set_limit(&mut self, limit: FrameLimit) {
        self.limit = limit;
        if self.unseal.is_some() {
            self.limit.head_bytes_max += SEAL_BYTES_MAX;
        }
    }

    /// Checks every frame from the next one on.
    pub fn unseal_with(&mut self, unseal: Box<dyn Unseal>) {
        self.limit.head_bytes_max += if self.unseal.is_some() { 0 } else { SEAL_BYTES_MAX };
        self.unseal = Some(unseal);
    }

    /// A whole frame as its sender meant it; `Some(None)` if it is to be dropped.
    fn unsealed(&mut self, frame: Option<Frame>) -> io::Result<Option<Option<Frame>>> {
        match (frame, &mut self.unseal) {
            (Some(frame), Some(unseal)) => unseal.unseal(frame).map(Some),
            (frame, _) => Ok(frame.map(Some)),
        }
    }

    /// Takes what is there of the current frame; the frame if it is whole.
    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            match std::mem::replace(&mut self.partial, Partial::Prefix) {
                Partial::Prefix => {
                    let Some(bytes) = self.input.take_prefix() else {
                        Prefix::check_beginning(self.input.rest())?;
                        return Ok(None);
                    };
                    let prefix = Prefix::decode(&bytes, self.limit)?;
                    let Some(taken) = self.room.try_take(bytes_of(prefix)) else {
                        self.partial = Partial::Announced { prefix };
                        return Ok(None);
                    };
                    self.partial = begin(prefix, taken);
                }
                announced @ Partial::Announced { .. } => {
                    self.partial = announced;
                    return Ok(None);
                }
                Partial::Head { prefix, mut head, taken } => {
                    let missing = prefix.head_bytes as usize - head.len();
                    head.extend_from_slice(self.input.take(missing));
                    if head.len() < prefix.head_bytes as usize {
                        self.partial = Partial::Head { prefix, head, taken };
                        return Ok(None);
                    }
                    let head = Bytes::from(head);
                    if prefix.bulk_bytes == 0 {
                        return Ok(Some(Frame { head, bulk: Vec::new() }));
                    }
                    let bulk = AlignedBuf::for_overwrite(prefix.bulk_bytes as usize);
                    self.partial = Partial::Bulk { head, bulk, filled: 0, taken };
                }
                Partial::Bulk { head, mut bulk, mut filled, taken } => {
                    let rest = &mut bulk.as_mut()[filled..];
                    let bytes = self.input.take(rest.len());
                    rest[..bytes.len()].copy_from_slice(bytes);
                    filled += bytes.len();
                    if filled < bulk.as_ref().len() {
                        self.partial = Partial::Bulk { head, bulk, filled, taken };
                        return Ok(None);
                    }
                    return Ok(Some(Frame { head, bulk: vec![bulk.freeze()] }));
                }
            }
        }
    }

    /// Reads once from the socket, where it is wanted.
    fn read_more(&mut self) -> io::Result<()> {
        let socket = self.ends.link().socket();
        match &mut self.partial {
            Partial::Bulk { bulk, filled, .. } => *filled += socket.read(&mut bulk.as_mut()[*filled..])?,
            Partial::Prefix | Partial::Announced { .. } | Partial::Head { .. } => self.input.read(socket)?,
        }
        Ok(())
    }
}

/// Bytes that the frame takes in memory.
fn bytes_of(prefix: Prefix) -> usize {
    prefix.head_bytes as usize + prefix.bulk_bytes as usize
}

/// A frame for which there is room.
fn begin(prefix: Prefix, taken: Taken) -> Partial {
    Partial::Head { prefix, head: Vec::with_capacity(prefix.head_bytes as usize), taken }
}

impl Input {
    fn take_prefix(&mut self) -> Option<[u8; PREFIX_BYTES]> {
        let bytes = *self.memory[self.start..self.end].first_chunk()?;
        self.start += PREFIX_BYTES;
        Some(bytes)
    }

    /// What was read and not taken.
    fn rest(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Up to `len` bytes.
    fn take(&mut self, len: usize) -> &[u8] {
        let start = self.start;
        self.start += len.min(self.end - start);
        &self.memory[start..self.start]
    }

    /// Reads once. What is there is less than a prefix, so there is room.
    fn read(&mut self, socket: &Socket) -> io::Result<()> {
        self.memory.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.end += socket.read(&mut self.memory[self.end..])?;
        Ok(())
    }
}
