//! Numbered places that are used again; a key to what is gone finds nothing.

/// Names one value for ever: a place is used again under another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) index: u32,
    generation: u32,
}

impl Key {
    /// Finds nothing in any slab.
    pub(super) const NONE: Key = Key { index: u32::MAX, generation: u32::MAX };
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Inserts a value that knows its key.
    pub(super) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            let key = Key { index, generation: slot.generation };
            slot.value = Some(make(key));
            return key;
        }
        let index = u32::try_from(self.slots.len()).expect("a simulation has fewer than 2^32 things");
        assert!(index < u32::MAX, "the last index stands for nothing");
        let key = Key { index, generation: 0 };
        self.slots.push(Slot { generation: 0, value: Some(make(key)) });
        key
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }
}
