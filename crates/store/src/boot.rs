//! The file that says how often a target was opened.

use bytes::Bytes;
use rt::Dir;

use crate::atomic_file::Kind;
use crate::error::StoreError;

/// The file. Version 1 had the number alone, and version 2 the first two.
pub(crate) const BOOT_FILE: Kind = Kind { name: "boot", magic: *b"WEFTBOOT", version: 3, oldest: 1 };

/// What the file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    /// How often the target was opened, or the epoch of the owner that opened it last.
    pub number: u64,
    /// The newest boot that is known to have made the first block of its log durable, and so to have taken the log before it over:
    /// if that block is not there any more, that is damage. Of a newer one it means that it did not get so far.
    pub taken: u64,
    /// The first transno that a boot up to this one drew, or might have; 0 for the very first.
    pub first: u64,
}

impl Boot {
    /// What the file in `dir` says; `None` if there is no such file.
    pub async fn read(dir: &Dir) -> Result<Option<Boot>, StoreError> {
        BOOT_FILE.read(dir).await?.map(|body| Boot::decode(&body)).transpose()
    }

    /// Replaces the file; it is durable then.
    pub async fn write(&self, dir: &Dir) -> Result<(), StoreError> {
        let body = [self.number, self.taken, self.first].map(u64::to_le_bytes).concat();
        BOOT_FILE.write(dir, &body).await
    }

    fn decode(body: &Bytes) -> Result<Boot, StoreError> {
        let word = |at: usize| body.get(at..at + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        match ([0, 8, 16].map(|at| word(at).map(u64::from_le_bytes)), body.len()) {
            ([Some(number), None, None], 8) => Ok(Boot { number, ..Boot::default() }),
            ([Some(number), Some(taken), None], 16) => Ok(Boot { number, taken, first: 0 }),
            ([Some(number), Some(taken), Some(first)], 24) => Ok(Boot { number, taken, first }),
            _ => Err(StoreError::Corrupt { what: format!("the file {}", BOOT_FILE.name) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_files_are_read() {
        let of = |bytes: &[u8]| Boot::decode(&Bytes::copy_from_slice(bytes)).ok();
        assert_eq!(of(&[7, 0, 0, 0, 0, 0, 0, 0]), Some(Boot { number: 7, ..Boot::default() }));
        assert_eq!(
            of(&[7, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]),
            Some(Boot { number: 7, taken: 6, first: 0 })
        );
        assert_eq!([of(&[]), of(&[7; 7]), of(&[7; 9]), of(&[7; 15]), of(&[7; 17])], [None; 5]);
    }
}
