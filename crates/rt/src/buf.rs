//! Memory for I/O: aligned so that a disk can take it without a copy.

use bytes::Bytes;

/// Alignment of the memory, offsets and lengths that a disk can take without a copy, in bytes.
pub const ALIGN: usize = 4096;

/// A zeroed, exclusively owned buffer whose start is aligned to [`ALIGN`].
pub struct AlignedBuf {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let memory = vec![0u8; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        assert!(start <= ALIGN, "a byte pointer can always be aligned");
        AlignedBuf { memory, start, len }
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(bytes.len());
        buf.as_mut().copy_from_slice(bytes);
        buf
    }

    /// Shares the buffer; from now on nobody changes it.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Whether a disk can take `bytes` at `offset` without a copy.
pub fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGN)
        && bytes.len().is_multiple_of(ALIGN)
        && offset.is_multiple_of(ALIGN as u64)
}
