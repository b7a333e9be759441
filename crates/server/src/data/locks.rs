//! What clients hold of the objects of a target: the locks of ranges, what those who write are asked, and what waits for the commit of
//! what others did.

use std::sync::Arc;

use proto::lock::range::{Holder, Mode, Range, Settings};
use proto::parameters::TargetTree;
use proto::wire::Reply;
use proto::wire::messages as msg;
use proto::{Code, ObjectId, Transno};
use service::{Ctx, Done, Env, RangeLocks, Recovery, Using, Wait};

use super::glimpse::Glimpses;
use super::sharing::Sharing;
use super::{TokenCounts, holder};
use crate::Held;

/// The locks of a target's objects.
pub(crate) struct ObjectLocks {
    recovery: Arc<Recovery>,
    tokens: Arc<RangeLocks>,
    glimpses: Arc<Glimpses>,
    sharing: Arc<Sharing>,
}

impl ObjectLocks {
    /// Nothing is held.
    pub(super) fn new(env: &Env) -> ObjectLocks {
        let sharing = Arc::new(Sharing::new(env.store.clone()));
        let tokens = RangeLocks::new(env, sharing.clone(), Settings::default());
        ObjectLocks {
            recovery: env.recovery.clone(),
            glimpses: Glimpses::new(env, tokens.clone()),
            tokens,
            sharing,
        }
    }

    /// A session ended: it holds nothing any more. What it has committed may not be noted yet, and others get its ranges now.
    pub fn ended(&self, session: u64) {
        self.sharing.all_changed();
        self.tokens.drop_session(Holder(session));
    }

    /// Grants a session all of an object that is new; `None` if that cannot be at once.
    pub fn grant_new(&self, session: u64, object: ObjectId) -> Option<msg::Token> {
        self.tokens.grant_free(Holder(session), object, Mode::Write)
    }

    /// What sessions hold of objects.
    pub fn held(&self) -> Vec<Held> {
        self.tokens.held()
    }

    /// How much they hold.
    pub fn held_count(&self) -> usize {
        self.tokens.held_count()
    }

    /// What this session holds.
    pub fn held_by(&self, session: u64) -> Vec<Held> {
        self.tokens.held_by(Holder(session))
    }

    /// Who waits for what.
    pub fn waits(&self) -> Vec<Wait> {
        let mut waits = self.tokens.waits();
        waits.extend(self.glimpses.waits());
        waits
    }

    /// Registers how many ranges are granted.
    pub fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.tokens.parameters(tree);
    }

    /// Registers when others may see a change.
    pub(super) fn durability_parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.sharing.parameters(tree);
    }

    /// What is held, and how often something happened with it.
    pub fn counts(&self) -> TokenCounts {
        TokenCounts {
            glimpses: self.glimpses.count(),
            shared: self.sharing.waits(),
            ..self.tokens.counts().into()
        }
    }

    /// Forgets what is held of objects that are gone.
    pub fn forget(&self, objects: &[ObjectId]) {
        self.tokens.drop_objects(objects);
    }

    /// The locks of ranges.
    #[cfg(test)]
    pub fn tokens(&self) -> &RangeLocks {
        &self.tokens
    }

    /// Grants what is asked for, or what was granted before a restart.
    pub(super) async fn enqueue<S>(&self, ctx: &Ctx<S>, enqueue: &msg::Enqueue) -> Result<msg::Token, Code> {
        // Who cannot be called back is granted nothing.
        if ctx.session().features() & msg::FEATURE_LOCKS == 0 {
            return Err(Code::NotSupported);
        }
        match enqueue.restate {
            true if self.recovery.is_active() => self.tokens.restate(holder(ctx), enqueue),
            // Others may have been granted it meanwhile.
            true => Err(Code::Invalid),
            false => self.tokens.enqueue(holder(ctx), enqueue).await,
        }
    }

    /// A session gives ranges up of its own accord.
    pub(super) async fn cancel<S>(&self, ctx: &Ctx<S>, cancel: &msg::CancelRanges) -> Result<Done, Code> {
        for range in cancel.ranges.iter().filter(|range| range.start < range.end) {
            let given_up = Range { start: range.start, end: range.end };
            self.sharing.wait_to_give_up(range.object, given_up, holder(ctx)).await?;
        }
        self.tokens.cancel(holder(ctx), cancel);
        Ok(Done::unchanged(Reply::CancelRanges(msg::Done {})))
    }

    /// Locks a range for an access of a client that does not hold it.
    pub(super) async fn lock_for<S>(
        &self,
        ctx: &Ctx<S>,
        object: ObjectId,
        mode: Mode,
        range: Range,
    ) -> Result<Option<Using<'_>>, Code> {
        // A replay had the range when it was carried out first; those who hold it now waited for it then.
        if ctx.replay.is_some() {
            return Ok(None);
        }
        let using = self.tokens.use_range(object, holder(ctx), mode, range).await?;
        self.sharing.settle(object, range, holder(ctx)).await?;
        Ok(using)
    }

    /// Grants all of an object if nobody has to be called back for it; `None` if that cannot be.
    pub(super) fn grant_free(&self, holder: Holder, object: ObjectId, mode: Mode) -> Option<msg::Token> {
        self.tokens.grant_free(holder, object, mode)
    }

    /// Whether `holder` may change all of `range`.
    pub(super) fn holds(&self, holder: Holder, object: ObjectId, range: Range) -> bool {
        self.tokens.holds(holder, object, range)
    }

    /// What others than `holder` have written to the object and not sent yet.
    pub(super) fn glimpse(
        &self,
        object: ObjectId,
        holder: Holder,
    ) -> impl Future<Output = Result<Option<msg::Glimpsed>, Code>> {
        self.glimpses.glimpse(object, holder)
    }

    /// `holder` has changed a range.
    pub(super) fn changed(&self, object: ObjectId, range: Range, holder: Holder, transno: Transno) {
        self.sharing.changed(object, range, holder, transno);
    }

    /// Waits until what others did in a range is durable, if that is wanted.
    pub(super) fn settle(
        &self,
        object: ObjectId,
        range: Range,
        holder: Holder,
    ) -> impl Future<Output = Result<(), Code>> {
        self.sharing.settle(object, range, holder)
    }
}
