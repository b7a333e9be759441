//! Small data that a record of the log carries. Format: `docs/disk.md#logged`. Pure, but for [`Kept::put_back`].
//!
//! Whoever waits for a small write waits for one sync: that of the log. The data lies in its blocks, too, but only the page cache has
//! to have it there until the engine gets the record; then the data file is synced. After a crash the log puts the data back.
//!
//! A block that a change frees may be written again, with data that the log does not carry. So the log says what is freed, and nothing
//! is put back there.

use std::collections::BTreeMap;

use bytes::Bytes;
use rt::Dir;
use rt::buf::AlignedBuf;

use super::extent::{BLOCK, FileId, Run};
use super::files;
use crate::error::StoreError;
use crate::limits::KEY_RESERVED;
use crate::log::record::Malformed;
use crate::target::Change;

/// Writes of at most so many bytes go into the log.
pub(super) const LOGGED_BYTES_MAX: u64 = 16 << 10;

const DATA: u8 = b'D';
const FREED: u8 = b'F';
const KEY_BYTES: usize = 22;
const BLOCK_BYTES: usize = BLOCK as usize;

/// The entry that carries `data` for `run`; the last block is filled up with zeros.
pub(super) fn data(run: &Run, data: Bytes) -> Change {
    Change { key: key(DATA, run), value: Some(data) }
}

/// The entry that says that nothing refers to `run` any more.
pub(super) fn freed(run: &Run) -> Change {
    Change { key: key(FREED, run), value: None }
}

fn key(kind: u8, run: &Run) -> Bytes {
    let mut key = Vec::with_capacity(KEY_BYTES);
    key.extend_from_slice(&[KEY_RESERVED, kind]);
    key.extend_from_slice(&run.file.boot.to_be_bytes());
    key.extend_from_slice(&run.file.seq.to_be_bytes());
    key.extend_from_slice(&run.block.to_be_bytes());
    key.extend_from_slice(&run.count.to_be_bytes());
    key.into()
}

fn parse(key: &[u8]) -> Option<(u8, Run)> {
    let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
    let word = |at: usize| Some(u32::from_be_bytes(*key.get(at..)?.first_chunk()?));
    let boot = u64::from_be_bytes(*key.get(2..)?.first_chunk()?);
    let run = Run { file: FileId { boot, seq: word(10)? }, block: word(14)?, count: word(18)? };
    run.block.checked_add(run.count)?;
    Some((key[1], run))
}

/// Data of the log that its data files may lack, by block: of each block what was written last, unless it was freed since.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    blocks: BTreeMap<(FileId, u32), Bytes>,
}

impl Kept {
    /// Takes an entry, in the log's order.
    pub(crate) fn take(&mut self, key: &[u8], value: Option<&Bytes>) -> Result<(), Malformed> {
        let (kind, run) = parse(key).ok_or(Malformed)?;
        match (kind, value) {
            (DATA, Some(data)) if data.len().div_ceil(BLOCK_BYTES) == run.count as usize => {
                for (n, from) in (0..data.len()).step_by(BLOCK_BYTES).enumerate() {
                    let bytes = &data[from..data.len().min(from + BLOCK_BYTES)];
                    // A copy, so that a block does not keep a record.
                    self.blocks.insert((run.file, run.block + n as u32), Bytes::copy_from_slice(bytes));
                }
                Ok(())
            }
            (FREED, None) => {
                let freed = (run.file, run.block)..(run.file, run.block + run.count);
                let gone: Vec<_> = self.blocks.range(freed).map(|(at, _)| *at).collect();
                gone.iter().for_each(|at| _ = self.blocks.remove(at));
                Ok(())
            }
            _ => Err(Malformed),
        }
    }

    /// What it has for the blocks of `run`, each with its number; zeros behind the data up to the block's end.
    pub(super) fn blocks(&self, run: Run) -> impl Iterator<Item = (u32, &Bytes)> {
        let range = (run.file, run.block)..(run.file, run.block.saturating_add(run.count));
        self.blocks.range(range).map(|((_, block), bytes)| (*block, bytes))
    }

