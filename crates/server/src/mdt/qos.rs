//! How much room OSTs have, as far as new files go by it: full OSTs are passed over, and beyond a threshold those with more room have more
//! turns ([`turns`](super::turns); Lustre's QOS allocator).
//!
//! Nobody is asked while nothing is made. A create that finds what is known to be old (`qos_maxage`) has all OSTs asked behind it, and does
//! not wait for that. What comes of the answers is part of the stored order, so it changes only when they say something else than those by
//! which the order was made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::parameters::{Parameter, TargetTree, Unit};
use proto::wire::messages::{Space, Statfs};
use proto::{Code, OstIndex};
use rt::Time;
use rt::wait::join_all;

use super::allocate::Order;
use super::osts::Osts;
use super::place::Piece;
use super::turns::{Offer, Rule};

/// How old what is known may be, in seconds (Lustre's default for `qos_maxage`).
const MAXAGE_S: u32 = 5;
/// How long an OST may take to tell its space.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Most OSTs that are asked for one piece of a file.
const ASKED_MAX: usize = 256;
/// An OST is full when less than one part in so many of it can be written, and until it is twice that (Lustre's `reserved_mb_low`).
const FULL_PART: u64 = 1000;
/// An OST's part of the largest one's room has to change by more than one in so many for the order to change.
const NEWS_PART: u128 = 32;
/// What `qos_threshold_rr` and `qos_prio_free` take.
const PERCENT: &str = "write a number from 0 to 100, with or without a percent sign";
/// What `qos_maxage` takes.
const SECONDS: &str = "write seconds, 1 or more";

/// What an OST has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    /// Bytes that can still be written.
    free: u64,
    is_full: bool,
}

impl Room {
    fn new(space: &Space, was_full: bool) -> Room {
        let low = space.bytes_total / FULL_PART;
        let least = if was_full { low.saturating_mul(2) } else { low };
        let is_full = space.state & Space::FULL != 0 || space.bytes_available <= least;
        Room { free: space.bytes_available, is_full }
    }
}

/// The room of OSTs, and what new files make of it.
pub(super) struct Qos {
    state: Mutex<State>,
}

struct State {
    rule: Rule,
    maxage_s: u32,
    /// What OSTs said last.
    known: BTreeMap<OstIndex, Room>,
    /// What they said when the order was made.
    used: BTreeMap<OstIndex, Room>,
    /// When what is known is old.
    old_at: Time,
    is_asking: bool,
}

impl Default for Qos {
    fn default() -> Qos {
        let (known, used) = (BTreeMap::new(), BTreeMap::new());
        let (rule, maxage_s, old_at) = (Rule::DEFAULT, MAXAGE_S, Time(0));
        Qos { state: Mutex::new(State { rule, maxage_s, known, used, old_at, is_asking: false }) }
    }
}

impl Qos {
    /// Those that new files pass over.
    pub fn full(&self) -> Vec<OstIndex> {
        let state = self.state.lock();
        state.used.iter().filter(|(_, room)| room.is_full).map(|(ost, _)| *ost).collect()
    }

    /// `order` with the turns that OSTs have by their room; with those of `before` as long as none has said what it has.
    pub fn in_turns(&self, order: Order, before: &Order, servers: &BTreeMap<OstIndex, String>) -> Order {
        let state = self.state.lock();
        if state.used.is_empty() {
            return order.with_rounds_of(before);
        }
        let rule = state.rule;
        let offer = |ost: &OstIndex| Offer {
            ost: *ost,
            server: servers.get(ost).map_or("", String::as_str),
            free: state.used.get(ost).map(|room| room.free),
        };
        order.with_rounds(|_, osts| {
            let mut offers: Vec<Offer<'_>> = osts.iter().map(offer).collect();
            offers.sort_by_key(|offer| offer.ost);
            rule.round(&offers)
        })
    }

    /// How long an answer counts.
    pub fn maxage(&self) -> Duration {
        Duration::from_secs(u64::from(self.state.lock().maxage_s))
    }

    /// Whether somebody has to ask: what is known is old, and nobody asks yet.
    fn begin(&self, now: Time) -> bool {
        let mut state = self.state.lock();
        let begins = now >= state.old_at && !state.is_asking;
        state.is_asking |= begins;
        begins
    }

    /// Takes answers. Whether they say something new.
    fn end(&self, answers: &BTreeMap<OstIndex, Space>, now: Time) -> bool {
        let mut state = self.state.lock();
        for (ost, space) in answers {
            let was_full = state.known.get(ost).is_some_and(|room| room.is_full);
            state.known.insert(*ost, Room::new(space, was_full));
        }
        state.is_asking = false;
        state.old_at = now + Duration::from_secs(u64::from(state.maxage_s));
        let is_news = is_news(&state.used, &state.known);
        if is_news {
            state.used = state.known.clone();
        }
        is_news
    }

