//! The time of a simulated world, and what will happen when.

use std::cmp::Ordering as Compare;
use std::collections::BinaryHeap;
use std::task::Waker;

use super::options::Options;
use super::slab::{Key, Slab};

/// What happens when its time has come.
pub(super) enum Event {
    Timer(Key),
    Flight(Key),
    Disk(Key),
}

/// What comes next.
pub(super) enum Next {
    Event(Event),
    /// The next event lies behind the limit; time stands at the limit.
    Limit,
    /// Nothing will ever happen.
    Nothing,
}

/// The time, and everything that is to come.
pub(super) struct Clock {
    now: u64,
    polls_at_instant: u64,
    sequence: u64,
    heap: BinaryHeap<Entry>,
    /// Entries of the heap whose timer was given up.
    dead_timers: usize,
    timers: Slab<Timer>,
}

/// Somebody who waits for a time.
pub(super) struct Timer {
    pub(super) node: u32,
    pub(super) waker: Waker,
}

struct Entry {
    time: u64,
    sequence: u64,
    event: Event,
}

impl Clock {
    /// Time 0; nothing is to come.
    pub(super) fn new() -> Clock {
        Clock {
            now: 0,
            polls_at_instant: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            dead_timers: 0,
            timers: Slab::new(),
        }
    }

    /// The time.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Notices a world that runs in circles without time passing.
    pub(super) fn count_poll(&mut self, options: &Options) {
        self.polls_at_instant += 1;
        assert!(
            self.polls_at_instant <= options.polls_per_instant_max,
            "no progress: {} polls at {} ns, seed {}",
            self.polls_at_instant,
            self.now,
            options.seed
        );
    }

    /// Lets `event` happen at `time`; behind what was scheduled before for the same time.
    pub(super) fn schedule(&mut self, time: u64, event: Event) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Entry { time: time.max(self.now), sequence, event });
    }

    /// Lets time pass up to the next event, but not beyond `limit`.
    pub(super) fn next(&mut self, limit: u64) -> Next {
        while let Some(next) = self.heap.peek() {
            if let Event::Timer(key) = next.event
                && self.timers.get(key).is_none()
            {
                self.heap.pop();
                self.dead_timers -= 1;
                continue;
            }
            if next.time > limit {
                self.pass_time(limit);
                return Next::Limit;
            }
            let entry = self.heap.pop().expect("it was just seen");
            self.pass_time(entry.time);
            return Next::Event(entry.event);
        }
        Next::Nothing
    }

    fn pass_time(&mut self, time: u64) {
        assert!(time >= self.now, "time never goes back");
        if time > self.now {
            self.now = time;
            self.polls_at_instant = 0;
        }
    }

    /// The timer of an event that has come.
    pub(super) fn strike(&mut self, key: Key) -> Timer {
        self.timers.remove(key).expect("dead timers were skipped")
    }

    /// Starts a timer of `node`.
    pub(super) fn start_timer(&mut self, node: u32, time: u64, waker: Waker) -> Key {
        let key = self.timers.insert(Timer { node, waker });
        self.schedule(time, Event::Timer(key));
        key
    }

    /// Sets who is woken; false if the timer has struck.
    pub(super) fn update_timer(&mut self, key: Key, waker: &Waker) -> bool {
        match self.timers.get_mut(key) {
            Some(timer) => {
                timer.waker.clone_from(waker);
                true
            }
            None => false,
        }
    }

    /// Gives a timer up. Its entry stays in the heap until too many are dead.
    pub(super) fn cancel_timer(&mut self, key: Key) {
        if self.timers.remove(key).is_none() {
            return;
        }
        self.dead_timers += 1;
        if self.dead_timers > 1_024 && self.dead_timers * 2 > self.heap.len() {
            let timers = &self.timers;
            self.heap.retain(|entry| match entry.event {
                Event::Timer(key) => timers.get(key).is_some(),
                _ => true,
            });
            self.dead_timers = 0;
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Compare> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Entry) -> Compare {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}
