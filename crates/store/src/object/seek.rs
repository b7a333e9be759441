//! Where data and holes begin.

use proto::ObjectId;
use proto::wire::messages::Sought;

use super::cache::Object;
use super::extent::overlapping;
use super::{CHUNK_BYTES, Objects, chunk_end, refuse_dead};
use crate::error::StoreError;
use crate::target::Store;

/// Chunks that one question looks at.
const CHUNKS_MAX: usize = 64;

/// What is sought in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// Bytes that were not.
    Hole,
}

impl Objects {
    /// The first byte at or behind `offset` that is what is sought. Reserved space is no data; the end of the object is a hole.
    pub fn seek(&self, id: ObjectId, offset: u64, what: Seek) -> Result<Sought, StoreError> {
        self.with(id.layout, |state| {
            refuse_dead(state)?;
            let object = state.object(&self.store, id)?;
            let sought = match what {
                Seek::Hole => object.seek_hole(&self.store, id, offset),
                Seek::Data => object.seek_data(&self.store, id, offset),
            };
            object.shrink();
            sought
        })
    }
}

impl Object {
    fn seek_data(&mut self, store: &Store, id: ObjectId, offset: u64) -> Result<Sought, StoreError> {
        let size = self.record().size;
        let mut at = offset;
        for _ in 0..CHUNKS_MAX {
            if at >= size {
                return Ok(Sought { offset: None, more: false });
            }
            let end = chunk_end(at).min(size);
            let extents = self.chunk(store, id, at / CHUNK_BYTES)?;
            let data = overlapping(extents, at..end).find(|(_, extent)| extent.is_written());
            if let Some((start, _)) = data {
                return Ok(Sought { offset: Some(start.max(at)), more: false });
            }
            match Object::next_extent(store, id, end, size)? {
                Some(next) => at = next,
                None => return Ok(Sought { offset: None, more: false }),
            }
        }
        Ok(Sought { offset: Some(at), more: true })
    }

    fn seek_hole(&mut self, store: &Store, id: ObjectId, offset: u64) -> Result<Sought, StoreError> {
        let size = self.record().size;
        let mut at = offset;
        for _ in 0..CHUNKS_MAX {
            if at >= size {
                return Ok(Sought { offset: Some(offset.max(size)), more: false });
            }
            let end = chunk_end(at).min(size);
            let extents = self.chunk(store, id, at / CHUNK_BYTES)?;
            for (start, extent) in overlapping(extents, at..end) {
                if start > at || !extent.is_written() {
                    break;
                }
                at = start + u64::from(extent.len);
            }
            if at < end {
                return Ok(Sought { offset: Some(at), more: false });
            }
        }
        Ok(Sought { offset: Some(at.min(size)), more: true })
    }
}
