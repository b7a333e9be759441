//! What this client holds of each object, and what operations have pinned of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use proto::layout::Place;
use proto::second_chance::{Look, Round};
use proto::{DataTarget, Fid, Layout, ObjectId, Shards};
use rt::memory::Memory;
use rt::sync::Notify;

use super::grants::Grants;
use super::held::{Held, Progress};
use super::spaces::Spaces;
use super::unknown::Knowledge;
use crate::HeldRange;
use crate::order::{HELD, Mutex, OBJECTS};

/// Parts of the table that are locked apart.
const SHARDS: usize = 16;
/// Objects of which ranges are kept; beyond it those go that were not used lately.
const OBJECTS_MAX: usize = 1 << 16;
/// The same, however little memory there is.
const OBJECTS_MIN: usize = 1 << 10;
/// Memory that what is held of an object takes, about, in bytes.
const OBJECT_BYTES: u64 = 2048;
/// The part of the process's memory that is for it.
const MEMORY_PART: u64 = 16;
/// Objects that are looked at to find one that can go.
const LOOKED_AT_MAX: usize = 8;
/// Most that go for one that comes.
const LEAVING_MAX: usize = 2;

/// What this client holds of one object.
pub(crate) struct ObjectLocks {
    pub(super) id: ObjectId,
    /// The target that has it.
    pub(super) target: DataTarget,
    pub(crate) fid: Fid,
    pub(super) layout: Arc<Layout>,
    pub(super) held: Mutex<HELD, Held>,
    pub(super) changed: Notify,
    /// Used since somebody last looked for one that can go.
    pub(super) recent: AtomicBool,
    /// End of what the kernel's page cache may have, as an offset in the object.
    pub(super) kernel_end: AtomicU64,
    /// How often the OST has forgotten it, and the kernel has not dropped its pages yet.
    pub(super) lost: AtomicU32,
    /// Whether its target knows what is held.
    pub(super) knowledge: Knowledge,
}

#[derive(Default)]
struct Shard {
    objects: BTreeMap<ObjectId, Arc<ObjectLocks>>,
    order: Round<ObjectId>,
}

/// Everything that this client holds of objects.
pub(crate) struct Table {
    shards: Shards<Mutex<OBJECTS, Shard>, SHARDS>,
    /// The same, counted. Locked while a shard is, never the other way round.
    pub(crate) spaces: Spaces,
    /// Grows when an OST has forgotten what it granted: a grant of before counts no more.
    generation: AtomicU64,
    /// Up to which number the MDT has called something back.
    called: AtomicU64,
    /// Objects of which something is kept, at most.
    memory: Memory,
    pub(super) counters: Counters,
}

/// How often what happened, for statistics.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) asked: AtomicU64,
    pub(super) called_back: AtomicU64,
    pub(super) cancelled: AtomicU64,
    /// Objects granted with an answer about their file, and those answers that could not be used.
    pub(super) brought: AtomicU64,
    pub(super) brought_late: AtomicU64,
}

/// What one operation holds; given back when dropped.
#[derive(Default)]
pub(crate) struct Pins {
    pub(super) pins: Vec<Pin>,
    /// Objects that are to be read and written under a lock of the OST.
    pub(super) contended: Vec<ObjectId>,
    /// A page that the kernel writes back is not held any more.
    pub(crate) unlocked: bool,
    /// [`Table::generation`] when the operation began.
    generation: u64,
}

pub(super) struct Pin {
    pub(super) object: Arc<ObjectLocks>,
    pub(super) user: u64,
}

impl Pin {
    /// How far the operation is.
    pub(super) fn look(&self) -> Progress {
        self.object.held.lock().look(self.user)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.object.held.lock().done(self.user);
        self.object.changed.notify_waiters();
    }
}

impl Pins {
    /// Whether the OST has to lock what is done to this object.
    pub(crate) fn is_contended(&self, object: ObjectId) -> bool {
        self.contended.contains(&object)
    }

    pub(super) fn add(&mut self, pin: Pin) {
        self.pins.push(pin);
    }

