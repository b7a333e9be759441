//! `degraded` and `no_create`: an operator has new files keep away from this OST, for it is slow, or its disks are being rebuilt; or
//! because it is going to be taken away.
//!
//! The MGS is told, and tells the MDTs with the configuration; nobody asks for it again and again. As in Lustre it ends when the target is
//! started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::parameters::{Parameter, SWITCH, TargetTree, Unit, switch};
use proto::wire::messages::{MarkTarget, Space};
use proto::{ClientId, TargetId};
use rpc::Import;
use rt::Rt;
use service::{Env, Stop};

/// The mark, and who has to know of it.
pub(super) struct Degraded(Arc<Inner>);

struct Inner {
    rt: Rt,
    stop: Stop,
    mgs: Option<Arc<Import>>,
    target: TargetId,
    uuid: ClientId,
    degraded: AtomicBool,
    no_create: AtomicBool,
    /// A task tells the MGS.
    telling: AtomicBool,
}

impl Degraded {
    pub fn new(env: &Env) -> Degraded {
        let label = env.store.label();
        Degraded(Arc::new(Inner {
            rt: env.rt.clone(),
            stop: env.stop.clone(),
            mgs: env.mgs.clone(),
            target: label.target,
            uuid: label.uuid,
            degraded: AtomicBool::new(false),
            no_create: AtomicBool::new(false),
            telling: AtomicBool::new(false),
        }))
    }

    /// What there is of [`Space::DEGRADED`] and [`Space::NO_CREATE`].
    pub fn state(&self) -> u32 {
        let of = |mark: &AtomicBool, bit| if mark.load(Ordering::Acquire) { bit } else { 0 };
        of(&self.0.degraded, Space::DEGRADED) | of(&self.0.no_create, Space::NO_CREATE)
    }

    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        for (name, mark) in [("degraded", &self.0.degraded), ("no_create", &self.0.no_create)] {
            let is_on = Parameter::gauge(name, Unit::None, || u8::from(mark.load(Ordering::Acquire)));
            tree.of_device(is_on.settable(SWITCH, |text: &str| {
                mark.store(switch(text)?, Ordering::Release);
                if !self.0.telling.swap(true, Ordering::AcqRel) {
                    self.0.rt.spawn(self.0.clone().tell());
                }
                Ok(())
            }));
        }
    }
}

impl Inner {
    fn is_avoided(&self) -> bool {
        self.degraded.load(Ordering::Acquire) || self.no_create.load(Ordering::Acquire)
    }

    /// Tells the MGS, until it knows how it is now.
    async fn tell(self: Arc<Inner>) {
        loop {
            let degraded = self.is_avoided();
            if let Some(mgs) = &self.mgs {
                let mark = MarkTarget { target: self.target, uuid: self.uuid, degraded };
                match self.stop.unless(mgs.call(mark)).await {
                    None => return,
                    Some(Err(error)) => {
                        tracing::warn!(target = %self.target, %error, "the MGS does not take the mark: new files come as before");
                    }
                    Some(Ok(_)) => {}
                }
            }
            self.telling.store(false, Ordering::Release);
            let is_old = self.is_avoided() != degraded;
            // Who sets it from now on tells it itself.
            if !is_old || self.telling.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
