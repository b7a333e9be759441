use rt::sim::{Options, Sim};

use super::*;
use crate::check::check as check_target;

#[test]
fn format_open_close_open() {
    check(async |rt, path| {
        let store = Store::open(&rt, &path).await?;
        assert_eq!((store.boot(), store.label()), (1, &label()));
        assert_eq!(store.commit(batch([put("a", "1"), put("b", "1")]))?, transno(1));
        assert_eq!(store.commit(batch([delete("a"), put("b", "2")]))?, transno(2));
        assert_eq!((value_of(&store, "a"), value_of(&store, "b")), (None, Some(("2".into(), 2))));
        store.close().await?;
        assert!(matches!(store.commit(batch([put("c", "1")])), Err(StoreError::Poisoned)));

        let store = Store::open(&rt, &path).await?;
        assert_eq!((store.boot(), store.last_transno(), store.last_committed()), (2, transno(2), transno(2)));
        assert_eq!((value_of(&store, "a"), value_of(&store, "b")), (None, Some(("2".into(), 2))));
        assert_eq!(store.commit(batch([]))?, transno(3));
        store.close().await?;
        assert_eq!(Store::read_label(&rt, &path).await?, label());
        Ok(())
    });
}

#[test]
fn a_closed_target_has_no_log_left_but_its_newest_segment() {
    check(async |rt, path| {
        for boot in 1..4 {
            let store = Store::open(&rt, &path).await?;
            store.commit(batch([put("a", "1")]))?;
            store.close().await?;
            let newest = crate::log::segment::SegmentId { boot, number: 0 }.name();
            assert_eq!(store.dir().subdir("log").await?.list().await?, [newest], "it names the last owner");
        }
        Ok(())
    });
}

#[test]
fn format_wants_an_empty_directory() {
    check(async |rt, path| {
        let error = Store::format(&rt, &path, &label()).await.expect_err("there is a target");
        assert!(error.to_string().contains("holds a target already"), "{error}");
        let other = format!("{path}-other");
        rt.disk().create_dir(&other).await?.create("something").await?;
        let error = Store::format(&rt, &other, &label()).await.expect_err("there is a file");
        assert!(error.to_string().contains("not empty"), "{error}");
        let error = Store::open(&rt, &other).await.err().expect("there is no label");
        assert!(error.to_string().contains("holds no target"), "{error}");
        Ok(())
    });
}

/// The checker printed what the engine's library says to programmers, or no more than "Disk: No such file or directory (os error 2)".
#[test]
fn a_damaged_engine_is_told_in_a_sentence() {
    check(async |rt, path| {
        let store = Store::open(&rt, &path).await?;
        store.commit(batch([put("a", "1")]))?;
        store.close().await?;
        let current = std::path::Path::new(&path).join("kv/keyspaces/0/current");
        let whole = std::fs::read(&current)?;
        let other = [&[0xff; 8][..], &whole[8..]].concat();
        for (bytes, why) in [
            (&whole[..7], "its file keyspaces/0/current is too short".to_owned()),
            (&other, format!("its file keyspaces/0/current names v{}, which is not there", u64::MAX)),
        ] {
            std::fs::write(&current, bytes)?;
            let sentence = format!("The key-value engine in kv is damaged: {why}.");
            assert_eq!(check_target(&rt, &path).await?.findings, [sentence]);
        }
        // What stands in the file that it names is not believed before it was compared: some of it ended the process.
        let named = format!("v{}", u64::from_le_bytes(*whole.first_chunk().expect("a number")));
        let tables = current.with_file_name(&named);
        let whole_tables = std::fs::read(&tables)?;
        let why = format!("its file keyspaces/0/{named} is not the one that keyspaces/0/current names");
        let sentence = format!("The key-value engine in kv is damaged: {why}.");
        std::fs::write(&current, &whole)?;
        for at in 0..whole_tables.len() {
            let mut flipped = whole_tables.clone();
            flipped[at] ^= 0x40;
            std::fs::write(&tables, &flipped)?;
            assert_eq!(check_target(&rt, &path).await?.findings, std::slice::from_ref(&sentence), "{at}");
        }
        std::fs::write(&tables, &whole_tables)?;
        std::fs::write(&current, &whole)?;
        assert!(check_target(&rt, &path).await?.is_clean());
        // The library ended the process, or read as much as there was into memory.
        let directory = current.with_file_name("tables").join("77");
        std::fs::create_dir_all(&directory)?;
        let sentence =
            "The key-value engine in kv is damaged: its file keyspaces/0/tables/77 is a directory.";
        assert_eq!(check_target(&rt, &path).await?.findings, [sentence]);
        std::fs::remove_dir(&directory)?;
        let version = std::path::Path::new(&path).join("kv/version");
        std::fs::OpenOptions::new().write(true).open(&version)?.set_len(40 << 30)?;
        let sentence = "The key-value engine in kv is damaged: its file version is too long.";
        assert_eq!(check_target(&rt, &path).await?.findings, [sentence]);
        Ok(())
    });
}

