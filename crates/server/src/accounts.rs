//! `quota_slave.acct_user`, `acct_group`, `acct_project` of a target's disk: how many inodes and how much space each owner has there, in
//! Lustre's format (`lprocfs_quota_seq_show`). The numbers are the sums that quotas are checked with.

use std::collections::BTreeMap;
use std::fmt::Write;

use proto::parameters::{Parameter, TargetTree};
use proto::wire::messages::{QUOTA_GROUP, QUOTA_PROJECT, QUOTA_USER};
use store::object::BLOCK_OWNERS;
use store::sums::INODE_OWNERS;
use store::{Scan, StoreError};

/// The kinds of owners: names of the parameters, and titles.
const KINDS: [(u8, &str, &str); 3] = [
    (QUOTA_USER, "quota_slave.acct_user", "usr_accounting"),
    (QUOTA_GROUP, "quota_slave.acct_group", "grp_accounting"),
    (QUOTA_PROJECT, "quota_slave.acct_project", "prj_accounting"),
];
/// All owners are shown to those only who ask for this word: whoever reads every parameter gets the first ones.
const PLACE: &str = "quota_slave";
/// Owners of one part: no value is longer than an answer may be.
const PART_OWNERS: usize = 256;
/// Most owners of a kind that are shown.
const OWNERS_MAX: usize = 1 << 14;
/// In the unit of blocks that objects are counted in.
const BLOCK_KBYTES: u64 = 4;

/// What an owner has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    inodes: u64,
    kbytes: u64,
}

/// Registers them. The value of many owners comes in parts with one name, of which whoever reads it makes one.
pub fn parameters<'a>(store: &'a impl Scan, tree: &mut TargetTree<'a>) {
    for (kind, name, title) in KINDS {
        if !tree.wants_of_disk(name) {
            continue;
        }
        if !tree.has_values() || !tree.says(PLACE) {
            let first = move || parts(store, kind, title, PART_OWNERS).swap_remove(0);
            tree.of_disk(Parameter::text(name, first));
            continue;
        }
        for part in parts(store, kind, title, OWNERS_MAX) {
            tree.of_disk(Parameter::text(name, move || part));
        }
    }
}

/// One text at least, without an end of line behind the last line.
fn parts(scan: &impl Scan, kind: u8, title: &str, count_max: usize) -> Vec<String> {
    let accounts = match accounts(scan, kind, count_max) {
        Ok(accounts) => Vec::from_iter(accounts),
        Err(error) => {
            tracing::error!(%error, "what owners have cannot be read");
            Vec::new()
        }
    };
    let mut parts = vec![format!("{title}:")];
    for (number, some) in accounts.chunks(PART_OWNERS).enumerate() {
        let mut text = String::new();
        for (id, Account { inodes, kbytes }) in some {
            let usage = format!("{{ inodes: {inodes:>20}, kbytes: {kbytes:>20} }}");
            // Writing to a string cannot fail.
            _ = write!(text, "\n- {:<8} {id}\n  {:<8} {usage}", "id:", "usage:");
        }
        match number {
            0 => parts[0].push_str(&text),
            _ => parts.push(text.split_off(1)),
        }
    }
    parts
}

fn accounts(scan: &impl Scan, kind: u8, count_max: usize) -> Result<BTreeMap<u32, Account>, StoreError> {
    let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
    let inodes = INODE_OWNERS.of_kind(scan, kind, count_max)?;
    let blocks = BLOCK_OWNERS.of_kind(scan, kind, count_max)?;
    // What those behind it have is not known whole.
    let cut = |owners: &[(u32, u64)]| owners.get(count_max - 1).map_or(u32::MAX, |(id, _)| *id);
    let last = cut(&inodes).min(cut(&blocks));
    for (id, inodes) in inodes {
        accounts.entry(id).or_default().inodes = inodes;
    }
    for (id, blocks) in blocks {
        accounts.entry(id).or_default().kbytes = blocks.saturating_mul(BLOCK_KBYTES);
    }
    accounts.retain(|id, account| *id <= last && *account != Account::default());
    Ok(accounts)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::Transno;
    use store::Value;

    use super::*;

    struct Keys(BTreeMap<Vec<u8>, u64>);

    impl Scan for Keys {
        fn scan(
            &self,
            from: &[u8],
            until: &[u8],
            count_max: usize,
        ) -> Result<Vec<(Bytes, Value)>, StoreError> {
            let value =
                |sum: u64| Value { bytes: Bytes::copy_from_slice(&sum.to_le_bytes()), version: Transno(1) };
            let found = self.0.range(from.to_vec()..until.to_vec()).take(count_max);
            Ok(found.map(|(key, sum)| (Bytes::copy_from_slice(key), value(*sum))).collect())
        }

        fn get(&self, _key: &[u8]) -> Result<Option<Value>, StoreError> {
            Ok(None)
        }
    }

    #[test]
    fn owners_are_shown_as_lustre_shows_them() {
        let keys = [
            (INODE_OWNERS.key(0, 0).to_vec(), 209),
            (BLOCK_OWNERS.key(0, 0).to_vec(), 654),
            (BLOCK_OWNERS.key(0, 840_000_038).to_vec(), 262),
            (INODE_OWNERS.key(0, 5).to_vec(), 0),
            (INODE_OWNERS.key(1, 7).to_vec(), 1),
        ];
        let keys = Keys(keys.into_iter().collect());
        assert_eq!(
            parts(&keys, QUOTA_USER, "usr_accounting", 9),
            ["usr_accounting:\n\
              - id:      0\n  usage:   { inodes:                  209, kbytes:                 2616 }\n\
              - id:      840000038\n  usage:   { inodes:                    0, kbytes:                 1048 }"]
        );
        assert_eq!(parts(&keys, QUOTA_PROJECT, "prj_accounting", 9), ["prj_accounting:"]);
    }

    #[test]
    fn many_owners_come_in_parts() {
        let ids = 0..PART_OWNERS as u32 * 2 + 1;
        let keys = Keys(ids.map(|id| (BLOCK_OWNERS.key(1, id).to_vec(), 1)).collect());
        let parts = parts(&keys, QUOTA_GROUP, "grp_accounting", OWNERS_MAX);
        assert_eq!(parts.len(), 3);
        let whole = parts.join("\n");
        assert_eq!(whole.lines().count(), 1 + 2 * (PART_OWNERS * 2 + 1));
        assert!(whole.lines().all(|line| !line.is_empty()));
        assert!(parts.iter().all(|part| part.len() < proto::parameters::VALUE_BYTES_MAX));
        assert_eq!(super::parts(&keys, QUOTA_GROUP, "grp_accounting", 2)[0].lines().count(), 5);
    }
}
