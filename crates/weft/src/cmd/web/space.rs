//! Whose the space is: the OSTs of pools, and the owners that have most.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::Failure;
use crate::lctl::params;
use crate::lctl::reach::Reach;
use crate::lfs::find::numbers::{Database, name_of};
use crate::statistics::{Account, accounts};

/// Owners of each kind that are shown.
const OWNERS_MAX: usize = 10;
/// How old what targets said of owners may be.
const OWNERS_FRESH: Duration = Duration::from_secs(10);
/// Names that are kept, and for how long.
const NAMES_MAX: usize = 4096;
const NAMES_FRESH: Duration = Duration::from_secs(600);
/// The parameters that say what owners have, and what they are called here.
const KINDS: [(&str, &str); 3] =
    [("acct_user", "user"), ("acct_group", "group"), ("acct_project", "project")];

/// A pool of OSTs.
#[derive(Debug, PartialEq, Serialize)]
pub struct Pool {
    fsname: String,
    name: String,
    /// Their names, as targets have them.
    osts: Vec<String>,
}

/// What an owner has of a file system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Owner {
    fsname: String,
    kind: &'static str,
    id: u32,
    /// If the host knows it.
    name: Option<String>,
    inodes: u64,
    bytes: u64,
}

/// What is known of owners: to ask all targets costs more than the rest of the page.
#[derive(Default)]
pub struct Owners {
    last: Option<(Instant, Vec<Owner>)>,
    names: Names,
}

impl Owners {
    /// Those who have most space, of each file system and kind.
    ///
    /// # Errors
    /// Nobody is reached.
    pub fn shown(&mut self, reach: &mut Reach) -> Result<Vec<Owner>, Failure> {
        if let Some((since, owners)) = &self.last
            && since.elapsed() < OWNERS_FRESH
        {
            return Ok(owners.clone());
        }
        let owners = owners(reach, &mut self.names)?;
        self.last = Some((Instant::now(), owners.clone()));
        Ok(owners)
    }
}

/// Names of users and groups that were looked for: a look for one starts a program.
#[derive(Default)]
struct Names {
    known: BTreeMap<(&'static str, u32), Option<String>>,
    since: Option<Instant>,
}

impl Names {
    fn of(&mut self, kind: &'static str, id: u32) -> Option<String> {
        let database = match kind {
            "user" => Database::Users,
            "group" => Database::Groups,
            _ => return None,
        };
        if self.known.len() >= NAMES_MAX || self.since.is_none_or(|since| since.elapsed() >= NAMES_FRESH) {
            self.known.clear();
            self.since = Some(Instant::now());
        }
        self.known.entry((kind, id)).or_insert_with(|| name_of(database, id)).clone()
    }
}

/// The pools that are known to MDTs.
///
/// # Errors
/// Nobody is reached.
pub fn pools(reach: &mut Reach) -> Result<Vec<Pool>, Failure> {
    let told = params::told(reach, &["lod.*.pools.*"])?;
    let mut pools: BTreeMap<(String, String), Pool> = BTreeMap::new();
    for (name, value) in &told.values {
        if let Some(pool) = pool(name, value) {
            // Every MDT knows all of them.
            pools.insert((pool.fsname.clone(), pool.name.clone()), pool);
        }
    }
    Ok(pools.into_values().collect())
}

/// The value of `lod.FSNAME-MDT0000-mdtlov.pools.NAME`.
fn pool(name: &str, value: &str) -> Option<Pool> {
    let (device, name) = name.strip_prefix("lod.")?.split_once(".pools.")?;
    let osts = value.lines().filter_map(|line| line.strip_suffix("_UUID"));
    Some(Pool {
        fsname: fsname_of(device)?.to_owned(),
        name: name.to_owned(),
        osts: osts.map(str::to_owned).collect(),
    })
}

/// The file system of a target's name.
fn fsname_of(target: &str) -> Option<&str> {
    let at = target.find("-MDT").or_else(|| target.find("-OST"))?;
    Some(&target[..at])
}

fn owners(reach: &mut Reach, names: &mut Names) -> Result<Vec<Owner>, Failure> {
    let told = params::told(reach, &["osd-weft.*.quota_slave.acct_*"])?;
    let mut all: BTreeMap<(String, &'static str, u32), (u64, u64)> = BTreeMap::new();
    for (name, text) in &told.values {
        let Some((fsname, kind)) = kind_of(name) else { continue };
        for Account { id, inodes, kbytes } in accounts(text) {
            let sum = all.entry((fsname.to_owned(), kind, id)).or_default();
            sum.0 = sum.0.saturating_add(inodes);
            sum.1 = sum.1.saturating_add(kbytes.saturating_mul(1024));
        }
    }
    let mut owners = most(all);
    owners.iter_mut().for_each(|owner| owner.name = names.of(owner.kind, owner.id));
    Ok(owners)
}

fn most(all: BTreeMap<(String, &'static str, u32), (u64, u64)>) -> Vec<Owner> {
    let mut owners: Vec<Owner> = Vec::new();
    for ((fsname, kind, id), (inodes, bytes)) in all {
        owners.push(Owner { fsname, kind, id, name: None, inodes, bytes });
    }
    owners.sort_by_key(|owner| (Reverse(owner.bytes), Reverse(owner.inodes), owner.id));
    let mut shown: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    owners.retain(|owner| {
        let count = shown.entry((owner.fsname.clone(), owner.kind)).or_default();
        *count += 1;
        *count <= OWNERS_MAX
    });
    owners
}

/// Whose `osd-weft.FSNAME-OST0000.quota_slave.acct_user` is: the file system, and the kind of owners.
fn kind_of(name: &str) -> Option<(&str, &'static str)> {
    let (device, parameter) = name.strip_prefix("osd-weft.")?.split_once(".quota_slave.")?;
    let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == parameter)?;
    Some((fsname_of(device)?, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        let name = "osd-weft.my-fs-OST0001.quota_slave.acct_project";
        assert_eq!(kind_of(name), Some(("my-fs", "project")));
        assert_eq!(kind_of("osd-weft.w-OST0001.kbytesfree"), None);
        let found = pool("lod.w-MDT0000-mdtlov.pools.flash", "w-OST0000_UUID\nw-OST0002_UUID");
        let osts = vec!["w-OST0000".to_owned(), "w-OST0002".to_owned()];
        assert_eq!(found, Some(Pool { fsname: "w".into(), name: "flash".into(), osts }));
        assert_eq!(pool("lod.w-MDT0000-mdtlov.numobd", "2"), None);
    }

    #[test]
    fn those_with_most_come_first_and_the_others_not_at_all() {
        let ids = 0..OWNERS_MAX as u32 + 5;
        let of = |kind| ids.clone().map(move |id| (("w".to_owned(), kind, id), (1, u64::from(id))));
        let owners = most(of("user").chain(of("group")).collect());
        assert_eq!(owners.len(), 2 * OWNERS_MAX);
        assert_eq!(
            (owners[0].id, owners[0].bytes),
            (OWNERS_MAX as u32 + 4, u64::from(OWNERS_MAX as u32) + 4)
        );
    }
}
