//! The scan of the log: what it takes for the truth when bytes are missing or changed.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rt::Dir;

use super::*;
use crate::limits::BLOCK_BYTES;
use crate::log::record::{Body, HEADER_BYTES, Place, put as put_record, stride};
use crate::log::scan::{Scanned, scan};
use crate::log::sectors::{SECTOR_BYTES, table_bytes};
use crate::log::segment::SegmentId;
use crate::log::writer::{Begin, Writer};

const BATCH_AND_CHANGE_BYTES: usize = 32;

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

/// The log of `boot`, which continues that before it behind `prev`.
async fn create(dir: &Dir, boot: u64, prev: u64, limits: Limits) -> Result<Writer, StoreError> {
    Ok(Writer::create(dir.clone(), Begin { boot, prev, salt: 0x5a17 + boot }, limits).await?)
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

/// A log of three groups: one record, two, and two; each of several blocks. Gives the file, where each record begins, and where
/// what counts of it ends.
async fn three_groups(dir: &Dir, path: &Path) -> Result<(Vec<u8>, Vec<(usize, usize)>), StoreError> {
    let mut writer = create(dir, 1, 0, small()).await?;
    let (mut places, mut at) = (Vec::new(), BLOCK_BYTES);
    for group in [vec![1..=2], vec![3..=3, 4..=10], vec![11..=14, 15..=30]] {
        let bodies: Vec<Body> = group.into_iter().map(body).collect();
        writer.append(&bodies).await?;
        for body in bodies {
            let covered = HEADER_BYTES + body.bytes.len();
            places.push((at, at + covered.next_multiple_of(SECTOR_BYTES) + table_bytes(covered)));
            at += stride(body.bytes.len());
        }
    }
    Ok((std::fs::read(file(path, 1, 0))?, places))
}

/// One bit in a log that was closed in the middle of its work: nothing that was durable is ever dropped in silence.
#[test]
fn a_changed_bit_is_damage_wherever_it_is() {
    check_log(async |dir, path| {
        let (whole, places) = three_groups(&dir, &path).await?;
        let name = file(&path, 1, 0);
        assert_eq!(read(&dir, 0).await?.0, [2, 3, 10, 14, 30]);
        let file = std::fs::File::options().write(true).open(name)?;
        let (last, end) = places.last().copied().expect("there are records");
        for at in (0..end + 1000).filter(|at| at % 512 < 90 || at % 13 == 0) {
            let bad = whole[at] ^ 1 << (at % 8);
            file.write_all_at(&[bad], at as u64)?;
            let found = read(&dir, 0).await;
            let is_used = at < BLOCK_BYTES || places.iter().any(|(from, to)| (*from..*to).contains(&at));
            match found {
                Err(StoreError::Damaged(why)) => assert!(is_used, "byte {at} is not used: {why}"),
                Err(error) => panic!("byte {at}: {error}"),
                // What is not used, or the checksums of a record that holds together.
                Ok((lasts, _)) => assert_eq!(lasts, [2, 3, 10, 14, 30], "byte {at}"),
            }
            file.write_all_at(&whole[at..=at], at as u64)?;
        }
        let found = read_with(&dir, &file, last + HEADER_BYTES, &[0xff]).await;
        let why = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("the changes from 15 on"), "{why}");
        file.write_all_at(&whole, 0)?;
        let found = read_with(&dir, &file, places[0].0 + HEADER_BYTES, &[0xff]).await;
        let why = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("of the changes 1 to 30"), "{why}");
        Ok(())
    });
}

/// Writes `bytes` over the log's, and reads it.
async fn read_with(
    dir: &Dir,
    file: &std::fs::File,
    at: usize,
    bytes: &[u8],
) -> Result<(Vec<u64>, Scanned), StoreError> {
    file.write_all_at(bytes, at as u64)?;
    read(dir, 0).await
}

