use super::*;

/// Everything that a snapshot shows, as text.
fn all_of(snapshot: &crate::Snapshot) -> Result<Vec<(String, String)>, StoreError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = Vec::new();
    snapshot.scan(b"k", b"l", &mut |key, value, _| {
        found.push((text(key), text(value)));
        true
    })?;
    Ok(found)
}

/// Later changes, and the merges that follow, leave a snapshot what it is; what ends gives its room back.
#[test]
fn a_snapshot_stays_what_it_was() {
    check(async |rt, path| {
        let store = Store::open_with(&rt, &path, small()).await?;
        let key = |n: u64| format!("k{n:05}");
        let value = |round: u64| format!("{round:0200}");
        let (mut taken, mut random) = (Vec::new(), Rng::new(7));
        for round in 0..30 {
            for _ in 0..100 {
                let n = random.below(300);
                let change = if random.below(3) == 0 { delete(&key(n)) } else { put(&key(n), &value(round)) };
                store.room(Need::Release).await?;
                store.commit(batch([change]))?;
            }
            if round % 5 == 0 {
                let snapshot = store.snapshot().await?;
                let now = store.scan(b"k", b"l", usize::MAX)?;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let now: Vec<_> = now.iter().map(|(key, value)| (text(key), text(&value.bytes))).collect();
                assert!(now.len() > 50, "{} keys", now.len());
                assert_eq!(all_of(&snapshot)?, now, "it has everything, durable or not before");
                taken.push((snapshot, now));
            }
        }
        for (snapshot, then) in &taken {
            assert_eq!(&all_of(snapshot)?, then);
            for (key, value) in then {
                let found = snapshot.get(key.as_bytes())?.map(|found| found.bytes);
                assert_eq!(found.as_deref(), Some(value.as_bytes()));
            }
        }
        let (first, _) = &taken[0];
        store.close().await?;
        assert!(matches!(first.get(b"k00001"), Err(StoreError::Ended | StoreError::Poisoned)));
        Ok(())
    });
}

/// Whoever looked for it since remembers that it is not there, and not since when.
#[test]
fn a_key_that_went_is_there_in_a_snapshot_of_before() {
    check(async |rt, path| {
        let store = Store::open_with(&rt, &path, small()).await?;
        store.commit(batch([put("k1", "there")]))?;
        let snapshot = store.snapshot().await?;
        store.commit(batch([delete("k1")]))?;
        store.applied(store.last_transno()).await?;
        // So many others that memory keeps what it has to.
        for n in 0..2000 {
            store.room(Need::Release).await?;
            store.commit(batch([put(&format!("k2{n:05}"), &"x".repeat(200))]))?;
        }
        store.applied(store.last_transno()).await?;
        assert!(store.get(b"k1")?.is_none());
        let then = snapshot.get(b"k1")?.map(|found| found.bytes);
        assert_eq!(then.as_deref(), Some(&b"there"[..]));
        store.close().await
    });
}
