//! A metadata target: one shard of the name space.
//!
//! Each operation is a file of [`ops`]: it locks names and inodes ([`locks`]), checks as Linux does ([`access`]),
//! and commits everything that it changes, its reply included, in one batch. Objects are none of its business but
//! for two things: it says on which OSTs they lie ([`allocate`]) and it alone destroys them ([`destroy`]).

mod access;
mod allocate;
mod bits;
mod context;
mod dead;
mod destroy;
mod export;
mod flocks;
mod inode;
mod keep;
mod keys;
mod locks;
mod namespace;
mod opens;
mod ops;
mod orphans;
mod osts;
mod reclaim;
mod revoke;
mod sequence;
mod sharing;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use proto::layout::LayoutHint;
use proto::wire::Reply;
use proto::wire::messages::{MdtRequest, NoRequest, Parameter, Space};
use proto::{ClientId, Code, Fid, FileKind, Timestamp, Transno};
use rpc::Peer;
use rt::Rt;
use service::{Env, Handler, Recovery, Session, Stop, VERSION_OF_THIS};
use store::sums::INODES;
use store::{Store, StoreError};

use crate::{Counts, Held};
pub use bits::LockCounts;

use bits::BitLocks;
use context::Ctx;
use export::Export;
use flocks::Flocks;
use inode::Inode;
use locks::Locks;
use namespace::Changes;
use opens::Opens;
use osts::Osts;
use reclaim::Reclaimer;
use revoke::Revoker;
use sequence::Sequences;
pub use sequence::jump as sequences_jump;
use sharing::Sharing;

/// What an operation gives back.
type Outcome = Result<service::Done, Code>;

/// How often an operation is tried again because others had what it needs; each time everybody is called back, so that
/// only names that change their meaning again and again bring it so far.
const ROUNDS_MAX: usize = 100;
/// Mode of the root directory when the file system is new.
const ROOT_MODE: u32 = 0o040_755;

/// A metadata target.
pub struct Mdt {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    locks: Locks,
    bits: Arc<BitLocks>,
    sharing: Sharing,
    revoker: Arc<Revoker>,
    reclaimer: Arc<Reclaimer>,
    opens: Opens,
    flocks: Flocks,
    sequences: Sequences,
    osts: Arc<Osts>,
    /// The root's default layout, which directories without one of their own follow.
    root_hint: RwLock<Option<LayoutHint>>,
    destroyer: Arc<destroy::Destroyer>,
}

impl Handler for Mdt {
    type Session = Export;
    type Request = MdtRequest;
    type Outside = NoRequest;

    async fn open(env: Env) -> Result<Mdt, StoreError> {
        let store = env.store.clone();
        let sequences =
            Sequences::open(&store, env.claimant.clone().map(|claimant| (claimant, env.stop.clone())))?;
        let root_hint = open_root(&env.rt, &store)?;
        let osts = Arc::new(Osts::open(&env)?);
        let bits = Arc::new(BitLocks::new(store.boot(), env.rt.memory_bytes()));
        let revoker = Arc::new(Revoker::new(&env.rt, env.clients.clone(), bits.clone()));
        let reclaimer = Reclaimer::new(&env.rt, env.stop.clone(), env.clients.clone(), bits.clone());
        Ok(Mdt {
            rt: env.rt.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            locks: Locks::default(),
            bits,
            sharing: Sharing::new(store.clone()),
            revoker,
            reclaimer: Arc::new(reclaimer),
            opens: Opens::default(),
            flocks: Flocks::new(store.boot()),
            sequences,
            root_hint: RwLock::new(root_hint),
            destroyer: Arc::new(destroy::Destroyer::open(&env, osts.clone())?),
            osts,
            store,
        })
    }

    fn started(self: &Arc<Self>) {
        self.rt.spawn(osts::watch(self.osts.clone(), self.destroyer.clone()));
        self.rt.spawn(orphans::clean(self.clone()));
        self.rt.spawn(self.reclaimer.clone().run());
    }

    async fn handle(&self, ctx: &service::Ctx<Export>, request: MdtRequest, _bulk: Vec<Bytes>) -> Outcome {
        let ctx = Ctx::new(ctx, &self.bits, &self.sharing);
        for _ in 0..ROUNDS_MAX {
            let outcome = self.carry_out(&ctx, &request).await;
            let conflicts = ctx.claims.take_conflicts();
            if conflicts.is_empty() {
                self.sharing.settle(ctx.seen()).await?;
                return outcome;
            }
            self.revoker.revoke(conflicts).await?;
        }
        Err(Code::TryAgain)
    }

    async fn outside(&self, _peer: &Peer, request: NoRequest) -> Result<Reply, Code> {
        match request {}
    }

    async fn space(&self) -> Result<Space, Code> {
        let space = self.store.space().await.map_err(|error| {
            tracing::error!(%error, "the space of the target is not known");
            Code::Io
        })?;
        let files_free = space.available / namespace::BYTES_PER_FILE;
        let inodes = self.store.sum(&INODES.key()).map_err(|error| service::code_of(&error))?;
        Ok(Space {
            bytes_total: space.total,
            bytes_free: space.free,
            bytes_available: space.available,
            files_total: inodes + files_free,
            files_free,
            state: service::space_state(&self.store),
            disk: space.identity,
            bytes_own: 0,
        })
    }

