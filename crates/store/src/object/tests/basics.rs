//! One operation at a time.

use bytes::Bytes;
use proto::wire::messages::{DeadRange, ObjectAttr};
use rt::buf::AlignedBuf;

use super::super::inspect::{Inspection, Page, Position};
use super::*;
use crate::Author;
use crate::target::Batch;

const MIB: u64 = 1 << 20;

#[test]
fn an_object_appears_with_its_first_write() {
    check(async |_rt, target| {
        let none = target.objects.attr(id(1))?;
        assert_eq!((none.size, none.blocks, none.mtime), (0, 0, at(0)));
        assert_eq!(target.read(id(1), 0, 100).await?, b"");
        assert_eq!(target.list()?, []);
        target.punch(id(1), 0, u64::MAX).await?;
        target.punch(id(1), 5, 50).await?;
        assert_eq!(target.list()?, [], "cutting makes no object");
        target.write(id(1), 10, b"hello").await?;
        let attr = target.objects.attr(id(1))?;
        assert_eq!((attr.size, attr.blocks, attr.mtime), (15, 8, at(1)));
        assert_eq!(target.read(id(1), 0, 100).await?, b"\0\0\0\0\0\0\0\0\0\0hello");
        assert_eq!(target.read(id(1), 12, 2).await?, b"ll");
        assert_eq!(target.read(id(1), 15, 2).await?, b"");
        target.punch(id(2), 77, u64::MAX).await?;
        assert_eq!(target.objects.attr(id(2))?.size, 77, "enlarging makes the object");
        assert_eq!(target.read(id(2), 0, 100).await?, [0; 77]);
        assert_eq!(target.list()?, [id(1), id(2)]);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn the_newest_time_wins_and_extra_keys_come_along() {
    check(async |_rt, target| {
        let key = Bytes::from_static(b"Pkey");
        let extra_key = key.clone();
        let keys = move |attr: &ObjectAttr| {
            vec![Change { key: extra_key, value: Some(attr.size.to_le_bytes().to_vec().into()) }]
        };
        let extra = Extra { author: None, keys: Some(Box::new(keys)) };
        let data = vec![Bytes::from_static(b"abc")];
        let (attr, transno) = target.objects.write(id(1), 0, data, at(9), None, extra).await?;
        assert_eq!((attr.mtime, attr.ctime), (at(9), at(9)));
        let value = target.store.get(&key)?.expect("the key was in the batch");
        assert_eq!((value.bytes.as_ref(), value.version), (&3u64.to_le_bytes()[..], transno));
        target.write(id(1), 0, b"x").await?;
        assert_eq!(target.objects.attr(id(1))?.mtime, at(9));
        Ok(())
    });
}

#[test]
fn destroyed_objects_stay_gone() {
    check(async |rt, target| {
        for oid in 1..10 {
            target.write(id(oid), 0, b"data").await?;
        }
        target.write(stripe(3, 1), 0, b"data").await?;
        for oids in [[2, 4], [3, 3], [9, 20]] {
            target.destroy(&oids.map(id)).await?;
        }
        let is_gone = async |target: &Target, id| {
            assert!(matches!(target.write(id, 0, b"x").await, Err(StoreError::Gone)), "{id:?}");
            assert!(matches!(target.read(id, 0, 1).await, Err(StoreError::Gone)), "{id:?}");
            assert!(matches!(target.punch(id, 5, u64::MAX).await, Err(StoreError::Gone)), "{id:?}");
            assert!(matches!(target.objects.attr(id), Err(StoreError::Gone)), "{id:?}");
        };
        let (from, until) = super::super::keys::tombs();
        assert_eq!(target.store.scan(&from, &until, 100)?.len(), 3, "2 to 4, 9, 20");
        is_gone(&target, id(2)).await;
        assert_eq!(target.read(id(5), 0, 9).await?, b"data");
        // The other stripe of a dead layout is out of reach, but there until it is destroyed too.
        is_gone(&target, stripe(3, 1)).await;
        assert!(target.list()?.contains(&stripe(3, 1)));
        target.destroy(&[stripe(3, 1)]).await?;
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        for oid in [2, 3, 4, 9, 20] {
            is_gone(&target, id(oid)).await;
        }
        assert_eq!(target.list()?, [1, 5, 6, 7, 8].map(id));
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

/// Files lie on one of four OSTs each, in turn, so no two layout ids of an OST are neighbours: tombstones stayed one by one.
#[test]
fn tombstones_merge_over_what_was_never_here() {
    check(async |rt, target| {
        let tombs = async |target: &Target| {
            let (from, until) = super::super::keys::tombs();
            target.store.scan(&from, &until, 100_000).map(|found| found.len())
        };
        let seq = id(1).layout.seq;
        for oid in (4..400).step_by(4) {
            target.write(id(oid), 0, b"data").await?;
        }
        for oid in (4..100).step_by(4) {
            target.destroy(&[id(oid)]).await?;
        }
        assert_eq!(tombs(&target).await?, 24);
        let dead = |first, last| DeadRange { seq, first, last };
        target.objects.destroy(&[id(100)], &[dead(2, 100)], None, nothing()).await?;
        assert_eq!(tombs(&target).await?, 1);
        let ids: Vec<ObjectId> = (104..200).step_by(4).map(id).collect();
        target.objects.destroy(&ids, &[dead(101, 150), dead(140, 196)], None, nothing()).await?;
        assert_eq!(tombs(&target).await?, 1);
        assert!(matches!(target.write(id(103), 0, b"x").await, Err(StoreError::Gone)), "it was never here");
        assert_eq!(target.read(id(200), 0, 9).await?, b"data");
        target.write(id(197), 0, b"next").await?;
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(matches!(target.write(id(150), 0, b"x").await, Err(StoreError::Gone)));
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

/// What was destroyed stayed in memory, as much of it as of an object that is used.
#[test]
fn nothing_of_a_destroyed_object_stays_in_memory() {
    check(async |_rt, target| {
        for oid in 1..2000 {
            target.write(id(oid), 0, b"data").await?;
            target.destroy(&[id(oid)]).await?;
        }
        assert_eq!(target.objects.cache.kept(), (0, 0));
        // Asked for again it is found dead, and costs what something costs that has no objects.
        assert!(matches!(target.objects.attr(id(7)), Err(StoreError::Gone)));
        assert!(target.objects.cache.kept().1 < 512);
        Ok(())
    });
}

#[test]
fn large_aligned_data_is_neither_copied_nor_cut() {
    check(async |_rt, target| {
        let data = AlignedBuf::copy_of(&pattern(4 << 20, 1)).freeze();
        target.objects.write(id(1), 0, vec![data.clone()], at(1), None, nothing()).await?;
        assert_eq!(target.extent_count(id(1))?, 1);
        let (slices, size) = target.objects.read(id(1), 0, 4 << 20).await?;
        assert_eq!((slices.len(), size), (1, 4 << 20));
        assert!(slices[0] == data);
        // Writes one behind the other lie one behind the other, and are read at once.
        for n in 0..4 {
            let part = data.slice((n * MIB) as usize..((n + 1) * MIB) as usize);
            target.objects.write(id(2), n * MIB, vec![part], at(1), None, nothing()).await?;
        }
        assert_eq!(target.extent_count(id(2))?, 4);
        assert_eq!(target.objects.read(id(2), 0, 4 << 20).await?.0, [data]);
        Ok(())
    });
}

#[test]
fn small_appends_are_merged() {
    check(async |_rt, target| {
        let data = pattern(40_000, 3);
        for (n, part) in data.chunks(40).enumerate() {
            target.write(id(1), n as u64 * 40, part).await?;
        }
        assert_eq!(target.read(id(1), 0, 100_000).await?, data);
        assert!(target.extent_count(id(1))? <= 66, "{}", target.extent_count(id(1))?);
        assert!(target.objects.attr(id(1))?.blocks <= 8 * 80);
        // The same with gaps that are too small for a block.
        for n in 0..500 {
            target.write(id(2), n * 100, b"x").await?;
        }
        assert!(target.extent_count(id(2))? <= 66, "{}", target.extent_count(id(2))?);
        let want: Vec<u8> = (0..49_901).map(|n| if n % 100 == 0 { b'x' } else { 0 }).collect();
        assert!(target.read(id(2), 0, 100_000).await? == want);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn an_object_that_was_cut_shows_nothing_old_when_it_grows() {
    check(async |rt, target| {
        target.close().await?;
        let target = Target::open(&rt, SMALL).await?;
        for chunk in 0..5u64 {
            target.write(id(1), chunk * super::super::CHUNK_BYTES + 5, b"old").await?;
        }
        target.punch(id(1), 3, u64::MAX).await?;
        assert_eq!(target.extent_count(id(1))?, 0);
        target.punch(id(1), 100_000_000, u64::MAX).await?;
        assert_eq!(target.read(id(1), 0, 20).await?, [0; 20]);
        for chunk in 0..5u64 {
            target.write(id(1), chunk * super::super::CHUNK_BYTES + 5, b"new").await?;
        }
        target.destroy(&[id(1)]).await?;
        assert_eq!(target.extent_count(id(1))?, 0);
        assert_eq!(target.list()?, []);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn what_was_cut_goes_before_the_object_grows_again() {
    check(async |rt, target| {
        for oid in [1, 2, 3] {
            target.write(id(oid), 0, &pattern(10_000, 1)).await?;
        }
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        // As a crash leaves it between the commit that sets the size and the one that takes the rest away.
        for oid in [1, 2, 3] {
            let value = target.store.get(&super::super::keys::record_key(id(oid)))?.expect("it was written");
            let record = super::super::keys::Record::decode(&value.bytes).expect("it is a record");
            let cut = super::super::keys::Record { size: 3, ..record };
            let key = super::super::keys::record_key(id(oid));
            let change = Change { key, value: Some(cut.encode()) };
            let mut batch = Batch { changes: vec![change], ..Batch::default() };
            super::super::summary::changed(id(oid), Some(record), Some(cut), &mut batch);
            target.store.commit(batch)?;
        }
        target.punch(id(1), 10_000, u64::MAX).await?;
        target.write(id(2), 9_999, b"x").await?;
        for oid in [1, 2] {
            let read = target.read(id(oid), 0, 9_999).await?;
            assert_eq!(&read[..3], &pattern(10_000, 1)[..3]);
            assert!(read[3..].iter().all(|byte| *byte == 0));
        }
        // A start of the target goes on with it.
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        rt.sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(target.objects.attr(id(3))?.blocks, 8);
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn damage_is_told() {
    check(async |_rt, target| {
        target.write(id(1), 0, &pattern(100_000, 1)).await?;
        target.write(id(2), 0, &pattern(100, 1)).await?;
        let dir = target.store.dir().subdir(super::super::files::DIR).await?;
        let name = target.data_files().await?.remove(0);
        let file = dir.open(&name).await?;
        let byte = file.read_at(50_000, 1).await?[0];
        file.write_at(50_000, vec![Bytes::from(vec![byte ^ 1])]).await?;
        let read = target.objects.read(id(1), 0, 100_000).await;
        assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
        assert_eq!(target.read(id(1), 0, 4096).await?, pattern(4096, 1), "other blocks are well");
        assert_eq!(target.read(id(2), 0, 4096).await?, pattern(100, 1));
        let found = target.findings().await?;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("is damaged"), "{found:?}");
        Ok(())
    });
}

/// A write of several parts was refused because of a damaged block between two of them, and so was its replay: it was lost.
#[test]
fn what_is_damaged_between_parts_does_not_keep_them_out() {
    check(async |rt, target| {
        target.write(id(1), 0, &pattern(100_000, 1)).await?;
        target.sync().await?;
        let dir = target.store.dir().subdir(super::super::files::DIR).await?;
        let file = dir.open(&target.data_files().await?[0]).await?;
        let byte = file.read_at(50_000, 1).await?[0];
        file.write_at(50_000, vec![Bytes::from(vec![byte ^ 1])]).await?;
        let part = |start| (start, vec![Bytes::from_static(&[9; 4096])]);
        // Around a part of the damaged block, and around a part of one that is well.
        let parts = || vec![part(45_000), part(49_200), part(70_000), part(75_000)];
        let written = target.objects.write_parts(id(1), parts(), at(1), None, nothing()).await?.1;
        target.store.committed(written).await?;
        let mut data = pattern(100_000, 1);
        for start in [45_000, 49_200, 70_000, 75_000] {
            data[start..start + 4096].fill(9);
        }
        for range in [0..49_152, 53_248..100_000] {
            let read = target.read(id(1), range.start as u64, range.len() as u32).await?;
            assert!(read == data[range.clone()], "{range:?}");
        }
        assert_eq!(
            target.read(id(1), 49_200, 4096).await?,
            [9; 4096],
            "it took the place of what was damaged"
        );
        let between = target.objects.read(id(1), 49_160, 30).await;
        assert!(matches!(between, Err(StoreError::Corrupt { .. })), "{between:?}");
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(target.read(id(1), 53_248, 46_752).await? == data[53_248..]);
        target.close().await
    });
}

#[test]
fn an_inspection_names_what_is_damaged_wherever_its_pages_end() {
    check(async |_rt, target| {
        for oid in 1..=5 {
            target.write(id(oid), 0, &vec![oid as u8; 3 << 20]).await?;
        }
        target.write(id(6), 1000, &pattern(50, 6)).await?;
        target.destroy(&[id(2)]).await?;
        let dir = target.store.dir().subdir(super::super::files::DIR).await?;
        let name = target.data_files().await?.remove(0);
        let file = dir.open(&name).await?;
        // Of the fourth object one block, and two blocks side by side.
        let whole = file.read_at(0, file.len().await? as usize).await?;
        let begin = whole.windows(4096).position(|some| some == [4; 4096]).expect("it is there");
        for block in [3, 300, 301] {
            let at = begin as u64 + block * 4096 + 7;
            file.write_at(at, vec![Bytes::from(vec![whole[at as usize] ^ 1])]).await?;
        }
        let all = Inspection {
            from: Position { object: id(0), offset: 0 },
            until: id(9).layout,
            objects_max: 100,
            bytes_max: Some(1 << 30),
        };
        let page = target.objects.inspect(all).await?;
        let seen = |page: &Page| -> Vec<(u32, u64)> {
            page.objects.iter().map(|seen| (seen.object.layout.oid, seen.size)).collect()
        };
        let large = 3 << 20;
        assert_eq!(seen(&page), [(1, large), (3, large), (4, large), (5, large), (6, 1050)]);
        let damaged = vec![3 * 4096..4 * 4096, 300 * 4096..302 * 4096];
        assert_eq!(page.objects[2].damaged, damaged);
        assert_eq!((page.next, page.bytes), (None, 4 * large + 50));
        assert!([0, 1, 3, 4].iter().all(|n| page.objects[*n].damaged.is_empty()));
        let listed = target.objects.inspect(Inspection { bytes_max: None, ..all }).await?;
        assert_eq!((seen(&listed), listed.bytes), (seen(&page), 0));
        assert!(listed.objects[2].damaged.is_empty(), "nothing was read");
        // The same in small pages.
        for (objects_max, bytes_max) in [(1, 1 << 30), (2, 1), (100, 1 << 20), (3, 2 << 20)] {
            let (mut from, mut found, mut order, mut bytes) = (all.from, Vec::new(), Vec::new(), 0);
            loop {
                let asked = Inspection { from, objects_max, bytes_max: Some(bytes_max), ..all };
                let page = target.objects.inspect(asked).await?;
                bytes += page.bytes;
                for seen in page.objects {
                    order.push(seen.object);
                    found.extend(seen.damaged);
                }
                let Some(next) = page.next else { break };
                assert!(next > from, "it goes on");
                from = next;
            }
            order.dedup();
            assert_eq!(order, [1, 3, 4, 5, 6].map(id), "{objects_max} {bytes_max}");
            assert_eq!(found, damaged, "{objects_max} {bytes_max}");
            assert!(bytes >= 4 * large, "{bytes}");
        }
        Ok(())
    });
}

/// Holes were read as data, a MiB at a time: behind a sparse file nothing was ever looked at.
#[test]
fn an_inspection_gets_past_sparse_objects() {
    check(async |_rt, target| {
        let last = (1 << 50) - 5000;
        target.write(id(1), 0, &pattern(4096, 1)).await?;
        target.write(id(1), 1 << 40, &pattern(4096, 1)).await?;
        target.write(id(1), last, &pattern(4096, 3)).await?;
        target.punch(id(1), 1 << 50, u64::MAX).await?;
        target.punch(id(2), 1 << 50, u64::MAX).await?;
        target.write(id(3), 0, &[3; 100_000]).await?;
        // Of a large object only what is reserved, in very many chunks, and then data.
        target.punch(id(4), 3 << 30, u64::MAX).await?;
        for chunk in 0..150 {
            target.allocate(id(4), chunk << 24, (chunk << 24) + 1).await?;
        }
        target.write(id(4), 2 << 30, &[4; 10]).await?;
        let dir = target.store.dir().subdir(super::super::files::DIR).await?;
        let file = dir.open(&target.data_files().await?[0]).await?;
        let whole = file.read_at(0, file.len().await? as usize).await?;
        for wanted in [pattern(4096, 3), vec![3; 4096]] {
            let at = whole.windows(4096).position(|some| some == wanted).expect("it is there") as u64;
            file.write_at(at, vec![Bytes::from_static(b"damage")]).await?;
        }
        let mut from = Position { object: id(0), offset: 0 };
        let (mut found, mut bytes) = (Vec::new(), 0);
        for _ in 0..20 {
            let asked = Inspection { from, until: id(9).layout, objects_max: 100, bytes_max: Some(8192) };
            let page = target.objects.inspect(asked).await?;
            bytes += page.bytes;
            found.extend(page.objects.into_iter().map(|seen| (seen.object, seen.damaged)));
            let Some(next) = page.next else { break };
            from = next;
        }
        assert_eq!(bytes, 3 * 4096 + 100_000 + 10);
        let damaged =
            |wanted| found.iter().filter(move |(id, _)| *id == wanted).flat_map(|(_, damaged)| damaged);
        // The damaged block lies in two blocks of the object.
        assert_eq!(damaged(id(1)).collect::<Vec<_>>(), [&(last..1 << 50)]);
        assert_eq!(damaged(id(3)).collect::<Vec<_>>(), [&(0..4096)]);
        assert_eq!(found.last(), Some(&(id(4), Vec::new())));
        Ok(())
    });
}

#[test]
fn the_checker_of_the_target_looks_at_objects() {
    use crate::check::{Depth, check_to};
    check(async |rt, target| {
        // More than the log carries.
        target.write(id(1), 0, &pattern(100_000, 1)).await?;
        let name = target.data_files().await?.remove(0);
        let dir = target.store.dir().clone();
        target.close().await?;
        assert_eq!(check_to(&rt, PATH, Depth::Data).await?.findings, Vec::<String>::new());
        let data = dir.subdir(super::super::files::DIR).await?;
        data.open(&name).await?.write_at(5000, vec![Bytes::from_static(b"damage")]).await?;
        assert_eq!(check_to(&rt, PATH, Depth::Structure).await?.findings, Vec::<String>::new());
        assert_eq!(check_to(&rt, PATH, Depth::Data).await?.findings.len(), 1);
        data.remove(&name).await?;
        let found = check_to(&rt, PATH, Depth::Structure).await?.findings;
        assert!(found.len() == 1 && found[0].contains("is missing"), "{found:?}");
        Ok(())
    });
}

#[test]
fn the_newest_owner_has_the_blocks_of_an_object() {
    check(async |_rt, target| {
        let used = |id| [0, 1].map(|kind| target.objects.usage(kind, id).expect("the store can be read"));
        let write = async |by: By, offset, len| {
            let data = vec![Bytes::from(pattern(len, 1))];
            target.objects.write(id(1), offset, data, by, None, nothing()).await.map(drop)
        };
        write(at(1).into(), 0, 5000).await?;
        assert_eq!([used(0), used(7)], [[0, 0]; 2], "nobody has said whose it is");
        let of = |uid, gid, version| FileOwner { uid, gid, version, project: 0 };
        write(By { time: at(1), owner: of(7, 8, 5) }, 8192, 10).await?;
        assert_eq!((used(7), used(8)), ([12288, 0], [0, 12288]));
        write(By { time: at(1), owner: of(1, 1, 4) }, 8192, 10).await?;
        assert_eq!((used(7), used(1)), ([12288, 0], [0, 0]), "whoever writes knows an older owner");
        assert!(target.objects.set_owner(id(1), of(9, 8, 6)).await?.is_some());
        assert!(target.objects.set_owner(id(1), of(7, 8, 6)).await?.is_none(), "it is said again");
        assert_eq!((used(7), used(9), used(8)), ([0, 0], [12288, 0], [0, 12288]));
        target.punch(id(1), 100, u64::MAX).await?;
        assert_eq!((used(9), used(8)), ([4096, 0], [0, 4096]));
        // One that is not there keeps its owner for whoever makes it.
        target.objects.set_owner(id(2), of(9, 9, 7)).await?;
        write(By { time: at(1), owner: of(7, 8, 5) }, 0, 1).await?;
        target
            .objects
            .write(
                id(2),
                0,
                vec![Bytes::from_static(b"x")],
                By { time: at(1), owner: of(7, 8, 6) },
                None,
                nothing(),
            )
            .await?;
        assert_eq!((used(9), used(7)), ([12288, 4096], [0, 0]));
        target.destroy(&[id(1), id(2)]).await?;
        assert!(matches!(target.objects.set_owner(id(2), of(9, 9, 9)).await, Err(StoreError::Gone)));
        assert_eq!((used(9), used(8)), ([0, 0], [0, 0]));
        assert_eq!(target.findings().await?, Vec::<String>::new());
        Ok(())
    });
}

/// A write takes its time to give data to the disk. If whoever asked for it is given up meanwhile, others may have written there.
#[test]
fn nothing_is_written_for_one_that_is_over() {
    check(async |_rt, target| {
        let author = Arc::new(Author::default());
        let extra = |author: &Arc<Author>| Extra { author: Some(author.clone()), keys: None };
        let data = |text: &'static [u8]| vec![Bytes::from_static(text)];
        target.objects.write(id(1), 0, data(b"abc"), at(9), None, extra(&author)).await?;
        author.end(&target.store);
        let late = target.objects.write(id(1), 1, data(b"x"), at(9), None, extra(&author)).await;
        assert!(matches!(late, Err(StoreError::Over)));
        for end in [2, u64::MAX] {
            let cut = target.objects.punch(id(1), 1, end, at(9), None, extra(&author)).await;
            assert!(matches!(cut, Err(StoreError::Over)));
        }
        let (found, size) = target.objects.read(id(1), 0, 10).await?;
        assert_eq!((found.concat(), size), (b"abc".to_vec(), 3));
        Ok(())
    });
}

/// The same of a hole that is cut in many steps.
#[test]
fn no_step_is_made_for_one_that_is_over() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    let run = async {
        let target = Target::make_with(&rt, Limits { hole_changes_max: 4, ..Limits::default() }).await?;
        for n in 0..20 {
            target.write(id(1), n << 14, b"x").await?;
        }
        let author = Arc::new(Author::default());
        author.end(&target.store);
        let extra = Extra { author: Some(author), keys: None };
        let cut = target.objects.punch(id(1), 0, 1 << 20, at(9), None, extra).await;
        assert!(matches!(cut, Err(StoreError::Over)));
        for n in 0..20 {
            assert_eq!(target.read(id(1), n << 14, 1).await?, b"x");
        }
        Ok::<(), StoreError>(())
    };
    sim.run(run).expect("no operation fails");
}
