//! One incarnation of one simulated machine.

use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::slab::Key;
use super::world::{Shared, World};
use super::{disk, net};
use crate::BoxFuture;
use crate::memory::Memory;
use crate::time::{Time, Wall};

/// 2023-11-14 22:13:20 UTC: when every world begins.
const WALL_START_SECS: i64 = 1_700_000_000;

/// A node's door to its world. Cheap to clone. When the node crashes, the handle is dead for ever: what is spawned
/// is dropped, sleeps never end, disk and network give errors.
#[derive(Clone)]
pub struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) id: u32,
    pub(super) incarnation: u32,
    pub(super) memory: Memory,
    pub(super) clock_offset: u64,
    pub(super) wall_offset: i64,
}

impl Node {
    /// The handle of a node as it is now.
    pub(super) fn of(shared: &Arc<Shared>, world: &World, id: u32) -> Node {
        let state = &world.machines.nodes[id as usize];
        Node {
            shared: shared.clone(),
            name: state.name.clone(),
            id,
            incarnation: state.incarnation,
            memory: state.memory.clone(),
            clock_offset: state.clock_offset,
            wall_offset: state.wall_offset,
        }
    }

    /// The memory of this incarnation.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this incarnation still lives.
    pub fn is_alive(&self) -> bool {
        self.shared.with(|world| world.machines.lives(self.id, self.incarnation))
    }

    /// Time of the node's own clock.
    pub fn now(&self) -> Time {
        Time(self.shared.now() + self.clock_offset)
    }

    /// Time of the node's own wall clock.
    pub fn wall(&self) -> Wall {
        let nanos = i128::from(self.shared.now()) + i128::from(self.wall_offset);
        let secs = nanos.div_euclid(1_000_000_000);
        Wall {
            secs: WALL_START_SECS + i64::try_from(secs).expect("a simulation lasts less than 2^63 seconds"),
            nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).expect("a remainder is below its divisor"),
        }
    }

    /// A microsecond for each turn that a task of the node had.
    pub fn processor_time(&self) -> Duration {
        Duration::from_micros(self.shared.with(|world| world.machines.stats(self.id).polls))
    }

    /// Waits until the node's clock shows `time`.
    pub async fn sleep_until(&self, time: Time) {
        self.sleep_until_ns(time.0.saturating_sub(self.clock_offset)).await;
    }

    /// The same on the world's clock.
    pub(super) fn sleep_until_ns(&self, time: u64) -> Sleep<'_> {
        Sleep { node: self, time, timer: None }
    }

    /// Runs `future` as a task of the node.
    #[track_caller]
    pub fn spawn(&self, future: BoxFuture<'static, ()>) {
        let location = Location::caller();
        let refused = self.shared.with(|world| world.spawn(self.id, self.incarnation, future, location));
        drop(refused);
    }

    /// Runs `work` here and now.
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        work()
    }

    /// Fills `bytes` from the node's own stream.
    pub fn random_bytes(&self, bytes: &mut [u8]) {
        self.shared.with(|world| world.machines.nodes[self.id as usize].rng.fill(bytes));
    }

    /// The node's disk.
    pub fn disk(&self) -> disk::Disk {
        disk::Disk::new(self.clone())
    }

    /// The node's network.
    pub fn net(&self) -> net::Net {
        net::Net::new(self.clone())
    }
}

/// Done at a moment of the world's clock. Dropping it gives the timer up.
pub(super) struct Sleep<'a> {
    node: &'a Node,
    time: u64,
    timer: Option<Key>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.get_mut();
        let node = sleep.node;
        if node.shared.now() >= sleep.time {
            return Poll::Ready(());
        }
        node.shared.with(|world| {
            if let Some(timer) = sleep.timer
                && world.machines.clock.update_timer(timer, cx.waker())
            {
                return;
            }
            if world.machines.lives(node.id, node.incarnation) {
                sleep.timer = Some(world.machines.clock.start_timer(node.id, sleep.time, cx.waker().clone()));
            }
        });
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.node.shared.with(|world| world.machines.clock.cancel_timer(timer));
        }
    }
}