    /// What is known of OSTs that are there no more is forgotten.
    pub fn keep(&self, is_there: impl Fn(OstIndex) -> bool) {
        let mut state = self.state.lock();
        state.known.retain(|ost, _| is_there(*ost));
        state.used.retain(|ost, _| is_there(*ost));
    }
}

/// Whether an order that was made by `used` is another one by `known`.
fn is_news(used: &BTreeMap<OstIndex, Room>, known: &BTreeMap<OstIndex, Room>) -> bool {
    let most =
        |of: &BTreeMap<OstIndex, Room>| of.values().map(|room| u128::from(room.free)).max().unwrap_or(0);
    let (most_used, most_known) = (most(used).max(1), most(known).max(1));
    let differs = |(ost, room): (&OstIndex, &Room)| match used.get(ost) {
        Some(used) => {
            let (before, now) = (u128::from(used.free), u128::from(room.free));
            let scaled = (before * most_known).abs_diff(now * most_used);
            used.is_full != room.is_full || scaled > most_used * most_known / NEWS_PART
        }
        None => true,
    };
    known.iter().any(differs)
}

/// A number of percent.
fn percent(text: &str) -> Result<u64, Code> {
    let text = text.trim();
    let number = text.strip_suffix('%').unwrap_or(text);
    number.parse().ok().filter(|percent| *percent <= 100).ok_or(Code::Invalid)
}

impl Osts {
    /// Has the OSTs asked how much room they have, if that is not known well enough and there is a choice.
    pub(super) fn look_at_room(self: &Arc<Self>) {
        if !self.choice.qos.begin(self.rt().now()) {
            return;
        }
        let osts = self.clone();
        self.rt().spawn(async move {
            let there: Vec<OstIndex> = osts.table().osts().collect();
            let asked = if there.len() < 2 { &[][..] } else { &there };
            let Some(answers) = osts.stop().unless(osts.spaces_of(asked)).await else { return };
            if osts.choice.qos.end(&answers, osts.rt().now())
                && let Some(Err(error)) = osts.stop().unless(osts.reorder()).await
            {
                tracing::error!(%error, "which OSTs new files take by their room");
            }
        });
    }

    /// The OSTs that have no room for `piece`, as they say now: files that only grow make nothing by which somebody would have asked
    /// before. If those that it goes on with have room, nobody else is asked.
    pub(super) async fn lacking_room(&self, piece: &Piece) -> Vec<OstIndex> {
        let table = self.table();
        let pool = table.pool(&piece.pool);
        let is_choice = |ost: &OstIndex| {
            pool.is_none_or(|pool| pool.contains(ost)) && table.order.avoided().binary_search(ost).is_err()
        };
        let choice: Vec<OstIndex> = table.osts().filter(is_choice).take(ASKED_MAX).collect();
        let share = piece.share(choice.len());
        let lacks = |space: &Space| space.state & Space::FULL != 0 || space.bytes_available < share;
        let mut spaces = self.spaces_of(&piece.osts).await;
        if piece.osts.is_empty() || spaces.values().any(lacks) {
            let others: Vec<OstIndex> = choice.into_iter().filter(|ost| !piece.osts.contains(ost)).collect();
            spaces.extend(self.spaces_of(&others).await);
        }
        spaces.into_iter().filter(|(_, space)| lacks(space)).map(|(ost, _)| ost).collect()
    }