    fn stamp(reply: &mut Reply, transno: Transno) {
        let attr = match reply {
            Reply::Create(created) | Reply::CreateUnnamed(created) => &mut created.attr,
            Reply::Open(opened) => &mut opened.attr,
            Reply::Link(entry) | Reply::SetAttr(entry) => &mut entry.attr,
            Reply::SetLayout(entry) | Reply::SwapLayouts(entry) => &mut entry.attr,
            Reply::Close(settled) | Reply::SetSize(settled) => match &mut settled.entry {
                Some(entry) => &mut entry.attr,
                None => return,
            },
            _ => return,
        };
        if attr.version == VERSION_OF_THIS {
            attr.version = transno.0;
        }
    }

    fn began(&self, session: &Session<Export>) {
        self.flocks.begin_session(session.handle());
        self.begin_export(session);
    }

    fn ended(&self, session: &Session<Export>) {
        self.flocks.end_session(session.handle());
        self.end_export(session);
    }

    fn forgotten(&self, client: ClientId) {
        self.forget_export(client);
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.sharing.parameters();
        all.extend(self.bits.parameters());
        all
    }

    fn set_parameter(&self, parameter: &Parameter) -> Result<(), Code> {
        self.bits.set(parameter).unwrap_or_else(|| self.sharing.set(parameter))
    }

    fn held(&self) -> Vec<Held> {
        self.bits.held()
    }

    fn held_by(&self, session: u64) -> Vec<Held> {
        self.bits.held_by_session(session)
    }

    fn waits(&self) -> Vec<String> {
        let mut lines = self.bits.waits();
        lines.extend(self.revoker.waits());
        lines
    }
}

impl Counts for Mdt {
    fn lock_counts(&self) -> LockCounts {
        self.bits.counts()
    }
}

/// Makes the root directory if the target is new; gives its default layout.
fn open_root(rt: &Rt, store: &Store) -> Result<Option<LayoutHint>, StoreError> {
    if let Some(value) = store.get(&keys::inode(Fid::ROOT))? {
        return match Inode::decode(Fid::ROOT, &value.bytes, value.version.0) {
            Some(root) => Ok(root.hint),
            None => Err(StoreError::Corrupt { what: "the root directory".into() }),
        };
    }
    let now = rt.wall();
    let mut root = Inode::new(Fid::ROOT, ROOT_MODE, Timestamp { secs: now.secs, nanos: now.nanos });
    root.parent = Fid::ROOT;
    let mut changes = Changes::default();
    changes.add_inode(&root);
    store.commit(changes.into_batch())?;
    Ok(None)
}

impl Mdt {
    /// One attempt: an operation that meets a conflict ends without having changed anything.
    async fn carry_out(&self, ctx: &Ctx<'_>, request: &MdtRequest) -> Outcome {
        match request {
            MdtRequest::GetAttr(request) => self.get_attr(ctx, request),
            MdtRequest::Lookup(request) => self.lookup(ctx, request),
            MdtRequest::Access(request) => self.access(ctx, request),
            MdtRequest::Create(request) => {
                let kind = ops::create::kind(request).ok();
                self.with_osts(kind, || self.create(ctx, request)).await
            }
            MdtRequest::CreateUnnamed(request) => {
                self.with_osts(Some(FileKind::File), || self.create_unnamed(ctx, request)).await
            }
            MdtRequest::Open(request) => self.open_file(ctx, request),
            MdtRequest::Close(request) => self.close_file(ctx, request),
            MdtRequest::RestateOpens(request) => self.restate_opens(ctx, request),
            MdtRequest::Unlink(request) => self.unlink(ctx, request),
            MdtRequest::Rename(request) => self.rename(ctx, request),
            MdtRequest::Link(request) => self.link(ctx, request),
            MdtRequest::SetAttr(request) => self.set_attr(ctx, request),
            MdtRequest::SetSize(request) => self.set_size(ctx, request),
            MdtRequest::ReadDir(request) => self.read_dir(ctx, request),
            MdtRequest::ReadLink(request) => self.read_link(ctx, request),
            MdtRequest::GetXattr(request) => self.get_xattr(ctx, request),
            MdtRequest::SetXattr(request) => self.set_xattr(ctx, request),
            MdtRequest::ListXattr(request) => self.list_xattr(ctx, request),
            MdtRequest::RemoveXattr(request) => self.remove_xattr(ctx, request),
            MdtRequest::SetLayout(request) => self.set_layout(ctx, request).await,
            MdtRequest::SwapLayouts(request) => self.swap_layouts(ctx, request).await,
            MdtRequest::GetDefaultLayout(request) => self.get_default_layout(ctx, request),
            MdtRequest::Flock(request) => self.flock(ctx, request).await,
            MdtRequest::FlockWait(request) => self.flock_wait(ctx, request).await,
            MdtRequest::FlockCancel(request) => self.flock_cancel(ctx, request),
            MdtRequest::FlockTest(request) => self.flock_test(ctx, request).await,
            MdtRequest::RestateFlocks(request) => self.restate_flocks(ctx, request),
            MdtRequest::CancelBits(request) => self.cancel_bits(ctx, request),
            MdtRequest::FidToPath(request) => self.fid_to_path(ctx, request),
            MdtRequest::GetSequence(_) => self.get_sequence(ctx).await,
        }
    }
}
