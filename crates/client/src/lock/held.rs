//! What this client holds of one object: its ranges, who uses them now, and what is being called back. Pure state.
//!
//! An operation registers what it needs ([`Held::want`]) and may go on once that is *pinned*: held, and not being
//! called back. A range that is called back is given up when nobody has it pinned. A grant is pinned for those who
//! wait for it in the same step in which it arrives, so a callback on its heels does not take it away unused.
//!
//! Fills of the kernel's page cache, and what it writes back, are pinned even while their range is called back: the
//! kernel holds the page's lock meanwhile, and the callback waits for that. A fill of what is not held waits, and the
//! callback leaves its pages alone ([`super::filling`]). So does one of a range that the kernel has filled again since it was made to
//! forget it ([`Held::insist`]): a program that looks at a mapping all the time would keep it for ever.

use std::collections::BTreeMap;

use proto::intervals::Intervals;
use proto::wire::messages::Token;

use super::ranges::Ranges;
use crate::Error;

/// Separate used parts that are remembered; beyond it neighbours are joined.
const USED_PARTS_MAX: usize = 256;
/// After so many callbacks in a row without a write in between, a reader is left all of the object to read: each of them costs a round trip and
/// parts what is held in two, and whoever does not write loses nothing.
const UNWRITTEN_MAX: u32 = 2;
/// The same for everything, if nothing was used in between. What the kernel has cached is lost then, and its use is not seen here.
const UNUSED_MAX: u32 = 16;
/// Callbacks that are remembered for grants behind them; beyond it they count as one for all that lies between.
const TAKEN_MAX: usize = 256;

/// What an operation needs of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    /// First byte.
    pub(super) start: u64,
    /// First byte behind it.
    pub(super) end: u64,
    /// Whether it will be changed.
    pub(super) write: bool,
    /// Whether the kernel holds pages locked for it.
    pub(super) pages: Pages,
}

/// Whether an operation is one of the kernel's page cache, which holds its pages locked until it has the answer. A
/// callback may be waiting for just those pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// It is an application's.
    No,
    /// Pages are filled.
    Fill,
    /// Pages that were changed through a mapping are written back: they were filled under a lock that covers them.
    WriteBack,
}

impl Want {
    fn is_kernel(&self) -> bool {
        self.pages != Pages::No
    }
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It may go on.
    Pinned,
    /// The range has to be asked for.
    Ask,
    /// It waits for an answer, or for the end of a callback.
    Wait,
    /// The target wants this I/O to be done under a lock of its own.
    Contended,
    /// The kernel writes back what is not held any more: that waits for nobody.
    Unlocked,
    /// The range cannot be had.
    Failed(Error),
}

impl Progress {
    fn is_over(self) -> bool {
        !matches!(self, Progress::Ask | Progress::Wait)
    }
}

#[derive(Debug)]
struct User {
    want: Want,
    state: Progress,
}

/// A range that is being given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) keep_read: bool,
}

/// The state of one object.
#[derive(Debug, Default)]
pub(super) struct Held {
    ranges: Ranges,
    users: BTreeMap<u64, User>,
    next_user: u64,
    leaving: Vec<Leaving>,
    /// Those of them for whose end fills wait.
    insisted: Vec<Leaving>,
    /// Ranges that were used since they were granted: what the kernel or the cache may have something of.
    used: Intervals<()>,
    /// Requests for ranges that were not answered yet.
    asking: Vec<(u64, Want)>,
    next_ask: u64,
    /// The highest number of all grants that came.
    newest: u64,
    /// Callbacks that came while ranges were asked for, each with its number: a grant that was made before one, and comes
    /// behind it, is without what that took.
    taken: Vec<Taken>,
    /// Fills and write-backs of the kernel's cache so far.
    by_kernel: u64,
    /// Callbacks since an operation last ended here, and since one that changed something did.
    unused: u32,
    unwritten: u32,
    /// Operations so far that were about to change something.
    writers: u64,
    /// Where the object ends, as long as it is held by a grant of this number and nothing was changed here.
    end: Option<(u64, u64)>,
}

/// A callback that counts for grants which come behind it.
#[derive(Debug, Clone, Copy)]
struct Taken {
    range: Leaving,
    /// Grants up to this number.
    number: u64,
    /// Requests up to this one.
    ask: u64,
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Held {
    /// Whether nothing is held, used, or asked for.
    pub(super) fn is_idle(&self) -> bool {
        self.users.is_empty() && self.leaving.is_empty() && self.asking.is_empty()
    }

    /// Whether no range is held.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether all of `[start, end)` may be read.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        self.ranges.covers(start, end, false)
    }