/// Sectors of the last group are missing, whichever: power failed. Sectors in front of it cannot be: they were durable.
#[test]
fn a_torn_group_is_no_damage_and_only_the_last_one_can_be_torn() {
    check_log(async |dir, path| {
        let (whole, places) = three_groups(&dir, &path).await?;
        let file = std::fs::File::options().write(true).open(file(&path, 1, 0))?;
        let end = places.last().expect("there are records").1;
        let (first, last_group) = (BLOCK_BYTES / SECTOR_BYTES, places[3].0 / SECTOR_BYTES);
        let sectors = last_group..end / SECTOR_BYTES;
        let mut random = Rng::new(7);
        let mut patterns: Vec<Vec<usize>> = Vec::new();
        for sector in sectors.clone() {
            patterns.extend([
                vec![sector],
                (sector..sectors.end).collect(),
                (sectors.start..=sector).collect(),
            ]);
            patterns.push(sectors.clone().filter(|s| *s != sector).collect());
            patterns.push(sectors.clone().filter(|_| random.below(2) == 0).collect());
        }
        for lost in patterns {
            lost.iter().try_for_each(|s| file.write_all_at(&[0; SECTOR_BYTES], (s * SECTOR_BYTES) as u64))?;
            let lasts = read(&dir, 0).await.unwrap_or_else(|error| panic!("{lost:?}: {error}")).0;
            assert!([2, 3, 10, 14, 30].starts_with(&lasts) && lasts.len() >= 3, "{lost:?}: {lasts:?}");
            file.write_all_at(&whole, 0)?;
        }
        for sector in first..last_group {
            let at = sector * SECTOR_BYTES;
            if whole[at..at + SECTOR_BYTES].iter().all(|byte| *byte == 0) {
                continue;
            }
            match read_with(&dir, &file, at, &[0; SECTOR_BYTES]).await {
                Err(StoreError::Damaged(_)) => {}
                Ok((lasts, _)) => {
                    assert_eq!(lasts, [2, 3, 10, 14, 30], "checksums of a whole record: {sector}")
                }
                Err(error) => panic!("sector {sector}: {error}"),
            }
            file.write_all_at(&whole[at..at + SECTOR_BYTES], at as u64)?;
        }
        Ok(())
    });
}

/// A file may hold what looks like a record, and be stored in the log: it is none without the number that its owner drew.
#[test]
fn bytes_that_somebody_chose_are_no_record() {
    check_log(async |dir, path| {
        let mut writer = create(&dir, 1, 0, small()).await?;
        append(&mut writer, [1]).await?;
        let place = Place { boot: 1, salt: 0, synced: 3 * BLOCK_BYTES as u64 };
        let inner = body([3]);
        let mut forged = vec![0; stride(inner.bytes.len())];
        put_record(&mut forged, &inner.header(place, 2), &inner.bytes);
        // It begins at a block.
        let value_at = HEADER_BYTES + BATCH_AND_CHANGE_BYTES + b"key".len();
        let mut outer = Body::default();
        outer.begin_batch(2, 1);
        outer.push(b"key", Some(&[&vec![1; BLOCK_BYTES - value_at], &forged[..]].concat()), 0);
        assert_eq!(outer.bytes.len() + HEADER_BYTES, BLOCK_BYTES + forged.len());
        writer.append(&[outer]).await?;
        let file = std::fs::File::options().write(true).open(file(&path, 1, 0))?;
        assert_eq!(read_with(&dir, &file, 2 * BLOCK_BYTES, &[0; SECTOR_BYTES]).await?.0, [1]);
        Ok(())
    });
}