    /// The space of OSTs, as far as they tell it.
    pub(super) async fn spaces_of(&self, osts: &[OstIndex]) -> BTreeMap<OstIndex, Space> {
        let asked = osts.iter().map(|ost| async move {
            let import = self.import(*ost)?;
            let answered = self.rt().timeout(ANSWER_TIME, import.call(Statfs {})).await?;
            Some((*ost, answered.ok()?.reply))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// As Lustre has them, below `lod`.
    pub fn qos_parameters<'a>(self: &'a Arc<Osts>, tree: &mut TargetTree<'a>) {
        let shown =
            |percent: fn(&Rule) -> u64| move || format!("{}%", percent(&self.choice.qos.state.lock().rule));
        let threshold = Parameter::text("qos_threshold_rr", shown(|rule| rule.threshold_pct));
        tree.of_layouts(threshold.settable(PERCENT, |text: &str| {
            let threshold_pct = percent(text)?;
            self.set_rule(|rule| rule.threshold_pct = threshold_pct);
            Ok(())
        }));
        let prio = Parameter::text("qos_prio_free", shown(|rule| rule.prio_free_pct));
        tree.of_layouts(prio.settable(PERCENT, |text: &str| {
            let prio_free_pct = percent(text)?;
            self.set_rule(|rule| rule.prio_free_pct = prio_free_pct);
            Ok(())
        }));
        let maxage = Parameter::gauge("qos_maxage", Unit::Seconds, || self.choice.qos.state.lock().maxage_s);
        tree.of_layouts(maxage.settable(SECONDS, |text: &str| {
            let maxage_s = text.trim().parse().ok().filter(|seconds| *seconds > 0).ok_or(Code::Invalid)?;
            let mut state = self.choice.qos.state.lock();
            state.maxage_s = maxage_s;
            state.old_at = self.rt().now();
            Ok(())
        }));
        tree.of_layouts(Parameter::text("qos_ost_weights", || self.weights()));
    }

    fn set_rule(self: &Arc<Osts>, change: impl FnOnce(&mut Rule)) {
        change(&mut self.choice.qos.state.lock().rule);
        let osts = self.clone();
        self.rt().spawn(async move {
            if let Some(Err(error)) = osts.stop().unless(osts.reorder()).await {
                tracing::error!(%error, "which OSTs new files take by their room");
            }
        });
    }

    /// The turns of each OST in a round, and the room by which it has them.
    fn weights(&self) -> String {
        let table = self.table();
        let turns = table.order.round(None).map(|round| round.turns()).unwrap_or_default();
        let avoided: BTreeSet<OstIndex> = table.order.avoided().iter().copied().collect();
        let mut counts: BTreeMap<OstIndex, u64> = BTreeMap::new();
        turns.iter().for_each(|ost| *counts.entry(*ost).or_default() += 1);
        let state = self.choice.qos.state.lock();
        let line = |ost: OstIndex| {
            let weight = match turns.is_empty() {
                true => u64::from(!avoided.contains(&ost)),
                false => counts.get(&ost).copied().unwrap_or(0),
            };
            let avail = state.used.get(&ost).map_or(0, |room| room.free);
            format!("- {{ ost_idx: {}, tgt_weight: {weight}, tgt_avail: {avail} }}\n", ost.0)
        };
        table.osts().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(bytes_available: u64) -> Space {
        Space { bytes_total: 1_000_000, bytes_available, ..Space::default() }
    }

    fn answers(free: &[u64]) -> BTreeMap<OstIndex, Space> {
        (0..).map(OstIndex).zip(free.iter().map(|free| space(*free))).collect()
    }

    #[test]
    fn a_full_ost_has_to_have_some_room_again() {
        let is_full = |space: Space, was_full| Room::new(&space, was_full).is_full;
        assert!(is_full(space(1_000), false) && !is_full(space(1_001), false));
        assert!(is_full(space(2_000), true) && !is_full(space(2_001), true));
        assert!(is_full(Space { state: Space::FULL, ..space(500_000) }, false), "it says so");
        assert!(is_full(Space::default(), false));
    }

    #[test]
    fn only_news_make_another_order() {
        let qos = Qos::default();
        let now = Time(0);
        assert!(qos.begin(now) && !qos.begin(now), "one asks at a time");
        assert!(qos.end(&answers(&[500_000, 900_000]), now), "nothing was known");
        let later = now + Duration::from_secs(5);
        assert!(!qos.begin(now + Duration::from_secs(4)) && qos.begin(later));
        assert!(!qos.end(&answers(&[490_000, 880_000]), later), "it is about the same");
        assert!(!qos.end(&BTreeMap::new(), later), "nobody answers");
        assert!(qos.end(&answers(&[460_000, 880_000]), later), "one has less than it had");
        assert!(!qos.end(&answers(&[230_000, 440_000]), later), "each has half as much");
        assert_eq!(qos.full(), []);
        assert!(qos.end(&answers(&[900, 440_000]), later));
        assert_eq!(qos.full(), [OstIndex(0)]);
        assert!(!qos.end(&answers(&[1_900, 440_000]), later), "that is not enough");
        assert!(qos.end(&answers(&[2_100, 440_000]), later));
        assert_eq!(qos.full(), []);
        qos.keep(|ost| ost.0 > 0);
        assert!(qos.end(&answers(&[2_100, 440_000]), later), "it is another one");
    }

    #[test]
    fn percent_are_written_with_and_without_a_sign() {
        assert_eq!((percent("17"), percent("17%\n"), percent("100 ")), (Ok(17), Ok(17), Ok(100)));
        for wrong in ["", "%", "101", "-1", "17%%", "x"] {
            assert_eq!(percent(wrong), Err(Code::Invalid), "{wrong}");
        }
    }
}
