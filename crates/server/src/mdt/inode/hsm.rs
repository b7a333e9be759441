//! The HSM state of a file (`docs/hsm.md#states`), and its record (`docs/disk-mdt.md#inode`).

use bytes::Bytes;
use proto::hsm::flag;
use proto::wire::Reader;

/// Version of the format.
const FORMAT: u8 = 1;

/// What is known of the copy of a file's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hsm {
    /// Bits of [`flag`].
    pub flags: u32,
    /// The archive that has the copy; 0 for none.
    pub archive: u32,
    /// Names the copy; 0 for none.
    pub copy: u64,
    /// The copy that is made of the data, as long as nothing can have changed since it began; 0 for none.
    pub copying: u64,
}

impl Hsm {
    /// Whether there may be a copy, whatever flags somebody has cleared.
    fn has_copy(&self) -> bool {
        self.copy != 0 || self.flags & (flag::EXISTS | flag::ARCHIVED) != 0
    }

    /// Whether the archive has what the file has.
    pub fn is_current(&self) -> bool {
        self.flags & (flag::ARCHIVED | flag::DIRTY | flag::LOST) == flag::ARCHIVED
    }

    /// Whether the data is in the archive alone.
    pub fn is_released(&self) -> bool {
        self.flags & flag::RELEASED != 0
    }

    /// Whether the archive has all that there is; that it has lost it is no fault of the MDT.
    pub fn is_there_alone(&self) -> bool {
        let wanted = flag::RELEASED | flag::ARCHIVED | flag::EXISTS;
        self.flags & (wanted | flag::DIRTY) == wanted && self.copy != 0
    }

    /// Whether somebody relies on the data being what is copied, or is in the archive.
    pub fn is_relied_on(&self) -> bool {
        self.copying != 0 || self.has_copy() && self.flags & flag::DIRTY == 0
    }

    /// From now on the data may be another than that in the archive.
    pub fn data_may_change(&mut self) {
        self.copying = 0;
        if self.has_copy() {
            self.flags |= flag::DIRTY;
        }
    }

    /// Appends the record.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.archive.to_le_bytes());
        out.extend_from_slice(&self.copy.to_le_bytes());
        out.extend_from_slice(&self.copying.to_le_bytes());
    }

    /// The state in a record; `None` if it is none of this format.
    pub(super) fn take(record: Bytes) -> Option<Hsm> {
        let mut from = Reader::new(record);
        if from.take::<u8>().ok()? != FORMAT {
            return None;
        }
        Some(Hsm {
            flags: from.take().ok()?,
            archive: from.take().ok()?,
            copy: from.take().ok()?,
            copying: from.take().ok()?,
        })
    }
}
