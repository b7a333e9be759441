//! Checks of a file system that is in use: `lctl lfsck_start` (`docs/operations.md#lfsck`).
//!
//! The MDT knows which objects there are to be, so it asks each target which there are. [`namespace`]: whether the MDT's own keys fit
//! together. [`objects`]: walks along files and objects; [`claims`]: which belong together. One check goes on at a time. Nothing of it
//! is stored: after a restart it begins from the start.

mod claims;
pub mod namespace;
mod objects;
mod order;
mod report;
#[cfg(test)]
pub mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::Code;
use proto::parameters::{Parameter, TargetTree};
use rt::Rt;
use rt::sync::Notify;
use service::Stop;

use super::Mdt;
use order::{Check, Order};
use report::{Findings, PARTS, Phase, Status};

/// Keys that are read in one go.
const KEYS_AT_A_TIME: usize = 2048;
/// Pause between two goes: requests come first.
const PAUSE: Duration = Duration::from_millis(1);

/// The checks of an MDT.
pub struct Lfsck {
    rt: Rt,
    state: Mutex<State>,
    /// There is an order.
    ordered: Notify,
}

#[derive(Default)]
struct State {
    order: Option<Order>,
    namespace: Phase,
    layout: Phase,
    findings: Findings,
}

/// Why a check ended early.
enum End {
    /// Somebody stops it, or the target.
    Stopped,
    /// In a sentence.
    Failed(String),
}

impl From<store::StoreError> for End {
    fn from(error: store::StoreError) -> End {
        End::Failed(match error {
            store::StoreError::Ended => "the disk is short of space, so the check could not go on".to_owned(),
            error => error.to_string(),
        })
    }
}

impl Lfsck {
    pub fn new(rt: &Rt) -> Lfsck {
        Lfsck { rt: rt.clone(), state: Mutex::default(), ordered: Notify::new() }
    }

    /// As Lustre has them, below `mdd`, and `lfsck` and `lfsck_findings`.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        tree.of_directories(Parameter::text("lfsck_namespace", || {
            self.state.lock().namespace.text("lfsck_namespace", &self.rt)
        }));
        tree.of_directories(Parameter::text("lfsck_layout", || {
            self.state.lock().layout.text("lfsck_layout", &self.rt)
        }));
        let part = |part| Parameter::text("lfsck_findings", move || self.state.lock().findings.part(part));
        tree.of_directories(part(0));
        let count = (1..PARTS).take_while(|n| !self.state.lock().findings.part(*n).is_empty());
        count.for_each(|n| tree.of_directories(part(n)));
        tree.of_directories(Parameter::order("lfsck", order::TAKES, |text: &str| self.order(text)));
    }

    fn order(&self, text: &str) -> Result<(), Code> {
        let order = Order::parse(text)?;
        let mut state = self.state.lock();
        let is_busy = [&state.namespace, &state.layout].iter().any(|phase| phase.status == Status::Scanning);
        match order {
            Order::Start(_) if is_busy || state.order.is_some() => return Err(Code::Busy),
            Order::Stop if !is_busy => state.order = None,
            order => state.order = Some(order),
        }
        if let Order::Start(check) = order {
            let param = if check.deletes_orphans { "orphan" } else { "dryrun" };
            state.findings = Findings::default();
            if check.namespace {
                state.namespace.begin(&self.rt, "dryrun");
            }
            if check.layout || check.scrub {
                state.layout.begin(&self.rt, param);
            }
        }
        drop(state);
        self.ordered.notify_one();
        Ok(())
    }

    /// Whether it is to end now.
    fn is_stopped(&self, stop: &Stop) -> bool {
        stop.is_stopped() || self.state.lock().order == Some(Order::Stop)
    }

    /// The next check.
    async fn next(&self) -> Check {
        loop {
            let ordered = self.ordered.notified();
            match self.state.lock().order.take() {
                Some(Order::Start(check)) => return check,
                Some(Order::Stop) | None => {}
            }
            ordered.await;
        }
    }
}

/// Carries out what is ordered, until the target stops.
pub(super) async fn run(mdt: Arc<Mdt>) {
    loop {
        let Some(check) = mdt.stop.unless(mdt.lfsck.next()).await else { return };
        // Before that clients may bring files back.
        if mdt.stop.unless(mdt.recovery.until_over()).await.is_none() {
            return;
        }
        tracing::info!(?check, "a check of the file system begins");
        if check.namespace {
            let end = check_names(&mdt).await;
            end_phase(&mdt, |state| &mut state.namespace, end);
        }
        if check.layout || check.scrub {
            let end = Box::pin(objects::check(&mdt, check)).await;
            end_phase(&mdt, |state| &mut state.layout, end);
        }
        mdt.lfsck.state.lock().order.take_if(|order| *order == Order::Stop);
    }
}

fn end_phase(mdt: &Mdt, phase: impl Fn(&mut State) -> &mut Phase, end: Result<(), End>) {
    let status = match end {
        Ok(()) => Status::Completed,
        Err(End::Stopped) => Status::Stopped,
        Err(End::Failed(why)) => Status::Failed(why),
    };
    tracing::info!(?status, "a check of the file system has ended");
    phase(&mut mdt.lfsck.state.lock()).end(&mdt.rt, status);
}

/// Checks the name space as it is now.
async fn check_names(mdt: &Arc<Mdt>) -> Result<(), End> {
    let snapshot = Arc::new(mdt.store.snapshot().await?);
    let mut check = namespace::Check::default();
    let mut found_all = 0;
    loop {
        let read = snapshot.clone();
        let step = move || {
            let goes_on = check.step(&*read, KEYS_AT_A_TIME);
            (check, goes_on)
        };
        let (checked, goes_on) = mdt.rt.offload(step).await;
        check = checked;
        {
            let mut state = mdt.lfsck.state.lock();
            found_all += check.found.len() as u64;
            check.found.drain(..).for_each(|found| state.findings.add(format!("namespace: {found}")));
            state.namespace.position = check.position();
            state.namespace.counts = vec![("checked_phase1", check.checked), ("found", found_all)];
        }
        if !goes_on? {
            return Ok(());
        }
        if mdt.lfsck.is_stopped(&mdt.stop) {
            return Err(End::Stopped);
        }
        mdt.rt.sleep(PAUSE).await;
    }
}