    /// Whether all of `[start, end)` may be read.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        self.ranges.covers(start, end, false)
    }

    /// The newest number of what is held, if the operation has pinned all of the object, and all of it may be changed.
    pub(super) fn whole_number(&self, user: u64) -> Option<u64> {
        let want = self.users.get(&user)?.want;
        let all = want.start == 0 && want.end == u64::MAX && self.ranges.covers(0, u64::MAX, true);
        all.then(|| self.ranges.number())
    }

    /// Number of separate ranges.
    pub(super) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Registers an operation; it has to call [`Held::done`] in the end.
    pub(super) fn want(&mut self, want: Want) -> u64 {
        self.next_user += 1;
        if want.write {
            self.writers += 1;
            self.end = None;
        }
        let state = self.progress(&want);
        self.users.insert(self.next_user, User { want, state });
        self.next_user
    }

    /// The same, if it can go on at once.
    pub(super) fn want_at_once(&mut self, want: Want) -> Option<u64> {
        (self.progress(&want) == Progress::Pinned).then(|| self.want(want))
    }

    /// How far the operation is now.
    pub(super) fn look(&mut self, user: u64) -> Progress {
        let Some(found) = self.users.get(&user) else { return Progress::Wait };
        if found.state.is_over() {
            return found.state;
        }
        let state = self.progress(&found.want.clone());
        if let Some(found) = self.users.get_mut(&user) {
            found.state = state;
        }
        state
    }

    fn progress(&self, want: &Want) -> Progress {
        let range = (want.start, want.end);
        let blocked = |leaving: &Leaving| {
            overlap(range, (leaving.start, leaving.end)) && (want.write || !leaving.keep_read)
        };
        if self.ranges.covers(want.start, want.end, want.write) {
            let waits = match want.pages {
                Pages::No => self.leaving.iter().any(blocked),
                Pages::Fill => {
                    self.insisted.iter().any(|leaving| overlap(range, (leaving.start, leaving.end)))
                }
                Pages::WriteBack => false,
            };
            return if waits { Progress::Wait } else { Progress::Pinned };
        }
        if want.pages == Pages::WriteBack {
            return Progress::Unlocked;
        }
        if self.leaving.iter().any(|leaving| overlap(range, (leaving.start, leaving.end))) {
            // A range must not be asked for again before it was given back: the two would not be told apart.
            return Progress::Wait;
        }
        let asked = |ask: &Want| ask.start <= want.start && ask.end >= want.end && (ask.write || !want.write);
        if self.asking.iter().any(|(_, ask)| asked(ask)) { Progress::Wait } else { Progress::Ask }
    }

    /// Whether something of what the operation has pinned is being called back: somebody else waits for its end.
    pub(super) fn is_called_back(&self, user: u64) -> bool {
        let Some(User { want, .. }) = self.users.get(&user) else { return false };
        self.leaving.iter().any(|leaving| overlap((want.start, want.end), (leaving.start, leaving.end)))
    }

    /// The range is being asked for; the number is for [`Held::granted`].
    pub(super) fn ask(&mut self, want: Want) -> u64 {
        self.next_ask += 1;
        self.asking.push((self.next_ask, want));
        self.next_ask
    }

    /// The answer to an ask: a range with its number. Whoever waited for it has it pinned afterwards.
    pub(super) fn granted(&mut self, ask: u64, (start, end): (u64, u64), write: bool, number: u64) {
        for (from, until, write) in self.not_taken((start, end, write), number) {
            self.ranges.grant(from, until, write, number);
        }
        self.newest = self.newest.max(number);
        self.asking.retain(|(known, _)| *known != ask);
        self.nothing_comes();
        self.settle();
    }

    /// What callbacks have left of a grant that they overtook.
    fn not_taken(&self, granted: (u64, u64, bool), number: u64) -> Vec<(u64, u64, bool)> {
        let mut parts = vec![granted];
        for taken in self.taken.iter().filter(|taken| number <= taken.number).map(|taken| taken.range) {
            let cut = |(start, end, write): (u64, u64, bool)| {
                let (from, until) = (start.max(taken.start), end.min(taken.end));
                if from >= until {
                    return vec![(start, end, write)];
                }
                let mut left = vec![(start, from, write), (until, end, write)];
                if taken.keep_read {
                    left.push((from, until, false));
                }
                left.retain(|(start, end, _)| start < end);
                left
            };
            parts = parts.into_iter().flat_map(cut).collect();
        }
        parts
    }

    /// Callbacks are remembered only as long as the answer to an earlier request may be behind them.
    fn nothing_comes(&mut self) {
        let first = self.asking.iter().map(|(ask, _)| *ask).min().unwrap_or(u64::MAX);
        self.taken.retain(|taken| first <= taken.ask);
    }

    /// The target would rather not grant: those who waited for just this go on without a lock.
    pub(super) fn contended(&mut self, ask: u64) {
        let Some(at) = self.asking.iter().position(|(known, _)| *known == ask) else { return };
        let (_, asked) = self.asking.swap_remove(at);
        self.nothing_comes();
        for user in self.users.values_mut() {
            let within = asked.start <= user.want.start && user.want.end <= asked.end;
            if within && !user.state.is_over() && asked.write == user.want.write {
                user.state = Progress::Contended;
            }
        }
    }

    /// The request failed; whoever waited for it is told. Without an error it is to be asked for again.
    pub(super) fn refused(&mut self, ask: u64, error: Option<Error>) {
        let Some(at) = self.asking.iter().position(|(known, _)| *known == ask) else { return };
        let (_, asked) = self.asking.swap_remove(at);
        self.nothing_comes();
        let Some(error) = error else { return };
        for user in self.users.values_mut() {
            if asked.start <= user.want.start && user.want.end <= asked.end && !user.state.is_over() {
                user.state = Progress::Failed(error);
            }
        }
    }

    /// Pins what waits and can go on.
    fn settle(&mut self) {
        let waiting: Vec<u64> =
            self.users.iter().filter(|(_, user)| !user.state.is_over()).map(|(id, _)| *id).collect();
        for id in waiting {
            self.look(id);
        }
    }

    /// The operation is over.
    pub(super) fn done(&mut self, user: u64) {
        let Some(user) = self.users.remove(&user) else { return };
        if user.state == Progress::Pinned {
            self.note_used(user.want.start, user.want.end);
        }
        // What is given back elsewhere does not begin again for it.
        let range = (user.want.start, user.want.end);
        let leaves = |leaving: &Leaving| overlap(range, (leaving.start, leaving.end));
        self.by_kernel += u64::from(user.want.is_kernel() && self.leaving.iter().any(leaves));
        self.unused = 0;
        if user.want.write {
            self.unwritten = 0;
        }
    }

    /// How often the kernel filled its cache or wrote back in a range that was leaving, so far.
    pub(super) fn by_kernel(&self) -> u64 {
        self.by_kernel
    }

    fn note_used(&mut self, start: u64, end: u64) {
        self.used.add(start..end);
        if self.used.len() > USED_PARTS_MAX {
            let first_two = self.used.iter().take(2).map(|(part, ())| part);
            if let Some(both) = first_two.reduce(|first, second| first.start..second.end) {
                self.used.add(both);
            }
        }
    }

    /// A callback for `[start, end)` came. `None`: nothing of it is held; otherwise what will be given back. `Some(None)`:
    /// a grant that somebody here waits for is on its way, and is better used first; look again when something has
    /// changed, and not for long: the answer may be lost, and what is asked for again waits for this callback.
    pub(super) fn call_back(
        &mut self,
        asked: Leaving,
        number: u64,
        trim: bool,
        may_wait: bool,
    ) -> Option<Option<Leaving>> {
        let coming = |(_, want): &(u64, Want)| overlap((want.start, want.end), (asked.start, asked.end));
        if may_wait && number > self.newest && self.asking.iter().any(coming) {
            return Some(None);
        }
        if !self.ranges.touches(asked.start, asked.end, number) {
            // The answer says that nothing is kept, reading neither: so the target frees it.
            self.take(Leaving { keep_read: false, ..asked }, number);
            return None;
        }
        let mut leaving = asked;
        if trim {
            let pinned = self.users.values().filter(|user| user.state == Progress::Pinned);
            let used: Vec<(u64, u64)> = pinned
                .map(|user| (user.want.start, user.want.end))
                .chain(self.used.iter().map(|(part, ())| (part.start, part.end)))
                .collect();
            let below = used.iter().filter(|(_, until)| *until <= asked.start).map(|(_, until)| *until);
            leaving.start = below.max().unwrap_or(0);
            let above = used.iter().filter(|(from, _)| *from >= asked.end).map(|(from, _)| *from);
            leaving.end = above.min().unwrap_or(u64::MAX);
            // What is used on both sides of a border stays out of it.
            let crosses = |at: u64| used.iter().any(|(from, until)| *from < at && at < *until);
            if crosses(asked.start) {
                leaving.start = asked.start;
            }
            if crosses(asked.end) {
                leaving.end = asked.end;
            }
        }
        if self.is_left_alone(asked.keep_read) {
            (leaving.start, leaving.end) = (0, u64::MAX);
        }
        // A grant that is on its way may be older than the newest that is here: it is without this too.
        self.take(leaving, self.number_of(&leaving, number));
        self.leaving.push(leaving);
        Some(Some(leaving))
    }

    /// Up to which number everything that was granted of `leaving` goes; at least `number`, that of the callback.
    pub(super) fn number_of(&self, leaving: &Leaving, number: u64) -> u64 {
        number.max(self.ranges.number_within(leaving.start, leaving.end))
    }

    /// Counts a callback: whether all that is held may go with what it asks for.
    fn is_left_alone(&mut self, keep_read: bool) -> bool {
        self.unused = self.unused.saturating_add(1);
        self.unwritten = self.unwritten.saturating_add(1);
        let enough = if keep_read { self.unwritten >= UNWRITTEN_MAX } else { self.unused >= UNUSED_MAX };
        enough && self.is_idle()
    }

    fn take(&mut self, range: Leaving, number: u64) {
        if self.asking.is_empty() {
            return;
        }
        let mut taken = Taken { range, number, ask: self.next_ask };
        if self.taken.len() >= TAKEN_MAX {
            // More is taken than was asked for: the target will find out.
            for old in self.taken.drain(..) {
                let (start, end) =
                    (taken.range.start.min(old.range.start), taken.range.end.max(old.range.end));
                taken.range = Leaving { start, end, keep_read: taken.range.keep_read && old.range.keep_read };
                taken.number = taken.number.max(old.number);
            }
        }
        self.taken.push(taken);
    }

    /// Whether somebody still uses what is to be given back.
    pub(super) fn is_used(&self, leaving: &Leaving, kernel_too: bool) -> bool {
        self.users.values().any(|user| {
            user.state == Progress::Pinned
                && (kernel_too || !user.want.is_kernel())
                && (user.want.write || !leaving.keep_read)
                && overlap((user.want.start, user.want.end), (leaving.start, leaving.end))
        })
    }

    /// Whether any of it may have been changed.
    pub(super) fn may_be_dirty(&self, leaving: &Leaving) -> bool {
        self.ranges.writes(leaving.start, leaving.end)
    }

    /// The kernel came in between while the range was being given back: fills that come now wait for the end of it.
    pub(super) fn insist(&mut self, leaving: &Leaving) {
        if !self.insisted.contains(leaving) {
            self.insisted.push(*leaving);
        }
    }

    /// The range is given back.
    pub(super) fn gave_back(&mut self, leaving: &Leaving) {
        self.ranges.give_up(leaving.start, leaving.end, leaving.keep_read);
        if !leaving.keep_read {
            self.used.cut(leaving.start..leaving.end, |()| true);
        }
        if let Some(at) = self.leaving.iter().position(|known| known == leaving) {
            self.leaving.swap_remove(at);
        }
        if !self.leaving.contains(leaving) {
            self.insisted.retain(|known| known != leaving);
        }
        self.settle();
    }

    /// Everything that is held, if nobody uses any of it: to be given up unasked. The caller tells the target.
    pub(super) fn leave_all(&mut self) -> Option<(Leaving, u64)> {
        if !self.is_idle() || self.ranges.is_empty() {
            return None;
        }
        let leaving = Leaving { start: 0, end: u64::MAX, keep_read: false };
        self.leaving.push(leaving);
        Some((leaving, self.ranges.number()))
    }

    /// The target restarted, and knows again what was stated to it: that is all that is held now.
    pub(super) fn restated(&mut self, tokens: &[Token]) {
        self.end = None;
        self.ranges.clear();
        for token in tokens {
            self.newest = self.newest.max(token.number);
            self.ranges.grant(token.start, token.end, token.write, token.number);
        }
    }

    /// Gives up every part of what is held that was never used: several clients use the object, and each would have to
    /// be asked back by itself. Gives the parts, and the highest number of all grants.
    pub(super) fn give_up_unused(&mut self) -> (Vec<(u64, u64)>, u64) {
        let number = self.ranges.number();
        let mut kept = self.used.clone();
        self.users.values().for_each(|user| kept.add(user.want.start..user.want.end));
        self.leaving.iter().for_each(|leaving| kept.add(leaving.start..leaving.end));
        let unused = self.ranges.all().flat_map(|(start, end, _)| kept.missing(start..end));
        let unused: Vec<(u64, u64)> = unused.map(|part| (part.start, part.end)).collect();
        for &(start, end) in &unused {
            self.ranges.give_up(start, end, false);
            // A grant that is on its way may be older than the newest that is here: it is without this too.
            self.take(Leaving { start, end, keep_read: false }, number);
        }
        (unused, number)
    }

    /// Operations so far that were about to change something.
    pub(super) fn writers(&self) -> u64 {
        self.writers
    }

    /// The same, if none of them is under way; and the highest number of what is held.
    pub(super) fn writers_so_far(&self) -> Option<(u64, u64)> {
        let none = self.users.values().all(|user| !user.want.write);
        none.then(|| (self.writers, self.ranges.number()))
    }

    /// An answer to what was sent here says that the object ends at `end`. It was asked for when all that was written here was sent, and
    /// so it was `before` ([`Held::writers_so_far`]). What was granted since others may have made longer.
    pub(super) fn ends(&mut self, end: u64, before: (u64, u64)) {
        let number = self.ranges.number();
        if (self.writers, number) == before {
            self.end = Some((number, end));
        }
    }

    /// A range came that was not asked for, with what the object holds up to `end` if that is told. Says whether that is so now: nothing
    /// was about to be changed here since there were `writers` ([`Held::writers`]), and all of it is held.
    pub(super) fn brought(
        &mut self,
        (start, until): (u64, u64),
        (write, number): (bool, u64),
        end: Option<u64>,
        writers: u64,
    ) -> bool {
        // What was granted in between others may have changed after this was read.
        let is_newest = number >= self.newest;
        let ask = self.ask(Want { start, end: until, write, pages: Pages::No });
        self.granted(ask, (start, until), write, number);
        if self.writers != writers || !is_newest {
            return false;
        }
        let Some(end) = end else { return true };
        self.end = Some((self.ranges.number(), end));
        self.end().is_some()
    }

    /// Where the object ends, if that is known and cannot have changed.
    pub(super) fn end(&self) -> Option<u64> {
        let (number, end) = self.end?;
        (self.ranges.number() == number && self.ranges.covers(0, u64::MAX, false)).then_some(end)
    }

    /// Nothing is held any more, if nothing was ever used; says whether.
    pub(super) fn drop_unused(&mut self) -> bool {
        let is_unused = self.is_idle() && self.used.is_empty();
        if is_unused {
            self.ranges.clear();
        }
        is_unused
    }

    /// The target knows nothing of what was held.
    pub(super) fn lost(&mut self) {
        self.end = None;
        self.ranges.clear();
        self.used.clear();
    }

    /// Every range: start, end, whether it may be changed.
    pub(super) fn all(&self) -> Vec<(u64, u64, bool)> {
        self.ranges.all().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(held: &mut Held, want: Want) -> (u64, Progress) {
        let user = held.want(want);
        (user, held.look(user))
    }

    fn want(start: u64, end: u64, write: bool) -> Want {
        Want { start, end, write, pages: Pages::No }
    }

    fn leaving(start: u64, end: u64) -> Leaving {
        Leaving { start, end, keep_read: false }
    }

    #[test]
    fn a_grant_is_used_before_it_is_called_back() {
        let mut held = Held::default();
        let (user, progress) = start(&mut held, want(0, 10, true));
        assert_eq!(progress, Progress::Ask);
        let ask = held.ask(want(0, 10, true));
        assert_eq!(start(&mut held, want(5, 6, false)).1, Progress::Wait, "the same answer will do");
        assert_eq!(held.call_back(leaving(3, 4), 1, false, true), Some(None), "it may be on its way");
        held.granted(ask, (0, u64::MAX), true, 1);
        let back = held.call_back(leaving(3, 4), 1, false, true).flatten().expect("it is held");
        assert_eq!(back, leaving(3, 4));
        assert!(held.is_used(&back, true) && held.look(user) == Progress::Pinned);
        assert_eq!(start(&mut held, want(3, 4, false)).1, Progress::Wait);
        assert_eq!(
            start(&mut held, want(20, 30, true)).1,
            Progress::Pinned,
            "only what is called back waits"
        );
        held.done(user);
        assert!(!held.is_used(&back, true));
        held.gave_back(&back);
        assert_eq!(start(&mut held, want(3, 4, false)).1, Progress::Ask);
        assert_eq!(held.call_back(leaving(3, 4), 1, false, true), None, "a late copy of the callback");
    }

    /// All of an object comes with its bytes, up to byte 7.
    fn brought(held: &mut Held, write: bool, number: u64, writers: u64) -> bool {
        held.brought((0, u64::MAX), (write, number), Some(7), writers)
    }

    /// Another client has made the object longer, and given that up: an answer of before does not know.
    #[test]
    fn what_was_granted_since_is_not_in_an_answer_of_before() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 10, true));
        held.granted(ask, (0, 10), true, 1);
        let before = held.writers_so_far().expect("nobody writes");
        let ask = held.ask(want(10, u64::MAX, false));
        held.granted(ask, (10, u64::MAX), false, 2);
        held.ends(10, before);
        assert_eq!(held.end(), None);
        let before = held.writers_so_far().expect("nobody writes");
        held.ends(20, before);
        assert_eq!(held.end(), Some(20));
        assert!(!brought(&mut held, true, 1, 0), "an answer that comes late");
    }

    #[test]
    fn what_is_brought_is_true_until_something_changes() {
        let mut held = Held::default();
        assert!(brought(&mut held, true, 1, 0));
        assert_eq!(held.end(), Some(7));
        let (user, progress) = start(&mut held, want(3, 4, false));
        assert_eq!((progress, held.end()), (Progress::Pinned, Some(7)), "whoever reads changes nothing");
        held.done(user);
        let (user, progress) = start(&mut held, want(3, 4, true));
        assert_eq!((progress, held.end()), (Progress::Pinned, None));
        held.done(user);
        assert!(!brought(&mut held, true, 2, 0), "it may be older than what is written here");
        assert_eq!(held.end(), None);
        let writers = held.writers();
        assert!(brought(&mut held, true, 3, writers));
        // Others change what is given up, if only a part.
        let back = held.call_back(leaving(100, 101), 3, false, false).flatten().expect("it is held");
        held.gave_back(&back);
        assert_eq!(held.end(), None);
        let ask = held.ask(want(100, 101, false));
        held.granted(ask, (100, 101), false, 4);
        assert_eq!(held.end(), None, "what comes later says nothing of it");
    }

    #[test]
    fn what_is_lost_says_nothing_of_the_end() {
        let mut held = Held::default();
        assert!(brought(&mut held, false, 1, 0));
        held.lost();
        assert_eq!(held.end(), None);
        held.restated(&[Token { number: 9, write: false, start: 0, end: u64::MAX, contended: false }]);
        assert_eq!(held.end(), None, "a server that restarted may have lost it");
    }

    #[test]
    fn a_grant_that_was_overtaken_is_without_what_was_given_up() {
        let mut held = Held::default();
        let (first, _) = start(&mut held, want(0, 10, false));
        let ask = held.ask(want(0, 10, false));
        held.granted(ask, (0, 100), false, 3);
        held.done(first);
        // The target answers the first with 5, the second with 7; the answers come the other way round.
        let (_, progress) = start(&mut held, want(50, 60, true));
        assert_eq!(progress, Progress::Ask);
        let late = held.ask(want(50, 60, true));
        start(&mut held, want(500, 600, true));
        let early = held.ask(want(500, 600, true));
        held.granted(early, (400, 1000), true, 7);
        assert_eq!(held.give_up_unused(), (vec![(10, 50), (60, 100), (400, 500), (600, 1000)], 7));
        held.granted(late, (0, 200), true, 5);
        assert_eq!(held.all(), [(0, 10, true), (50, 60, true), (100, 200, true), (500, 600, true)]);
    }

    #[test]
    fn readers_stay_while_only_the_right_to_change_is_wanted() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 10, true));
        held.granted(ask, (0, 10), true, 4);
        let (reader, _) = start(&mut held, want(0, 10, false));
        let asked = Leaving { keep_read: true, ..leaving(0, 10) };
        let back = held.call_back(asked, 9, false, true).flatten().expect("it is held");
        assert!(!held.is_used(&back, true));
        assert_eq!(start(&mut held, want(0, 1, true)).1, Progress::Wait);
        held.gave_back(&back);
        assert_eq!(held.look(reader), Progress::Pinned);
        assert_eq!(start(&mut held, want(0, 1, false)).1, Progress::Pinned);
        assert_eq!(start(&mut held, want(0, 1, true)).1, Progress::Ask);
    }

    #[test]
    fn the_kernel_passes_a_callback() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 4096, false));
        held.granted(ask, (0, 4096), false, 1);
        let back = held.call_back(leaving(0, 4096), 1, false, true).flatten().expect("it is held");
        let fill = Want { pages: Pages::Fill, ..want(0, 4096, false) };
        let (user, progress) = start(&mut held, fill);
        assert_eq!(progress, Progress::Pinned);
        assert!(held.is_used(&back, true) && !held.is_used(&back, false));
        // One that needs more than is held waits: its pages are left alone by the callback.
        let wide = Want { end: 8192, ..fill };
        assert_eq!(start(&mut held, wide).1, Progress::Wait);
        held.done(user);
        held.gave_back(&back);
        assert_eq!(start(&mut held, fill).1, Progress::Ask);
        let ask = held.ask(want(0, 4096, false));
        held.granted(ask, (0, 4096), false, 2);
        let (waiting, progress) = start(&mut held, wide);
        assert_eq!(progress, Progress::Ask);
        held.call_back(leaving(0, 4096), 2, false, true).flatten().expect("it is held");
        assert_eq!(held.look(waiting), Progress::Wait);
        let back = Want { pages: Pages::WriteBack, ..want(8192, 12288, true) };
        assert_eq!(start(&mut held, back).1, Progress::Unlocked, "a write-back waits for nobody");
    }

    #[test]
    fn the_kernel_passes_a_callback_once() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 8192, true));
        held.granted(ask, (0, 8192), true, 1);
        let back = held.call_back(leaving(0, 4096), 1, false, true).flatten().expect("it is held");
        let fill = Want { pages: Pages::Fill, ..want(0, 4096, false) };
        let (user, progress) = start(&mut held, fill);
        assert_eq!(progress, Progress::Pinned);
        held.insist(&back);
        held.insist(&back);
        assert_eq!(held.look(user), Progress::Pinned, "it is on its way");
        let (waiting, progress) = start(&mut held, fill);
        assert_eq!(progress, Progress::Wait);
        let beside = Want { start: 4096, end: 8192, ..fill };
        assert_eq!(start(&mut held, beside).1, Progress::Pinned);
        let write_back = Want { pages: Pages::WriteBack, ..want(0, 4096, true) };
        let (writes, progress) = start(&mut held, write_back);
        assert_eq!(progress, Progress::Pinned, "a write-back waits for nobody");
        held.done(user);
        held.done(writes);
        assert!(!held.is_used(&back, true), "nobody waits for a fill that waits");
        held.gave_back(&back);
        assert_eq!(held.look(waiting), Progress::Ask);
        let ask = held.ask(want(0, 4096, true));
        held.granted(ask, (0, 4096), true, 2);
        assert_eq!(held.look(waiting), Progress::Pinned);
        held.call_back(leaving(0, 4096), 2, false, true).flatten().expect("it is held");
        assert_eq!(start(&mut held, fill).1, Progress::Pinned, "that is another callback");
    }

    #[test]
    fn what_was_not_used_is_trimmed() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 100, true));
        held.granted(ask, (0, u64::MAX), true, 1);
        for from in [0, 200] {
            let (user, _) = start(&mut held, want(from, from + 100, true));
            held.done(user);
        }
        let back = held.call_back(leaving(120, 130), 1, true, true).flatten().expect("it is held");
        assert_eq!(back, leaving(100, 200));
        held.gave_back(&back);
        let back = held.call_back(leaving(350, 360), 1, true, true).flatten().expect("it is held");
        assert_eq!(back, leaving(300, u64::MAX));
        held.gave_back(&back);
        let back = held.call_back(leaving(50, 60), 1, true, true).flatten().expect("it is held");
        assert_eq!(back, leaving(50, 60), "what was used around it stays");
    }

    #[test]
    fn holes_between_used_parts_are_given_up_together() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 10, true));
        held.granted(ask, (0, u64::MAX), true, 7);
        for from in [0, 20, 40] {
            let (user, _) = start(&mut held, want(from, from + 10, true));
            held.done(user);
        }
        let (user, _) = start(&mut held, want(60, 70, false));
        let (unused, number) = held.give_up_unused();
        assert_eq!((unused, number), (vec![(10, 20), (30, 40), (50, 60), (70, u64::MAX)], 7));
        assert_eq!(start(&mut held, want(45, 50, true)).1, Progress::Pinned);
        assert_eq!(start(&mut held, want(10, 11, true)).1, Progress::Ask);
        assert_eq!(held.look(user), Progress::Pinned);
        assert_eq!(held.give_up_unused().0, []);
    }

    /// A client had written a file, and another one read it at random: each read was a callback for just its range.
    #[test]
    fn who_writes_no_more_lets_others_read_all() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 1000, true));
        held.granted(ask, (0, u64::MAX), true, 1);
        let (user, _) = start(&mut held, want(0, 1000, true));
        held.done(user);
        let read = |from| Leaving { keep_read: true, ..leaving(from, from + 10) };
        let back = held.call_back(read(500), 1, false, true).flatten().expect("it is held");
        assert_eq!(back, read(500), "it may be at it still");
        held.gave_back(&back);
        let (user, _) = start(&mut held, want(0, 10, true));
        held.done(user);
        let back = held.call_back(read(700), 1, false, true).flatten().expect("it is held");
        assert_eq!(back, read(700), "it is");
        held.gave_back(&back);
        let (user, _) = start(&mut held, want(0, 10, false));
        let back = held.call_back(read(100), 1, false, true).flatten().expect("it is held");
        assert_eq!(back, read(100), "somebody reads");
        held.gave_back(&back);
        held.done(user);
        let back = held.call_back(read(200), 1, false, true).flatten().expect("it is held");
        assert_eq!(back, Leaving { keep_read: true, ..leaving(0, u64::MAX) });
        held.gave_back(&back);
        assert!(held.covers(0, u64::MAX) && held.range_count() == 1);
        assert_eq!(start(&mut held, want(0, 10, true)).1, Progress::Ask);
    }

    #[test]
    fn who_uses_nothing_any_more_gives_everything_up() {
        let mut held = Held::default();
        let ask = held.ask(want(0, 1000, true));
        held.granted(ask, (0, u64::MAX), true, 1);
        let mut last = leaving(0, 0);
        for n in 0..u64::from(UNUSED_MAX) {
            assert!(!held.is_empty());
            last = held.call_back(leaving(n * 10, n * 10 + 5), 1, false, true).flatten().expect("it is held");
            held.gave_back(&last);
        }
        assert_eq!(last, leaving(0, u64::MAX));
        assert!(held.is_empty());
    }

    #[test]
    fn used_parts_are_joined() {
        let mut held = Held::default();
        for part in [(0, 10), (20, 30), (10, 20), (5, 25)] {
            held.note_used(part.0, part.1);
        }
        assert_eq!(held.used.iter().collect::<Vec<_>>(), [(0..30, ())]);
        for n in 0..1000 {
            held.note_used(100 + n * 10, 105 + n * 10);
        }
        assert!(held.used.len() <= USED_PARTS_MAX);
        held.used.cut(0..u64::MAX, |()| true);
        assert!(held.used.is_empty());
    }

    #[test]
    fn contended_users_go_without() {
        let mut held = Held::default();
        let (user, _) = start(&mut held, want(0, 10, true));
        let (reader, _) = start(&mut held, want(0, 10, false));
        let ask = held.ask(want(0, 10, true));
        held.contended(ask);
        assert_eq!(held.look(user), Progress::Contended);
        assert_eq!(held.look(reader), Progress::Ask);
    }

    /// Two clients begin a file at the same time: the first one was granted all of it, and the callback for the
    /// second one came before it knew.
    #[test]
    fn a_grant_comes_without_what_a_callback_took_before_it() {
        let mut held = Held::default();
        let (user, _) = start(&mut held, want(100, 110, true));
        let ask = held.ask(want(100, 110, true));
        assert_eq!(held.call_back(leaving(0, 10), 7, true, true), None, "nothing of it is wanted here");
        let keep = Leaving { keep_read: true, ..leaving(20, 30) };
        assert_eq!(held.call_back(keep, 7, true, true), None, "so the answer is that nothing is kept");
        held.granted(ask, (0, u64::MAX), true, 7);
        assert_eq!(held.look(user), Progress::Pinned);
        assert_eq!(start(&mut held, want(0, 10, false)).1, Progress::Ask);
        assert_eq!(start(&mut held, want(20, 30, false)).1, Progress::Ask, "the target freed it");
        assert_eq!(start(&mut held, want(30, 40, true)).1, Progress::Pinned);
        let ask = held.ask(want(0, 10, true));
        held.granted(ask, (0, 10), true, 8);
        assert_eq!(start(&mut held, want(0, 10, true)).1, Progress::Pinned, "it was granted after that");
    }

    /// The answer was lost, and what is asked for again waits for who called back: somebody has to go first.
    #[test]
    fn a_callback_does_not_wait_for_ever() {
        let mut held = Held::default();
        let (user, _) = start(&mut held, want(0, 10, true));
        let ask = held.ask(want(0, 10, true));
        assert_eq!(held.call_back(leaving(0, 10), 7, true, true), Some(None));
        assert_eq!(held.call_back(leaving(0, 10), 7, true, false), None);
        held.granted(ask, (0, 10), true, 7);
        assert_eq!(held.look(user), Progress::Ask, "that grant was given back");
        let ask = held.ask(want(0, 10, true));
        held.granted(ask, (0, 10), true, 9);
        assert_eq!(held.look(user), Progress::Pinned);
        assert!(held.taken.is_empty());
        let ask = held.ask(want(20, 30, true));
        let back = held.call_back(leaving(25, 26), 9, false, true);
        assert_eq!(back, None, "all grants up to this number have come");
        held.refused(ask, None);
    }
}
