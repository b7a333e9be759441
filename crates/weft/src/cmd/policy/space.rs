//! How full a pool, an OST or a file system is, and how much has to go from it.

use std::collections::BTreeSet;

use fuse::control::{self, Kind, Spaces, TargetSpace};
use fuse::session::MountEntry;
use proto::wire::messages::Space;

use super::rule::{Measured, When};
use crate::control::describe;
use crate::{ask, pools};

/// What is used, and what can still be used, in bytes: `lfs df` shows them so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that are used.
    pub used: u64,
    /// Bytes that users can still write.
    pub available: u64,
}

/// What was measured, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The sum.
    pub usage: Usage,
    /// The OSTs that were measured.
    pub osts: BTreeSet<u32>,
}

impl Usage {
    fn all(self) -> u128 {
        u128::from(self.used) + u128::from(self.available)
    }

    /// How full that is, in thousandths, rounded down.
    pub fn thousandths(self) -> u32 {
        let of = (u128::from(self.used) * 1000).checked_div(self.all()).unwrap_or(0);
        u32::try_from(of).unwrap_or(1000)
    }
}

impl When {
    /// Whether there is something to do.
    pub fn is_passed(&self, usage: Usage) -> bool {
        u128::from(usage.used) * 1000 > u128::from(self.above) * usage.all()
    }

    /// Bytes that have to go until nothing more is to do. What goes can be used again, so the sum stays.
    pub fn goal(&self, usage: Usage) -> u64 {
        let allowed = u128::from(self.until) * usage.all() / 1000;
        u64::try_from(u128::from(usage.used).saturating_sub(allowed)).unwrap_or(u64::MAX)
    }
}

/// The space of all targets.
pub fn spaces(mount: &MountEntry) -> Result<Spaces, String> {
    ask::get(mount, control::SPACE).map_err(|error| format!("{}: {}", mount.path.display(), describe(&error)))
}

/// The OSTs of a pool; a sentence if there is none.
pub fn members(mount: &MountEntry, pool: &str) -> Result<BTreeSet<u32>, String> {
    let members = pools::members(mount, pool).map_err(|error| describe(&error))?;
    let members = members.ok_or_else(|| format!("there is no pool '{pool}'"))?;
    Ok(members.into_iter().collect())
}

/// Measures as `lfs df` does.
pub fn measure(mount: &MountEntry, of: &Measured) -> Result<Measurement, String> {
    let spaces = spaces(mount)?;
    let osts = match of {
        Measured::Pool(pool) => members(mount, pool)?,
        Measured::Ost(index) => BTreeSet::from([*index]),
        Measured::All => spaces.targets.iter().filter(|of| of.kind == Kind::Ost).map(|of| of.index).collect(),
    };
    let usage = usage_of(&spaces.targets, &osts);
    let usage = usage.ok_or_else(|| format!("nobody says how full {} is", of.text()))?;
    Ok(Measurement { usage, osts })
}

/// Of these OSTs together; one that does not answer does not count. `None` if none answers.
fn usage_of(targets: &[TargetSpace], osts: &BTreeSet<u32>) -> Option<Usage> {
    let meant = targets.iter().filter(|of| of.kind == Kind::Ost && osts.contains(&of.index));
    let known: Vec<Space> = meant.filter_map(|of| of.space.as_ref()).map(Space::from).collect();
    if known.is_empty() {
        return None;
    }
    let sum = Space::sum(known);
    Some(Usage { used: sum.bytes_total.saturating_sub(sum.bytes_free), available: sum.bytes_available })
}

#[cfg(test)]
mod tests {
    use fuse::control::SpaceValues;

    use super::*;

    fn when(above: u32, until: u32) -> When {
        When { of: Measured::All, above, until }
    }

    #[test]
    fn thresholds() {
        let usage = |used, available| Usage { used, available };
        assert!(!when(850, 700).is_passed(usage(85, 15)));
        assert!(when(850, 700).is_passed(usage(86, 14)));
        assert_eq!(when(850, 700).goal(usage(86, 14)), 16);
        assert_eq!(when(850, 700).goal(usage(70, 30)), 0);
        assert_eq!(when(850, 700).goal(usage(3, 97)), 0);
        // When that much has gone, it is so.
        assert_eq!(when(850, 700).goal(usage(86 - 16, 14 + 16)), 0);
        assert!(!when(1000, 0).is_passed(usage(100, 0)));
        assert_eq!(when(1000, 0).goal(usage(u64::MAX, u64::MAX)), u64::MAX);
        assert_eq!((usage(855, 145).thousandths(), usage(0, 0).thousandths()), (855, 0));
        assert!(!when(0, 0).is_passed(usage(0, 0)));
    }

    #[test]
    fn what_is_measured() {
        let target = |kind, index, used: u64, disk| TargetSpace {
            kind,
            index,
            space: Some(SpaceValues {
                bytes_total: 100,
                bytes_free: 100 - used,
                bytes_available: 90 - used,
                disk,
                ..SpaceValues::default()
            }),
        };
        let targets = [
            target(Kind::Mdt, 0, 50, 0),
            target(Kind::Ost, 0, 10, 0),
            target(Kind::Ost, 1, 20, 7),
            target(Kind::Ost, 2, 20, 7),
            TargetSpace { kind: Kind::Ost, index: 3, space: None },
        ];
        let usage = |osts: &[u32]| usage_of(&targets, &osts.iter().copied().collect());
        assert_eq!(usage(&[0]), Some(Usage { used: 10, available: 80 }));
        assert_eq!(usage(&[0, 1, 3]), Some(Usage { used: 30, available: 150 }));
        // Two OSTs on one disk.
        assert_eq!(usage(&[1, 2]), Some(Usage { used: 20, available: 70 }));
        assert_eq!((usage(&[3]), usage(&[])), (None, None));
    }
}
