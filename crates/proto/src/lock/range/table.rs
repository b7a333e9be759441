//! All objects of a target of which something is held.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::object::{Object, Step};
use super::*;
use crate::lock::ages::{Ages, Stamp};
use crate::wire::messages::{ObjectRange, RangeRevoked};

/// When a session used what it holds of an object: what was used longest ago is called back first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Used {
    Now,
    Before,
}

/// What one session has in a table.
#[derive(Debug, Default)]
struct Session {
    /// Objects of which it holds something, and when it used them.
    objects: BTreeMap<ObjectId, Stamp>,
    /// Its requests that wait, and for which object.
    waiting: BTreeMap<u64, (ObjectId, Purpose)>,
    /// Callbacks for want of room that it has not answered.
    reclaims: usize,
}

impl Session {
    fn is_over(&self) -> bool {
        self.objects.is_empty() && self.waiting.is_empty() && self.reclaims == 0
    }

    fn has_room_for(&self, purpose: Purpose) -> bool {
        let waits = self.waiting.len();
        let uses = || self.waiting.values().filter(|(_, of)| *of == Purpose::Use).count();
        match purpose {
            Purpose::Hold => waits < WAITING_PER_SESSION_MAX,
            Purpose::Use => waits < USES_WAITING_PER_SESSION_MAX || uses() < USES_WAITING_PER_SESSION_MAX,
        }
    }
}

/// The held ranges of a target's objects. An object of which nothing is held costs nothing.
#[derive(Debug)]
pub struct Table {
    numbers: Arc<Numbers>,
    settings: Settings,
    objects: BTreeMap<ObjectId, Object>,
    sessions: BTreeMap<Holder, Session>,
    /// The objects of each session by their last use; they count for the ranges that it holds of them.
    ages: Ages<ObjectId>,
    /// Callbacks for want of room under way.
    reclaims: usize,
    /// Held ranges of all objects.
    ranges: usize,
    next_call: u64,
    /// Objects that are kept for their contention only, with the time when it was to end.
    fading: VecDeque<(u64, ObjectId)>,
    outputs: Vec<Output>,
}

impl Table {
    /// Nothing is held.
    pub fn new(numbers: Arc<Numbers>, settings: Settings) -> Table {
        Table {
            numbers,
            settings,
            objects: BTreeMap::new(),
            sessions: BTreeMap::new(),
            ages: Ages::new(settings.bounds),
            reclaims: 0,
            ranges: 0,
            next_call: 0,
            fading: VecDeque::new(),
            outputs: Vec::new(),
        }
    }

