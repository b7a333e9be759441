//! What holds of locks at every moment, seen from outside: from what targets say that they have granted, and clients
//! that they hold.
//!
//! *Compatibility*: no byte that one session may change is granted to another one. *Sum of grants*: whatever a client
//! holds, its target believes it to hold: nobody would call back what the target has forgotten. The other way round
//! more may be granted than is held, for answers and cancels are on their way. The client is to have no change of its own
//! under way. Objects of files that are gone are left out: whoever held something of them is not told.

use std::collections::BTreeMap;

use client::Client;
use proto::{Fid, ObjectId, TargetId, TargetKind};
use server::{Held, Holding};

use crate::cluster::Cluster;

/// Checks what all targets have granted, and what the client of `node` holds of it; of objects, those of `files`.
/// Panics with what is wrong.
pub fn check(cluster: &Cluster, node: &str, client: &Client, files: &[Fid]) {
    let targets: BTreeMap<TargetId, Granted> = cluster.granted();
    for (target, granted) in &targets {
        if let Some((one, other)) = conflict(&granted.held) {
            panic!("{target} has granted both {one:?} and {other:?}");
        }
    }
    let mut held = client.admin().held();
    held.ranges.retain(|range| files.contains(&range.object.layout));
    for (target, session) in &held.sessions {
        let Some(granted) = targets.get(target).filter(|granted| granted.knows(*session)) else { continue };
        if let Some(what) = missing(*target, *session, granted, &held) {
            panic!("{node} holds {what}, and {target} does not know of it");
        }
    }
}

/// What one target has granted.
pub struct Granted {
    /// Its sessions, in order; none while clients still state what they held before a restart.
    pub sessions: Vec<u64>,
    /// What they hold, as the target believes.
    pub held: Vec<Held>,
}

impl Granted {
    fn knows(&self, session: u64) -> bool {
        self.sessions.binary_search(&session).is_ok()
    }
}

/// Two sessions that must not hold what they hold at the same time.
fn conflict(held: &[Held]) -> Option<(Held, Held)> {
    let mut ranges: Vec<(ObjectId, u64, &Held)> = Vec::new();
    for held in held {
        // Inode bits are shared.
        if let Holding::Range { object, start, .. } = held.what {
            ranges.push((object, start, held));
        }
    }
    ranges.sort_by_key(|(object, start, _)| (*object, *start));
    for (at, (object, _, one)) in ranges.iter().enumerate() {
        let Holding::Range { end, write, .. } = one.what else { continue };
        let rest = ranges.get(at + 1..).unwrap_or_default().iter();
        let overlapping = rest.take_while(|(other, start, _)| other == object && *start < end);
        for (_, _, other) in overlapping.filter(|(_, _, other)| other.session != one.session) {
            let Holding::Range { write: also, .. } = other.what else { continue };
            if write || also {
                return Some((**one, **other));
            }
        }
    }
    None
}

/// Something that the client holds in `session` and the target does not know of.
fn missing(target: TargetId, session: u64, granted: &Granted, held: &client::Held) -> Option<String> {
    let of_session = || granted.held.iter().filter(|held| held.session == session);
    if target.kind == TargetKind::Mdt {
        let known = |fid: Fid| {
            of_session().fold(0, |known, held| match held.what {
                Holding::Bits { fid: of, bits } if of == fid => known | bits,
                _ => known,
            })
        };
        let unknown = |(fid, bits): &&(Fid, u32)| *bits & !known(*fid) != 0;
        return held.bits.iter().find(unknown).map(|(fid, bits)| format!("bits {bits:#x} of {fid}"));
    }
    let ours = held.ranges.iter().filter(|range| target == range.target.into());
    let mut ours = ours.filter(|range| {
        let known: u64 = of_session()
            .map(|held| match held.what {
                Holding::Range { object, start, end, write }
                    if object == range.object && (write || !range.write) =>
                {
                    end.min(range.end).saturating_sub(start.max(range.start))
                }
                _ => 0,
            })
            .sum();
        known < range.end - range.start
    });
    ours.next().map(|range| format!("{range:?}"))
}

#[cfg(test)]
mod tests {
    use client::HeldRange;
    use proto::OstIndex;
    use proto::wire::messages::{LOCK_PERM, LOCK_UPDATE};

    use super::*;

    const OBJECT: ObjectId = ObjectId { layout: Fid::ROOT, stripe: 0 };

    fn range(session: u64, start: u64, end: u64, write: bool) -> Held {
        Held { session, what: Holding::Range { object: OBJECT, start, end, write } }
    }

    #[test]
    fn what_one_may_change_nobody_else_may_use() {
        assert_eq!(conflict(&[range(1, 0, 10, false), range(2, 5, 20, false), range(1, 20, 30, true)]), None);
        assert_eq!(conflict(&[range(1, 0, 10, true), range(1, 5, 20, false)]), None, "its own");
        assert!(conflict(&[range(1, 5, 20, true), range(2, 0, 6, false)]).is_some());
        assert!(
            conflict(&[range(1, 0, 100, false), range(2, 5, 6, false), range(3, 99, 100, true)]).is_some()
        );
    }

    #[test]
    fn what_is_held_is_known() {
        let granted = |held| Granted { sessions: vec![7], held };
        let ranges = |start, end, write| client::Held {
            ranges: vec![HeldRange { target: OstIndex(3).into(), object: OBJECT, start, end, write }],
            ..client::Held::default()
        };
        let ost = TargetId::ost(3);
        let both = granted(vec![range(7, 0, 10, true), range(7, 10, 20, false), range(8, 20, 30, true)]);
        assert_eq!(missing(ost, 7, &both, &ranges(5, 15, false)), None);
        assert!(missing(ost, 7, &both, &ranges(5, 15, true)).is_some(), "some of it only to read");
        assert!(missing(ost, 7, &both, &ranges(15, 25, false)).is_some(), "some of it is another one's");
        assert_eq!(missing(TargetId::ost(2), 7, &both, &ranges(5, 15, true)), None, "another target's");

        let bits = |bits| client::Held { bits: vec![(Fid::ROOT, bits)], ..client::Held::default() };
        let held = Held { session: 7, what: Holding::Bits { fid: Fid::ROOT, bits: LOCK_UPDATE } };
        assert_eq!(missing(TargetId::mdt(0), 7, &granted(vec![held]), &bits(LOCK_UPDATE)), None);
        assert!(missing(TargetId::mdt(0), 7, &granted(vec![held]), &bits(LOCK_UPDATE | LOCK_PERM)).is_some());
    }
}