/// The first block of a log's only file is gone, the file is, or all files are; one that was just made has neither.
#[test]
fn a_log_that_lost_its_beginning_is_damaged() {
    check(async |rt, path| {
        let store = Store::open_with(&rt, &path, small()).await?;
        store.committed(store.commit(batch([put("a", "1")]))?).await?;
        store.abandon().await;
        let log = Path::new(&path).join("log");
        let name = file(&log, 1, 0);
        let whole = std::fs::read(&name)?;
        let mut headless = whole.clone();
        headless[..BLOCK_BYTES].fill(0);
        for content in [Some(headless), Some(vec![0; whole.len()]), Some(Vec::new()), None] {
            match content {
                Some(content) => std::fs::write(&name, content)?,
                None => std::fs::remove_file(&name)?,
            }
            let report = crate::check::check(&rt, &path).await?;
            assert!(report.findings.iter().any(|f| f.contains("log is damaged")), "{:?}", report.findings);
            let error = Store::open_with(&rt, &path, small()).await.err().expect("it is refused");
            assert!(matches!(error, StoreError::Damaged(_)), "{error}");
        }
        std::fs::write(&name, whole)?;
        let store = Store::open_with(&rt, &path, small()).await?;
        assert_eq!(value_of(&store, "a"), Some(("1".into(), 1)));
        store.close().await
    });
}

/// The target as a whole: each record of a log that nobody closed, of an MDT and of an OST.
#[test]
fn a_damaged_log_is_not_served() {
    for target in [TargetId::mdt(0), TargetId::ost(0)] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("target").to_str().expect("a plain name").to_owned();
        with_node(async |rt| {
            Store::format(&rt, &path, &Label { target, ..label() }).await?;
            let store = Store::open_with(&rt, &path, small()).await?;
            for n in 0..20 {
                store.committed(store.commit(batch([put(&format!("{n}"), "x")]))?).await?;
            }
            store.abandon().await;
            let name = file(&Path::new(&path).join("log"), 1, 0);
            let whole = std::fs::read(&name)?;
            for record in 1..=20 {
                let mut bad = whole.clone();
                bad[record * BLOCK_BYTES + 100] ^= 4;
                std::fs::write(&name, bad)?;
                let report = crate::check::check_to(&rt, &path, crate::check::Depth::Data).await?;
                let what = format!("from byte {} on", record * BLOCK_BYTES);
                assert!(report.findings.iter().any(|f| f.contains(&what)), "{record}: {:?}", report.findings);
                let error = Store::open_with(&rt, &path, small()).await.err().expect("it is refused");
                assert!(error.to_string().contains(&what), "{record}: {error}");
            }
            std::fs::write(&name, whole)?;
            let store = Store::open_with(&rt, &path, small()).await?;
            assert_eq!(value_of(&store, "19"), Some(("x".into(), 20)));
            store.close().await
        });
    }
}

#[test]
fn segments_continue_each_other_across_boots() {
    check_log(async |dir, path| {
        let limits = Limits { segment_bytes: 8 << 10, ..small() };
        let mut writer = create(&dir, 1, 0, limits).await?;
        for n in 1..=9 {
            append(&mut writer, [n]).await?;
        }
        let mut writer = create(&dir, 2, 9, limits).await?;
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
        assert!(matches!(read(&dir, 0).await, Err(StoreError::Damaged(_))));
        Ok(())
    });
}

/// An owner that lost its lease may still write. Nothing of it counts once its successor has read the log.
#[test]
fn what_an_owner_writes_after_it_was_replaced_is_void() {
    check_log(async |dir, _| {
        let mut old = create(&dir, 1, 0, small()).await?;
        append(&mut old, [1, 2]).await?;
        let mut new = create(&dir, 2, 2, small()).await?;
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
        let mut writer = create(&dir, 1, 0, small()).await?;
        append(&mut writer, [1]).await?;
        drop(create(&dir, 2, 1, small()).await?);
        let mut writer = create(&dir, 3, 1, small()).await?;
        append(&mut writer, [2]).await?;
        assert_eq!(read(&dir, 0).await?.0, [1, 2]);
        std::fs::write(file(&path, 3, 1), [])?;
        assert_eq!(read(&dir, 0).await?.0, [1, 2]);
        Ok(())
    });
}
