//! Random changes, reads and restarts against a plain map.

use std::collections::BTreeMap;

use super::*;

type Map = BTreeMap<String, (String, u64)>;

struct Model {
    random: Rng,
    now: Map,
    /// State after each transno since the last restart, from the last durable one on.
    history: BTreeMap<u64, Map>,
}

impl Model {
    fn key(&mut self) -> String {
        // A few directories with entries, and short keys.
        let dir = self.random.below(5);
        match self.random.below(10) {
            0 => format!("s{}", self.random.below(50)),
            _ => format!("e{dir:016}{:03}", self.random.below(100)),
        }
    }

    fn change(&mut self, store: &Arc<Store>) {
        let mut changes = Vec::new();
        for _ in 0..self.random.below(4) {
            let key = self.key();
            if self.random.below(3) == 0 {
                changes.push(delete(&key));
            } else {
                let len = self.random.below(300) as usize;
                changes.push(put(&key, &"x".repeat(len)));
            }
        }
        let ahead = store.last_transno().0 + self.random.below(3);
        let replay = (self.random.below(4) == 0).then_some(transno(ahead));
        let drawn = store.commit(Batch { replay, ..batch(changes.clone()) }).expect("the store takes it").0;
        for change in changes {
            let key = String::from_utf8_lossy(&change.key).into_owned();
            match change.value {
                Some(value) => {
                    self.now.insert(key, (String::from_utf8_lossy(&value).into_owned(), drawn));
                }
                None => {
                    self.now.remove(&key);
                }
            }
        }
        self.history.insert(drawn, self.now.clone());
    }

    fn compare_some(&mut self, store: &Arc<Store>) {
        let key = self.key();
        assert_eq!(value_of(store, &key), self.now.get(&key).cloned(), "{key}");
        let (mut from, mut until) = (self.key(), self.key());
        if self.random.below(2) == 0 {
            // Within one directory.
            until = format!("{}~", &from[..from.len().min(17)]);
        }
        if until < from {
            std::mem::swap(&mut from, &mut until);
        }
        let count = self.random.below(40) as usize;
        let found = scan(store, &from, &until, count);
        assert!(found == expected(&self.now, &from, &until, count), "{count} keys from {from} until {until}");
    }
}

fn scan(store: &Arc<Store>, from: &str, until: &str, count: usize) -> Vec<(String, (String, u64))> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = store.scan(from.as_bytes(), until.as_bytes(), count).expect("reads do not fail");
    found.into_iter().map(|(key, v)| (text(&key), (text(&v.bytes), v.version.0))).collect()
}

fn expected(map: &Map, from: &str, until: &str, count: usize) -> Vec<(String, (String, u64))> {
    map.range(from.to_owned()..until.to_owned()).take(count).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn whole(store: &Arc<Store>) -> Map {
    scan(store, "", "~", usize::MAX).into_iter().collect()
}

fn assert_same(found: &Map, want: &Map) {
    for key in found.keys().chain(want.keys()) {
        assert_eq!(found.get(key), want.get(key), "{key}");
    }
}

#[test]
fn the_store_is_a_map_whatever_happens_to_it() {
    for seed in 1..=2u64 {
        check(async |rt, path| {
            let mut model =
                Model { random: Rng::new(seed), now: Map::new(), history: BTreeMap::from([(0, Map::new())]) };
            let mut store = Store::open_with(&rt, &path, small()).await?;
            for _ in 0..6 {
                for _ in 0..model.random.below(600) {
                    store.room(Need::Growth).await?;
                    model.change(&store);
                    model.compare_some(&store);
                    if model.random.below(200) == 0 {
                        store.committed(store.last_transno()).await?;
                        let last = store.last_committed().0;
                        model.history.retain(|transno, _| *transno >= last);
                    }
                }
                let durable = store.last_committed().0;
                let in_order = model.random.below(3) == 0;
                if in_order {
                    store.close().await?;
                } else {
                    store.abandon().await;
                }
                let last = store.last_transno().0;
                store = Store::open_with(&rt, &path, small()).await?;
                let found = store.last_transno().0;
                assert!(found >= durable && found <= last, "{durable} <= {found} <= {last}");
                assert!(!in_order || found == last);
                model.now = model.history.remove(&found).expect("a prefix ends at a change");
                assert_same(&whole(&store), &model.now);
                model.history = BTreeMap::from([(found, model.now.clone())]);
            }
            store.close().await?;
            let report = crate::check::check(&rt, &path).await?;
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(report.keys, model.now.len() as u64);
            Ok(())
        });
    }
}