    /// What all objects of a file are held with, if these are pins of all of them from their beginning to their end.
    pub(crate) fn grants(&self, layout: &Layout) -> Option<Grants> {
        if !self.is_complete() || self.pins.len() != layout.object_count() {
            return None;
        }
        let number = |pin: &Pin| pin.object.held.lock().whole_number(pin.user);
        let numbers = self.pins.iter().map(number).collect::<Option<_>>()?;
        Some(Grants::new(layout, numbers))
    }

    /// Whether somebody else waits for something of it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.pins.iter().any(|pin| pin.object.held.lock().is_called_back(pin.user))
    }

    /// Whether everything is held.
    pub(crate) fn is_complete(&self) -> bool {
        self.contended.is_empty() && !self.unlocked
    }
}

impl Table {
    /// Of a process with this memory.
    pub(crate) fn new(memory: Memory) -> Table {
        Table {
            memory,
            shards: Shards::default(),
            spaces: Spaces::default(),
            generation: AtomicU64::new(0),
            called: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    fn objects_max(&self) -> usize {
        let fits = usize::try_from(self.memory.bytes() / MEMORY_PART / OBJECT_BYTES).unwrap_or(OBJECTS_MAX);
        fits.clamp(OBJECTS_MIN, OBJECTS_MAX)
    }

    pub(crate) fn find(&self, id: ObjectId) -> Option<Arc<ObjectLocks>> {
        self.shards.of(&id).lock().objects.get(&id).cloned()
    }

    /// The MDT calls something back that it granted up to `number`. To be said before it is looked for.
    pub(super) fn note_called(&self, number: u64) {
        self.called.fetch_max(number, Ordering::SeqCst);
    }

    /// Up to which number the MDT has called anything back: what it granted with an answer that comes now may be gone already, if its
    /// number is not above. To be asked with the object in the table.
    pub(super) fn called(&self) -> u64 {
        self.called.load(Ordering::SeqCst)
    }

    /// The object's state, made if there is none; and those that should go to make room.
    pub(super) fn get(
        &self,
        place: Place,
        fid: Fid,
        layout: &Arc<Layout>,
    ) -> (Arc<ObjectLocks>, Vec<Arc<ObjectLocks>>) {
        let Place { object: id, target } = place;
        let mut shard = self.shards.of(&id).lock();
        if let Some(found) = shard.objects.get(&id) {
            found.recent.store(true, Ordering::Relaxed);
            return (found.clone(), Vec::new());
        }
        let object = Arc::new(ObjectLocks {
            id,
            target,
            fid,
            layout: layout.clone(),
            held: Mutex::default(),
            changed: Notify::new(),
            recent: AtomicBool::new(false),
            kernel_end: AtomicU64::new(0),
            lost: AtomicU32::new(0),
            knowledge: Knowledge::default(),
        });
        shard.add(object.clone());
        let mut leavers = Vec::new();
        if shard.objects.len() > self.objects_max() / SHARDS {
            leavers.extend(shard.oldest());
        }
        let too_many = self.spaces.add(target, id);
        drop(shard);
        if too_many > 0 {
            leavers.extend(self.unused(target, too_many.min(LEAVING_MAX), LOOKED_AT_MAX));
        }
        (object, leavers)
    }

    /// Up to `count` objects of an OST that nobody uses, and that were not used lately if there are such among the next
    /// `looks`.
    fn unused(&self, target: DataTarget, count: usize, looks: usize) -> Vec<Arc<ObjectLocks>> {
        let mut unused: Vec<Arc<ObjectLocks>> = Vec::new();
        for _ in 0..looks {
            if unused.len() == count {
                break;
            }
            let Some(object) = self.spaces.next(target).and_then(|id| self.find(id)) else { break };
            let is_idle = {
                let held = object.held.lock();
                held.is_idle() && !held.is_empty()
            };
            if !object.recent.swap(false, Ordering::Relaxed)
                && is_idle
                && !unused.iter().any(|other| other.id == object.id)
            {
                unused.push(object);
            }
        }
        unused
    }

    /// Objects of an OST that are too many, and that nobody uses.
    pub(crate) fn excess(&self, target: DataTarget) -> Vec<Arc<ObjectLocks>> {
        let too_many = self.spaces.too_many(target);
        self.unused(target, too_many, 2 * self.spaces.count(target))
    }

    /// Every object of an OST with its state.
    pub(crate) fn of(&self, target: DataTarget) -> Vec<Arc<ObjectLocks>> {
        self.spaces.objects(target).into_iter().filter_map(|id| self.find(id)).collect()
    }

    /// How many of them nobody uses now.
    pub(crate) fn unused_count(&self, target: DataTarget) -> usize {
        self.of(target).iter().filter(|object| object.held.lock().is_idle()).count()
    }

    /// Whether this client holds everything of an object from `start` on: nobody else can change how long it is.
    pub(crate) fn has_rest(&self, id: ObjectId, start: u64) -> bool {
        self.find(id).is_some_and(|object| object.held.lock().covers(start, u64::MAX))
    }

    /// Every object with its state.
    pub(crate) fn all(&self) -> Vec<Arc<ObjectLocks>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().objects.values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Whether any range is held or asked for.
    pub(crate) fn holds_any(&self) -> bool {
        let holds = |object: &Arc<ObjectLocks>| {
            let held = object.held.lock();
            !held.is_empty() || !held.is_idle()
        };
        self.shards.iter().any(|shard| shard.lock().objects.values().any(holds))
    }

    /// Every range that is held.
    pub(crate) fn held(&self) -> Vec<HeldRange> {
        let mut held = Vec::new();
        for object in self.all() {
            let (id, target, ranges) = (object.id, object.target, object.held.lock().all());
            let of = |(start, end, write)| HeldRange { target, object: id, start, end, write };
            held.extend(ranges.into_iter().map(of));
        }
        held
    }

    /// The state of each object that somebody uses, asks for or gives back: a line for each.
    pub(crate) fn waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for object in self.all() {
            let held = object.held.lock();
            if !held.is_idle() {
                lines.push(format!("{:?} of {}: {:?}", object.id, object.fid, *held));
            }
        }
        lines
    }

    /// Forgets the object if nothing of it is held.
    pub(super) fn forget_if_empty(&self, object: &Arc<ObjectLocks>) {
        let mut shard = self.shards.of(&object.id).lock();
        let empty = {
            let held = object.held.lock();
            held.is_idle() && held.is_empty()
        };
        // The table and the caller: nobody else is about to use it, for that takes the shard's lock.
        if empty && Arc::strong_count(object) <= 2 {
            shard.objects.remove(&object.id);
            self.spaces.remove(object.target, object.id);
        }
    }

    /// Number of objects of which anything is held, ranges asked for, callbacks, ranges given up unasked, objects granted with an answer
    /// about their file, and such answers that came too late.
    pub(crate) fn counts(&self) -> [u64; 6] {
        let objects: usize = self.shards.iter().map(|shard| shard.lock().objects.len()).sum();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { asked, called_back, cancelled, brought, brought_late } = &self.counters;
        let brought = [count(brought), count(brought_late)];
        [objects as u64, count(asked), count(called_back), count(cancelled), brought[0], brought[1]]
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Of an operation that begins.
    pub(super) fn no_pins(&self) -> Pins {
        Pins { generation: self.generation(), ..Pins::default() }
    }

    /// Whether no OST has forgotten anything since `pins` were taken.
    pub(crate) fn still_counts(&self, pins: &Pins) -> bool {
        self.generation() == pins.generation
    }

    /// An OST has forgotten what it granted.
    pub(super) fn forgotten(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Shard {
    fn add(&mut self, object: Arc<ObjectLocks>) {
        self.order.tidy(self.objects.len(), |id| self.objects.contains_key(id));
        self.order.push(object.id);
        self.objects.insert(object.id, object);
    }

    /// One that was not used lately. It stays until it has been given back.
    fn oldest(&mut self) -> Option<Arc<ObjectLocks>> {
        let id = self.order.find(LOOKED_AT_MAX, |id| match self.objects.get(&id) {
            None => Look::Gone,
            Some(object) if object.recent.swap(false, Ordering::Relaxed) => Look::Stays,
            Some(_) => Look::Found,
        })?;
        self.order.push(id);
        self.objects.get(&id).cloned()
    }
}
