//! What a store does by itself while nobody wants anything of it.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::*;

/// Bytes of the engine's tables.
fn table_bytes(path: &Path) -> u64 {
    let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("it is listed").path();
        if path.is_dir() { table_bytes(&path) } else { path.metadata().map_or(0, |data| data.len()) }
    };
    std::fs::read_dir(path).expect("it is there").map(bytes).sum()
}

/// Has the engine take all that was changed.
async fn apply_all(rt: &Rt, store: &Arc<Store>) -> Result<(), StoreError> {
    store.committed(store.last_transno()).await?;
    while store.shared.unapplied.load(Ordering::Relaxed) > 0 {
        store.shared.check()?;
        store.shared.flush();
        rt.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A disk that was filled and emptied had no room a minute later, because nothing merged what was removed away.
#[test]
fn what_was_removed_from_a_full_disk_is_given_back_by_itself() {
    check(async |rt, path| {
        // A disk of which so much has to be left alone is always full.
        let reserve = Sizes { pieces: 256 << 10, margin: 1 << 60 };
        let limits = Limits { reserve, engine_target_bytes: 16 << 10, ..small() };
        let store = Store::open_with(&rt, &path, limits).await?;
        let mut random = Rng::new(7);
        let mut text = || (0..100).map(|_| format!("{:016x}", random.next_u64())).collect::<String>();
        for key in 0..3000 {
            store.room(Need::Release).await?;
            store.commit(batch([put(&format!("{key:05}"), &text())]))?;
        }
        apply_all(&rt, &store).await?;
        let tables = Path::new(&path).join("kv/keyspaces");
        let full = table_bytes(&tables);
        assert!(store.is_full() && full > 1 << 20, "{full}");
        for key in 0..3000 {
            store.room(Need::Release).await?;
            store.commit(batch([delete(&format!("{key:05}"))]))?;
        }
        let mut left = full;
        for _ in 0..600 {
            rt.sleep(Duration::from_millis(100)).await;
            left = table_bytes(&tables);
            if left < full / 10 {
                break;
            }
        }
        assert!(left < full / 10, "{left} of {full}");
        store.close().await
    });
}

/// The task that merges meets the error by itself, and the next batch may be a long time off.
#[test]
fn an_engine_that_fails_by_itself_is_noticed() {
    check(async |rt, path| {
        let store = Store::open_with(&rt, &path, small()).await?;
        let tables = Path::new(&path).join("kv/keyspaces/1/tables");
        for round in 0..50 {
            for entry in std::fs::read_dir(&tables)? {
                let file = std::fs::OpenOptions::new().write(true).open(entry?.path())?;
                std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 512], 0)?;
            }
            // One record, so that the engine gets one batch of each round.
            let changes: Vec<Change> =
                (0..20).map(|key| put(&format!("{key:02}-{round:02}"), &"x".repeat(1000))).collect();
            let is_applied = match store.commit(batch(changes)) {
                Ok(_) => apply_all(&rt, &store).await.is_ok(),
                Err(_) => false,
            };
            if !is_applied {
                break;
            }
        }
        // Nothing else comes.
        let noticed = rt.timeout(Duration::from_secs(20), store.failed()).await;
        assert!(noticed.is_some() && store.has_failed(), "a table that is merged is read");
        assert!(matches!(store.close().await, Err(StoreError::Poisoned)));
        Ok(())
    });
}