    /// Switches something from now on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.ages.set_bounds(settings.bounds);
    }

    /// What is switched how.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Somebody asks. `now` in nanoseconds; it never goes back.
    pub fn ask(&mut self, now: u64, object: ObjectId, ask: Ask) -> Answer {
        assert!(ask.range.start < ask.range.end, "who asks wants something");
        self.fade(now);
        let room = self.sessions.get(&ask.holder).is_none_or(|session| session.has_room_for(ask.purpose));
        let (known, ranges, objects) = (self.objects.contains_key(&object), self.ranges, self.objects.len());
        let (own, bounds) = (self.ages.weight_of(ask.holder.0), self.settings.bounds);
        let entry = self.objects.entry(object).or_default();
        let mut answer = None;
        if ask.purpose == Purpose::Hold {
            // What is not small cannot do without; mostly it takes the place of others.
            let is_small = ask.range.len() < SMALL_BYTES;
            let room = if is_small { 1 } else { 2 };
            let full = entry.held.len() >= room * RANGES_PER_OBJECT_MAX
                || ranges >= room * bounds.total.max
                || own >= room * bounds.session.max
                || (!known && objects >= room * OBJECTS_MAX);
            if full && !is_small {
                answer = Some(Answer::Full);
            } else if full || entry.is_hot(now, &ask) {
                entry.used_without(now, &ask);
                answer = Some(Answer::Contended);
            }
        }
        if answer.is_none() && (!room || entry.waiting() >= WAITING_PER_OBJECT_MAX) {
            answer = Some(Answer::Full);
        }
        if answer.is_none() {
            entry.arrive(ask);
            self.sessions.entry(ask.holder).or_default().waiting.insert(ask.id, (object, ask.purpose));
        }
        self.settle(now, object);
        answer.unwrap_or_else(|| self.answer_at_once(ask.id))
    }

    /// The answer to `id` if it is among the outputs already.
    fn answer_at_once(&mut self, id: u64) -> Answer {
        let is_it = |output: &Output| output.answers().is_some_and(|(of, _)| of == id);
        let Some(index) = self.outputs.iter().position(is_it) else { return Answer::Wait };
        match self.outputs.remove(index) {
            Output::Granted { token, .. } => Answer::Granted(token),
            Output::Contended { .. } => Answer::Contended,
            Output::Go { .. } | Output::Call(_) | Output::Reclaim(_) => Answer::Go,
        }
    }

    /// Somebody says what it held before the target restarted. `None` if another one said the same, or there is no
    /// room: then it counts as called back.
    pub fn restate(&mut self, object: ObjectId, ask: Ask) -> Option<Token> {
        // What was granted before is not refused for want of room.
        let full = self.ranges >= RESTATED_TIMES * self.settings.bounds.total.max
            || self.objects.len() >= RESTATED_TIMES * OBJECTS_MAX;
        let entry = self.objects.entry(object).or_default();
        let before = entry.held.len();
        let token = match full || before >= RESTATED_TIMES * RANGES_PER_OBJECT_MAX {
            true => None,
            false => entry.restate(&ask, &self.numbers),
        };
        self.ranges = self.ranges + entry.held.len() - before;
        self.index(object, ask.holder, Used::Now);
        self.leave(0, object);
        token
    }

    /// The access `id` is over.
    pub fn end_use(&mut self, now: u64, object: ObjectId, id: u64) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.end_use(id);
            self.settle(now, object);
        }
    }

    /// A callback was answered. It may be answered twice, or late: what was granted after it stays.
    pub fn answered(&mut self, now: u64, call: &Call, answer: RangeRevoked) {
        let Some(entry) = self.objects.get_mut(&call.object) else { return };
        let before = entry.held.len();
        entry.answered(call, answer);
        self.ranges = self.ranges + entry.held.len() - before;
        self.index(call.object, call.holder, Used::Before);
        self.settle(now, call.object);
    }

    /// A callback for want of room was answered, or will not be (`None`).
    pub fn reclaimed(&mut self, now: u64, reclaim: &Reclaim, answer: Option<RangeRevoked>) {
        let holder = reclaim.call.holder;
        self.reclaims -= 1;
        self.ages.answered(holder.0, reclaim.weight);
        if let Some(session) = self.sessions.get_mut(&holder) {
            session.reclaims = session.reclaims.saturating_sub(1);
            if session.is_over() {
                self.sessions.remove(&holder);
            }
        }
        if let Some(answer) = answer {
            self.answered(now, &reclaim.call, answer);
        }
    }

    /// A session gives a range up that nobody has asked back.
    pub fn cancelled(&mut self, now: u64, holder: Holder, range: &ObjectRange) {
        let Some(entry) = self.objects.get_mut(&range.object) else { return };
        let before = entry.held.len();
        entry.held.give_up(holder, Range { start: range.start, end: range.end }, range.number);
        self.ranges = self.ranges + entry.held.len() - before;
        self.index(range.object, holder, Used::Before);
        self.settle(now, range.object);
    }

    /// Nobody waits for the answer to request `id` any more.
    pub fn abandon(&mut self, now: u64, holder: Holder, id: u64) {
        let Some(session) = self.sessions.get_mut(&holder) else { return };
        let Some((object, _)) = session.waiting.remove(&id) else { return };
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.abandon(id);
        }
        self.index(object, holder, Used::Before);
        self.settle(now, object);
    }

    /// The session is over: it holds nothing, and waits for nothing. Gives its requests that waited.
    pub fn drop_session(&mut self, now: u64, holder: Holder) -> Vec<u64> {
        let Some(session) = self.sessions.remove(&holder) else { return Vec::new() };
        self.ages.end_session(holder.0).for_each(drop);
        let mut objects: Vec<ObjectId> = session.objects.into_keys().collect();
        objects.extend(session.waiting.values().map(|(object, _)| *object));
        for object in objects {
            let Some(entry) = self.objects.get_mut(&object) else { continue };
            let before = entry.held.len();
            entry.drop_holder(holder);
            self.ranges = self.ranges + entry.held.len() - before;
            self.settle(now, object);
        }
        session.waiting.into_keys().collect()
    }

    /// The object is no more: nothing of it is held.
    pub fn drop_object(&mut self, now: u64, object: ObjectId) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        self.ranges -= entry.held.len();
        for holder in entry.drop_all() {
            self.index(object, holder, Used::Before);
        }
        self.settle(now, object);
    }

    /// Sessions other than `except` that may have changed something of the object that it does not show yet.
    pub fn writers(&self, object: ObjectId, except: Holder) -> Vec<Holder> {
        self.objects.get(&object).map_or_else(Vec::new, |entry| entry.held.writers(except))
    }

    /// Whether `holder` holds all of `range`, to use it as `mode` says.
    pub fn holds(&self, object: ObjectId, holder: Holder, mode: Mode, range: Range) -> bool {
        self.objects.get(&object).is_some_and(|entry| entry.held.holds_all(holder, mode, range))
    }

    /// What is to be done now, in this order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.reclaim();
        std::mem::take(&mut self.outputs)
    }

    /// Calls back what is too much, in few callbacks at a time.
    fn reclaim(&mut self) {
        while self.reclaims < RECLAIMS_MAX && self.ages.has_excess() {
            let may_call = |session| {
                let session = self.sessions.get(&Holder(session));
                session.is_some_and(|session| session.reclaims < RECLAIMS_PER_SESSION_MAX)
            };
            let Some(excess) = self.ages.next_excess(may_call) else { return };
            let (object, holder, weight) = (excess.item, Holder(excess.session), excess.weight);
            let Some(session) = self.sessions.get_mut(&holder) else { return };
            let Some(stamp) = session.objects.get_mut(&object) else { return };
            self.ages.used(holder.0, stamp, weight);
            session.reclaims += 1;
            self.reclaims += 1;
            self.next_call += 1;
            // Above the numbers of all grants up to now.
            let (id, number) = (self.next_call, self.numbers.draw());
            let call = Call { id, object, holder, range: Range::ALL, number, keep_read: false };
            self.outputs.push(Output::Reclaim(Reclaim { call, weight }));
        }
    }

    /// Held ranges.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    /// Everything that is held.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.objects.keys().flat_map(|object| self.held_of(*object))
    }

    /// What one session holds.
    pub fn held_by(&self, holder: Holder) -> impl Iterator<Item = Held> {
        let objects = self.sessions.get(&holder).into_iter().flat_map(|session| session.objects.keys());
        objects.flat_map(|object| self.held_of(*object)).filter(move |held| held.holder == holder)
    }

    fn held_of(&self, object: ObjectId) -> impl Iterator<Item = Held> {
        let spans = self.objects.get(&object).into_iter().flat_map(|object| object.held.spans());
        spans.map(move |(span, write)| Held { object, holder: span.holder, range: span.range, write })
    }

    /// Requests that wait, and in whose name the target itself accesses something now.
    pub fn asks(&self) -> impl Iterator<Item = (ObjectId, Ask)> {
        self.objects.iter().flat_map(|(object, entry)| entry.asks().map(|ask| (*object, ask)))
    }

    /// Callbacks that were not answered yet.
    pub fn calls(&self) -> impl Iterator<Item = Call> {
        self.objects.values().flat_map(Object::calls)
    }

    /// Whether all of an object can be granted to a session at once, to be changed or to be read, without anybody being called back.
    pub fn is_free(&self, object: ObjectId, holder: Holder, mode: Mode) -> bool {
        let Some(object) = self.objects.get(&object) else { return true };
        let in_the_way = if mode.writes() {
            object.held.has_others(holder)
        } else {
            !object.held.writers(holder).is_empty()
        };
        object.is_quiet() && !in_the_way
    }

    /// Objects that cost memory.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Lets go on who can, and calls back who stands in the way.
    fn settle(&mut self, now: u64, object: ObjectId) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        let (before, from) = (entry.held.len(), self.outputs.len());
        entry.settle(&mut Step {
            now,
            object,
            numbers: &self.numbers,
            settings: self.settings,
            next_call: &mut self.next_call,
            outputs: &mut self.outputs,
        });
        self.ranges = self.ranges + entry.held.len() - before;
        for index in from..self.outputs.len() {
            let Some(Some((id, holder))) = self.outputs.get(index).map(Output::answers) else { continue };
            if let Some(session) = self.sessions.get_mut(&holder) {
                session.waiting.remove(&id);
            }
            self.index(object, holder, Used::Now);
        }
        self.leave(now, object);
    }

    /// Notes how much `holder` holds of the object, and whether that was used now.
    fn index(&mut self, object: ObjectId, holder: Holder, used: Used) {
        let weight = self.objects.get(&object).map_or(0, |entry| entry.held.ranges_of(holder));
        if weight > 0 {
            match self.sessions.entry(holder).or_default().objects.entry(object) {
                Entry::Vacant(free) => {
                    free.insert(self.ages.begin(holder.0, object, weight));
                }
                Entry::Occupied(mut stamp) if used == Used::Now => {
                    self.ages.used(holder.0, stamp.get_mut(), weight)
                }
                Entry::Occupied(stamp) => self.ages.weighs(holder.0, *stamp.get(), weight),
            }
        } else if let Some(session) = self.sessions.get_mut(&holder) {
            if let Some(stamp) = session.objects.remove(&object) {
                self.ages.end(holder.0, stamp);
            }
            if session.is_over() {
                self.sessions.remove(&holder);
            }
        }
    }

    /// Forgets the object if there is nothing to know of it.
    fn leave(&mut self, now: u64, object: ObjectId) {
        let Some(entry) = self.objects.get_mut(&object) else { return };
        entry.calm_down(now);
        if !entry.is_idle() {
            return;
        }
        match entry.fades_at() {
            None => {
                self.objects.remove(&object);
            }
            Some(at) => {
                if entry.begin_fading() {
                    self.fading.push_back((at, object));
                }
            }
        }
        if self.fading.len() > FADING_MAX {
            self.forget_oldest();
        }
    }

    /// Forgets objects whose contention has ended.
    fn fade(&mut self, now: u64) {
        while self.fading.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, object)) = self.fading.pop_front() else { break };
            if let Some(entry) = self.objects.get_mut(&object) {
                entry.end_fading();
                self.leave(now, object);
            }
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, object)) = self.fading.pop_front() else { return };
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.end_fading();
            if entry.is_idle() {
                self.objects.remove(&object);
            }
        }
    }
}

#[cfg(test)]
mod tests;
