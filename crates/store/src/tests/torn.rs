//! The scan of the log: what it takes for the truth when bytes are missing or changed.

use std::path::{Path, PathBuf};

use rt::Dir;

use super::*;
use crate::limits::BLOCK_BYTES;
use crate::log::record::Body;
use crate::log::scan::{Scanned, scan};
use crate::log::segment::SegmentId;
use crate::log::writer::Writer;

const SECTOR: usize = 512;

/// Runs `test` with an empty log directory.
fn check_log<F: Future<Output = Result<(), StoreError>>>(test: impl FnOnce(Dir, PathBuf) -> F) {
    check(async |rt, path| {
        let dir = rt.disk().open_dir(&path).await?.subdir("log").await?;
        test(dir, Path::new(&path).join("log")).await
    });
}

fn body(transnos: impl IntoIterator<Item = u64>) -> Body {
    let mut body = Body::default();
    for transno in transnos {
        body.begin_batch(transno, 1);
        body.push(b"key", Some(&[transno as u8; 700]), 0);
    }
    body
}

async fn append(writer: &mut Writer, transnos: impl IntoIterator<Item = u64>) -> Result<(), StoreError> {
    writer.append(&[body(transnos)]).await?;
    Ok(())
}

/// The last transnos of the records that count, and what the scan says.
async fn read(dir: &Dir, position: u64) -> Result<(Vec<u64>, Scanned), StoreError> {
    let mut lasts = Vec::new();
    let scanned = scan(dir, position, 0, |record| {
        lasts.push(record.header.last);
        Ok(())
    })
    .await?;
    Ok((lasts, scanned))
}

fn file(path: &Path, boot: u64, number: u64) -> PathBuf {
    path.join(SegmentId { boot, number }.name())
}

#[test]
fn a_torn_tail_ends_the_log_at_the_record_before() {
    check_log(async |dir, path| {
        let mut writer = Writer::create(dir.clone(), 1, 0, small()).await?;
        // Records of one, two and four blocks.
        let records = [1..=2, 3..=10, 11..=30];
        let mut ends = Vec::new();
        let mut end = BLOCK_BYTES;
        for record in records {
            let body = body(record.clone());
            end += crate::log::record::stride(body.bytes.len());
            ends.push((end, *record.end(), crate::log::record::HEADER_BYTES + body.bytes.len()));
            append(&mut writer, record).await?;
        }
        let file = file(&path, 1, 0);
        let whole = std::fs::read(&file)?;
        assert_eq!(read(&dir, 0).await?.0, [2, 10, 30]);
        for sector in 0..end / SECTOR {
            let at = sector * SECTOR;
            let want: Vec<u64> = if at < BLOCK_BYTES {
                Vec::new()
            } else {
                ends.iter().take_while(|(end, ..)| *end <= at).map(|(_, last, _)| *last).collect()
            };
            let mut flipped = whole.clone();
            flipped[at] ^= 0x80;
            std::fs::write(&file, &flipped)?;
            let (lasts, scanned) = read(&dir, 0).await?;
            let record_at = ends.iter().find(|(end, ..)| at < *end).expect("within a record");
            let record_start = record_at.0 - record_at.2.next_multiple_of(BLOCK_BYTES);
            if at >= BLOCK_BYTES && at >= record_start + record_at.2 {
                assert_eq!(lasts, [2, 10, 30], "behind the body nothing counts");
                continue;
            }
            assert_eq!(lasts, want, "sector {sector} changed");
            assert_eq!(scanned.last, want.last().copied().unwrap_or(0));
            std::fs::write(&file, &whole[..at])?;
            assert_eq!(read(&dir, 0).await?.0, want, "cut at sector {sector}");
            let mut zeroed = whole.clone();
            zeroed[at..].fill(0);
            std::fs::write(&file, &zeroed)?;
            assert_eq!(read(&dir, 0).await?.0, want, "zero from sector {sector}");
        }
        Ok(())
    });
}

#[test]
fn segments_continue_each_other_across_boots() {
    check_log(async |dir, path| {
        let limits = Limits { segment_bytes: 8 << 10, ..small() };
        let mut writer = Writer::create(dir.clone(), 1, 0, limits).await?;
        for n in 1..=9 {
            append(&mut writer, [n]).await?;
        }
        let mut writer = Writer::create(dir.clone(), 2, 9, limits).await?;
        append(&mut writer, [10]).await?;
        let (lasts, scanned) = read(&dir, 0).await?;
        assert_eq!(lasts, (1..=10).collect::<Vec<u64>>());
        assert!(scanned.segments.len() > 5);
        assert_eq!(read(&dir, 4).await?.0, (5..=10).collect::<Vec<u64>>());
        assert_eq!(read(&dir, 10).await?.0, Vec::<u64>::new());
        assert_eq!(read(&dir, 12).await?.1.last, 12, "the engine may have more than what is left of the log");

        // Deleted segments that a crash brought back do no harm; a missing one is noticed.
        std::fs::remove_file(file(&path, 1, 2))?;
        assert_eq!(read(&dir, 6).await?.0, (7..=10).collect::<Vec<u64>>());
        assert!(matches!(read(&dir, 0).await, Err(StoreError::Corrupt { .. })));
        Ok(())
    });
}

/// An owner that lost its lease may still write. Nothing of it counts once its successor has read the log.
#[test]
fn what_an_owner_writes_after_it_was_replaced_is_void() {
    check_log(async |dir, _| {
        let mut old = Writer::create(dir.clone(), 1, 0, small()).await?;
        append(&mut old, [1, 2]).await?;
        let mut new = Writer::create(dir.clone(), 2, 2, small()).await?;
        append(&mut old, [3]).await?;
        append(&mut new, [3, 4]).await?;
        append(&mut old, [4, 5]).await?;
        let (lasts, scanned) = read(&dir, 0).await?;
        assert_eq!((lasts, scanned.last), (vec![2, 4], 4));
        Ok(())
    });
}

#[test]
fn a_segment_that_was_only_made_is_empty() {
    check_log(async |dir, path| {
        let mut writer = Writer::create(dir.clone(), 1, 0, small()).await?;
        append(&mut writer, [1]).await?;
        drop(Writer::create(dir.clone(), 2, 1, small()).await?);
        let mut writer = Writer::create(dir.clone(), 3, 1, small()).await?;
        append(&mut writer, [2]).await?;
        assert_eq!(read(&dir, 0).await?.0, [1, 2]);
        std::fs::write(file(&path, 3, 1), [])?;
        assert_eq!(read(&dir, 0).await?.0, [1, 2]);
        Ok(())
    });
}