#[test]
fn a_commit_comes_by_itself_and_at_once_when_asked() {
    check(async |rt, path| {
        let never = Limits { commit_after: Duration::from_secs(1000), ..Limits::default() };
        let store = Store::open_with(&rt, &path, never).await?;
        let last = store.commit(batch([put("a", "1")]))?;
        assert_eq!(store.last_committed(), transno(0));
        store.committed(last).await?;
        assert_eq!(store.last_committed(), last);
        store.committed(transno(1000)).await?;
        store.close().await?;

        let store = Store::open(&rt, &path).await?;
        let last = store.commit(batch([put("a", "2")]))?;
        // Waits without asking.
        let waiter = store.shared.wait_for(last.0)?.expect("the change is not yet durable");
        assert!(waiter.await.is_ok());
        store.close().await
    });
}

#[test]
fn a_replayed_change_keeps_its_transno_only_in_front() {
    check(async |rt, path| {
        let store = Store::open(&rt, &path).await?;
        let replay = |n| Batch { replay: Some(transno(n)), ..batch([put("a", "1")]) };
        assert_eq!(store.commit(replay(100))?, transno(100));
        assert_eq!(store.commit(replay(7))?, transno(101));
        store.committed(transno(101)).await?;
        store.abandon().await;
        let store = Store::open(&rt, &path).await?;
        assert_eq!((store.last_transno(), value_of(&store, "a")), (transno(101), Some(("1".into(), 101))));
        store.close().await
    });
}

/// A failed sync says nothing about what is durable, so nothing may be accepted after it.
#[test]
fn a_failed_sync_poisons() {
    check(async |rt, path| {
        let store = Store::open(&rt, &path).await?;
        let kept = store.commit(batch([put("a", "kept")]))?;
        store.committed(kept).await?;
        // Device files cannot be synced.
        let data = vec![rt.disk().open_dir("/dev").await?.open("full").await?];
        let lost = store.commit(Batch { data, ..batch([put("a", "lost")]) })?;
        assert!(matches!(store.committed(lost).await, Err(StoreError::Poisoned)));
        assert!(matches!(store.commit(batch([])), Err(StoreError::Poisoned)));
        assert!(matches!(store.get(b"a"), Err(StoreError::Poisoned)));
        assert!(matches!(store.room(Need::Growth).await, Err(StoreError::Poisoned)));
        assert!(matches!(store.close().await, Err(StoreError::Poisoned)));
        let store = Store::open(&rt, &path).await?;
        assert_eq!(value_of(&store, "a"), Some(("kept".into(), kept.0)));
        store.close().await
    });
}