    /// Writes all of it to where it belongs in the target's directory; it is durable when this returns.
    pub(crate) async fn put_back(self, dir: &Dir) -> Result<(), StoreError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let dir = dir.subdir(files::DIR).await?;
        let mut blocks = self.blocks.into_iter().peekable();
        while let Some(((id, _), _)) = blocks.peek() {
            let id = *id;
            let file = match dir.open(&id.to_string()).await {
                Ok(file) => Some(file),
                // A read of what it held says so.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(error.into()),
            };
            while let Some(((_, first), bytes)) = blocks.next_if(|((other, _), _)| *other == id) {
                let mut run = vec![bytes];
                let next = |run: &[Bytes], at: &(FileId, u32)| *at == (id, first + run.len() as u32);
                while run.len() < RUN_BLOCKS_MAX
                    && let Some((_, bytes)) = blocks.next_if(|(at, _)| next(&run, at))
                {
                    run.push(bytes);
                }
                if let Some(file) = &file {
                    file.write_at(u64::from(first) * BLOCK, vec![whole(&run)]).await?;
                }
            }
            if let Some(file) = file {
                file.sync().await?;
            }
        }
        Ok(())
    }
}

/// Blocks that are put back with one write.
const RUN_BLOCKS_MAX: usize = 256;

fn whole(run: &[Bytes]) -> Bytes {
    let mut buf = AlignedBuf::zeroed(run.len() * BLOCK_BYTES);
    for (bytes, block) in run.iter().zip(buf.as_mut().chunks_mut(BLOCK_BYTES)) {
        block[..bytes.len()].copy_from_slice(bytes);
    }
    buf.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { boot: 3, seq: 9 };

    fn run(block: u32, count: u32) -> Run {
        Run { file: FILE, block, count }
    }

    fn take(kept: &mut Kept, change: &Change) {
        kept.take(&change.key, change.value.as_ref()).expect("it was just made");
    }

    #[test]
    fn the_last_data_of_a_block_is_kept_until_it_is_freed() {
        let mut kept = Kept::default();
        take(&mut kept, &data(&run(7, 2), Bytes::from(vec![1; 5000])));
        take(&mut kept, &data(&run(8, 1), Bytes::from(vec![2; 10])));
        let blocks = |kept: &Kept| -> Vec<(u32, u8, usize)> {
            kept.blocks(run(0, 100)).map(|(block, bytes)| (block, bytes[0], bytes.len())).collect()
        };
        assert_eq!(blocks(&kept), [(7, 1, 4096), (8, 2, 10)]);
        take(&mut kept, &freed(&run(0, 8)));
        assert_eq!(blocks(&kept), [(8, 2, 10)]);
        take(&mut kept, &freed(&Run { file: FileId { boot: 2, seq: 9 }, block: 0, count: 99 }));
        assert_eq!(blocks(&kept), [(8, 2, 10)], "that was another file");
        take(&mut kept, &freed(&run(8, 3)));
        assert_eq!(blocks(&kept), []);
        take(&mut kept, &data(&run(8, 1), Bytes::from(vec![3; 4096])));
        assert_eq!(blocks(&kept), [(8, 3, 4096)]);
    }

    #[test]
    fn what_does_not_follow_the_format_is_refused() {
        let mut kept = Kept::default();
        let good = data(&run(7, 2), Bytes::from(vec![1; 5000]));
        let mut bad = |key: &[u8], value: Option<&Bytes>| kept.take(key, value) == Err(Malformed);
        let value = good.value.as_ref();
        assert!(bad(&good.key[1..], value) && bad(&good.key[..KEY_BYTES - 1], value) && bad(&good.key, None));
        assert!(bad(&good.key, Some(&Bytes::from(vec![1; 4096]))), "one block, and the key says two");
        assert!(bad(&freed(&run(7, 2)).key, value));
        assert!(bad(&key(b'X', &run(7, 2)), None));
        assert!(bad(&freed(&run(u32::MAX, 2)).key, None));
    }

    #[test]
    fn golden() {
        let hex = |change: Change| -> String { change.key.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(
            hex(data(&run(7, 2), Bytes::new())),
            concat!("ff44", "0000000000000003", "00000009", "00000007", "00000002")
        );
        assert_eq!(
            hex(freed(&run(7, 2))),
            concat!("ff46", "0000000000000003", "00000009", "00000007", "00000002")
        );
    }
}
