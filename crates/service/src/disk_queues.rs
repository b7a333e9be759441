//! The I/O schedulers of the disks below a target: reported when it starts, and set if an operator permits it.
//!
//! As in Lustre (`l_tunedisk`), but nothing is set of itself: a disk may serve others, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::TargetId;
use proto::parameters::{Parameter, SWITCH, TargetTree, Unit, switch};
use rt::queue::Queue;
use rt::{Dir, Rt};

/// What was seen last of the queues of the disks below a target.
pub(crate) struct DiskQueues {
    target: TargetId,
    dir: Dir,
    seen: Mutex<Vec<Queue>>,
    /// An operator permits that schedulers are set.
    may_tune: AtomicBool,
}

impl DiskQueues {
    pub(crate) fn new(target: TargetId, dir: Dir) -> DiskQueues {
        DiskQueues { target, dir, seen: Mutex::default(), may_tune: AtomicBool::new(false) }
    }

    /// Looks at the disks and writes into the log what they have.
    pub(crate) async fn report(&self) {
        self.look().await;
        for queue in self.seen.lock().iter() {
            let Queue { disk, scheduler, rotational, .. } = queue;
            tracing::info!(target = %self.target, disk, scheduler, rotational, "the queue of its disk");
            if !queue.is_suitable() {
                let suitable = queue.suitable();
                tracing::warn!(
                    target = %self.target, disk, scheduler, suitable,
                    "the I/O scheduler does not suit the disk; set tune_disk=1, or write the other one to /sys/block/DISK/queue/scheduler"
                );
            }
        }
    }

    /// Looks at the disks again: whoever looks at the target sees what they have now. Of disks that do not say there is nothing.
    pub(crate) async fn look(&self) {
        let seen = self.dir.queues().await.unwrap_or_default();
        *self.seen.lock() = seen;
    }

    /// Whether each disk had the scheduler that suits it when it was looked at last.
    pub(crate) fn are_suitable(&self) -> bool {
        self.seen.lock().iter().all(Queue::is_suitable)
    }

    /// Gives each disk the scheduler that suits it.
    async fn tune(&self) {
        self.look().await;
        let unsuited: Vec<Queue> =
            self.seen.lock().iter().filter(|queue| !queue.is_suitable()).cloned().collect();
        for queue in &unsuited {
            let (disk, before, scheduler) = (&queue.disk, &queue.scheduler, queue.suitable());
            match self.dir.set_scheduler(disk, scheduler).await {
                Ok(()) => {
                    tracing::info!(target = %self.target, disk, before, scheduler, "the I/O scheduler is set")
                }
                Err(error) => tracing::warn!(
                    target = %self.target, disk, scheduler, %error,
                    "the I/O scheduler is not set; write it to /sys/block/DISK/queue/scheduler as root"
                ),
            }
        }
        self.look().await;
    }

    pub(crate) fn parameters<'a>(self: &'a Arc<DiskQueues>, rt: &'a Rt, tree: &mut TargetTree<'a>) {
        let lines = || self.seen.lock().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        tree.of_disk(Parameter::text("io_scheduler", lines));
        let nonrotational = || u8::from(self.seen.lock().iter().all(|queue| !queue.rotational));
        tree.of_disk(Parameter::gauge("nonrotational", Unit::None, nonrotational));
        let may_tune = || u8::from(self.may_tune.load(Ordering::Relaxed));
        let permit = |text: &str| {
            let permitted = switch(text)?;
            self.may_tune.store(permitted, Ordering::Relaxed);
            if permitted {
                let queues = self.clone();
                rt.spawn(async move { queues.tune().await });
            }
            Ok(())
        };
        tree.of_disk(Parameter::gauge("tune_disk", Unit::None, may_tune).settable(SWITCH, permit));
    }
}