#[test]
fn threads_commit_at_the_same_time() {
    const THREADS: u64 = 4;
    const COMMITS: u64 = 2000;
    check(async |rt, path| {
        let store = Store::open_with(&rt, &path, small()).await?;
        let (sender, mut receiver) = rt::sync::channel(THREADS as usize);
        for thread in 0..THREADS {
            let (store, sender) = (store.clone(), sender.clone());
            rt.spawn(async move {
                let mut before = 0;
                for n in 0..COMMITS {
                    store.room(Need::Growth).await.expect("there is room");
                    let change = put(&format!("{thread}-{n}"), &n.to_string());
                    let drawn = store.commit(batch([change])).expect("the store takes it").0;
                    assert!(drawn > before, "transnos grow");
                    before = drawn;
                    if n % 500 == 0 {
                        store.committed(transno(drawn)).await.expect("it becomes durable");
                        assert!(store.last_committed().0 >= drawn);
                    }
                }
                sender.send(()).await.expect("the test waits");
            });
        }
        for _ in 0..THREADS {
            receiver.recv().await.expect("each thread ends in order");
        }
        store.committed(store.last_transno()).await?;
        assert_eq!(store.last_committed(), transno(THREADS * COMMITS));
        store.abandon().await;
        let store = Store::open(&rt, &path).await?;
        for thread in 0..THREADS {
            for n in 0..COMMITS {
                let found = value_of(&store, &format!("{thread}-{n}"));
                assert_eq!(found.map(|(value, _)| value), Some(n.to_string()));
            }
        }
        store.close().await
    });
}

#[test]
fn the_checker_finds_nothing_in_a_sound_target_and_a_changed_byte_elsewhere() {
    check(async |rt, path| {
        let report = check_target(&rt, &path).await?;
        assert!(report.is_clean(), "never opened: {report:?}");
        let store = Store::open(&rt, &path).await?;
        store.commit(batch([put("a", "1"), put("a", "2"), put("b", "1")]))?;
        store.commit(batch([delete("b"), put("a", "3")]))?;
        store.committed(store.last_transno()).await?;
        store.abandon().await;
        let report = check_target(&rt, &path).await?;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!((report.records, report.keys, report.label), (1, 1, Some(label())));

        let boot = std::path::Path::new(&path).join("boot");
        let mut bytes = std::fs::read(&boot)?;
        bytes[25] ^= 1;
        std::fs::write(&boot, bytes)?;
        let report = check_target(&rt, &path).await?;
        assert_eq!(report.findings, ["The file boot does not match its checksum.".to_owned()]);
        let _ = std::fs::remove_file(std::path::Path::new(&path).join("label"));
        assert!(!check_target(&rt, &path).await?.is_clean());
        Ok(())
    });
}

/// Without this a burst would take memory without end.
#[test]
fn room_waits_until_there_is_room() {
    check(async |rt, path| {
        let limits = Limits { commit_after: Duration::from_secs(1000), ..small() };
        let store = Store::open_with(&rt, &path, limits).await?;
        let value = "v".repeat(10_000);
        for n in 0..500 {
            store.room(Need::Growth).await?;
            assert!(store.shared.unsynced.load(std::sync::atomic::Ordering::Relaxed) <= 80 << 10);
            store.commit(batch([put(&format!("{n}"), &value)]))?;
        }
        store.committed(store.last_transno()).await?;
        assert!(store.shared.view.table.bytes() < 1 << 20, "the table is bounded");
        assert!(store.shared.log_bytes.load(std::sync::atomic::Ordering::Relaxed) < 2 << 20);
        for n in 0..500 {
            assert_eq!(value_of(&store, &format!("{n}")), Some((value.clone(), n + 1)));
        }
        store.close().await
    });
}

/// What a crash took back is not drawn again, however often nothing becomes durable.
#[test]
fn each_boot_draws_other_transnos() {
    let sim = Sim::new(Options::seed(3));
    let rt = sim.rt("server");
    let run = async {
        Store::format(&rt, "target", &label()).await?;
        let mut told = Transno(0);
        for boot in 1..40 {
            let store = Store::open_with(&rt, "target", small()).await?;
            store.draw_from(store.first_transno());
            let drawn = store.commit(batch([put("key", "value")]))?;
            assert!(drawn > told, "boot {boot}");
            told = drawn;
            if boot % 10 == 0 {
                store.committed(drawn).await?;
            }
            store.abandon().await;
        }
        Ok::<(), StoreError>(())
    };
    sim.run(run).expect("no operation fails");
}
