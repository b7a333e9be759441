//! Who waits at the door: connections whose peers have not proved yet that they hold a key.
//!
//! There is room for so many in all, and for so many of one address. Who comes when there is none takes the place of who
//! has waited longest: a client says its word at once, and a stranger who says nothing keeps nobody out.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use rt::{Addr, Time};

use crate::event::Ended;
use crate::limits;

/// The room before one door.
pub(crate) struct Door {
    max: usize,
    of_address_max: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// By the order in which they came.
    all: BTreeMap<u64, (String, Ended)>,
    by_host: BTreeMap<String, BTreeSet<u64>>,
    next: u64,
}

/// A place before a door; given back when dropped.
pub(super) struct AtDoor<'a> {
    door: &'a Door,
    number: u64,
    /// Somebody else needs the place.
    pub(super) sent_away: Ended,
}

impl Door {
    pub(super) fn new(max: usize, of_address_max: usize) -> Door {
        Door { max, of_address_max, waiting: Mutex::default() }
    }

    /// A place for a connection from `peer`, and whether somebody had to go for it.
    pub(super) fn enter(&self, peer: &Addr) -> (AtDoor<'_>, bool) {
        let host = peer.0.rsplit_once(':').map_or(&*peer.0, |(host, _)| host);
        let mut waiting = self.waiting.lock();
        let of_host = waiting.by_host.get(host);
        let crowd = of_host.filter(|of_host| of_host.len() >= self.of_address_max);
        let oldest = match crowd {
            Some(of_host) => of_host.first().copied(),
            None if waiting.all.len() >= self.max => waiting.all.keys().next().copied(),
            None => None,
        };
        if let Some(oldest) = oldest
            && let Some(sent_away) = waiting.remove(oldest)
        {
            sent_away.end();
        }
        let number = waiting.next;
        waiting.next += 1;
        let sent_away = Ended::new();
        waiting.all.insert(number, (host.to_owned(), sent_away.clone()));
        waiting.by_host.entry(host.to_owned()).or_default().insert(number);
        (AtDoor { door: self, number, sent_away }, oldest.is_some())
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        let waiting = self.waiting.lock();
        assert_eq!(waiting.all.len(), waiting.by_host.values().map(BTreeSet::len).sum::<usize>());
        waiting.all.len()
    }
}

impl Waiting {
    fn remove(&mut self, number: u64) -> Option<Ended> {
        let (host, sent_away) = self.all.remove(&number)?;
        if let Some(of_host) = self.by_host.get_mut(&host) {
            of_host.remove(&number);
            if of_host.is_empty() {
                self.by_host.remove(&host);
            }
        }
        Some(sent_away)
    }
}

impl Drop for AtDoor<'_> {
    fn drop(&mut self) {
        self.door.waiting.lock().remove(self.number);
    }
}

/// A kind of line that strangers can cause: it is logged now and then, with how often it would have been.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<(Option<Time>, u64)>);

impl Seldom {
    /// Whether the line is to be logged at `now`: how many there were since the last, this one too.
    pub(super) fn due(&self, now: Time) -> Option<u64> {
        let mut state = self.0.lock();
        state.1 += 1;
        if state.0.is_some_and(|last| now - last < limits::STRANGERS_LOGGED_EVERY) {
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn addr(host: &str, port: usize) -> Addr {
        Addr(format!("{host}:{port}"))
    }

    #[test]
    fn a_crowd_from_one_address_keeps_out_nobody_but_itself() {
        let door = Door::new(10, 4);
        let (honest, _) = door.enter(&addr("10.0.0.1", 1));
        let crowd: Vec<_> = (0..100).map(|n| door.enter(&addr("10.0.0.2", n))).collect();
        assert!(!honest.sent_away.is_ended());
        assert_eq!(door.count(), 5);
        assert!(crowd[..96].iter().all(|(place, _)| place.sent_away.is_ended()));
        assert!(crowd[96..].iter().all(|(place, _)| !place.sent_away.is_ended()));
        assert!(crowd[..4].iter().all(|(_, pushed)| !pushed) && crowd[4..].iter().all(|(_, pushed)| *pushed));
        drop(crowd);
        assert_eq!(door.count(), 1);
    }

    #[test]
    fn who_comes_from_many_addresses_is_bounded_and_the_newest_is_let_in() {
        let door = Door::new(10, 4);
        let crowd: Vec<_> = (0..100).map(|n| door.enter(&addr(&format!("10.0.1.{n}"), 1))).collect();
        let (honest, _) = door.enter(&addr("10.0.0.1", 1));
        assert_eq!(door.count(), 10);
        assert!(!honest.sent_away.is_ended() && crowd[0].0.sent_away.is_ended());
        drop((honest, crowd));
        assert_eq!(door.count(), 0);
    }

    #[test]
    fn a_line_comes_now_and_then_with_a_count() {
        let seldom = Seldom::default();
        let at = |ms| Time(0) + Duration::from_millis(ms);
        assert_eq!(seldom.due(at(0)), Some(1));
        assert!((1..1000).all(|n| seldom.due(at(n)).is_none()));
        let later = limits::STRANGERS_LOGGED_EVERY.as_millis() as u64;
        assert_eq!(seldom.due(at(later)), Some(1000));
    }
}
