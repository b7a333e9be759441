//! A metadata target: one shard of the name space.
//!
//! Each operation is a file of [`ops`]: it locks names and inodes ([`locks`]), checks as Linux does ([`access`]),
//! and commits everything that it changes, its reply included, in one batch. Objects are none of its business but
//! for two things: it says on which OSTs they lie ([`allocate`]) and it alone destroys them ([`destroy`]).

mod access;
mod allocate;
mod census;
mod destroy;
mod export;
mod flocks;
mod inode;
mod keys;
mod locks;
mod namespace;
mod opens;
mod ops;
mod orphans;
mod osts;
mod sequence;

#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use proto::layout::LayoutHint;
use proto::wire::{Reply, Request};
use proto::{ClientId, Code, Fid, FileKind, Timestamp};
use rt::Rt;
use store::{Store, StoreError};

use crate::target::{self, Env, Handler, Recovery, Session, Stop};
use census::Census;
use export::Export;
use flocks::Flocks;
use inode::Inode;
use locks::Locks;
use namespace::Changes;
use opens::Opens;
use osts::Osts;
use sequence::Sequences;

/// What an operation knows of its request.
type Ctx = target::Ctx<Export>;
/// What an operation gives back.
type Outcome = Result<target::Done, Code>;

/// Mode of the root directory when the file system is new.
const ROOT_MODE: u32 = 0o040_755;

/// A metadata target.
pub struct Mdt {
    rt: Rt,
    store: Arc<Store>,
    stop: Stop,
    recovery: Arc<Recovery>,
    locks: Locks,
    opens: Opens,
    flocks: Flocks,
    census: Census,
    sequences: Sequences,
    osts: Arc<Osts>,
    /// The root's default layout, which directories without one of their own follow.
    root_hint: RwLock<Option<LayoutHint>>,
    destroyer: Arc<destroy::Destroyer>,
    /// Nameless inodes that were open before the restart.
    inherited_orphans: Vec<Fid>,
}

impl Handler for Mdt {
    type Session = Export;

    async fn open(env: Env) -> Result<Mdt, StoreError> {
        let store = env.store.clone();
        let sequences = Sequences::open(&store)?;
        let root_hint = open_root(&env.rt, &store)?;
        let osts = Arc::new(Osts::open(&env)?);
        Ok(Mdt {
            rt: env.rt.clone(),
            stop: env.stop.clone(),
            recovery: env.recovery.clone(),
            locks: Locks::default(),
            opens: Opens::default(),
            flocks: Flocks::new(store.boot()),
            census: Census::take(&store)?,
            sequences,
            root_hint: RwLock::new(root_hint),
            destroyer: Arc::new(destroy::Destroyer::open(&env, osts.clone())?),
            osts,
            inherited_orphans: orphans::load(&store)?,
            store,
        })
    }

    fn started(self: &Arc<Self>) {
        self.rt.spawn(osts::watch(self.osts.clone(), self.destroyer.clone()));
        self.rt.spawn(orphans::clean(self.clone()));
    }

    async fn handle(&self, ctx: &Ctx, request: Request, _bulk: Vec<Bytes>) -> Outcome {
        match request {
            Request::GetAttr(request) => self.get_attr(&request),
            Request::Lookup(request) => self.lookup(&request),
            Request::Access(request) => self.access(&request),
            Request::Create(request) => {
                self.wait_for_osts(ops::create::kind(&request).ok()).await;
                self.create(ctx, &request)
            }
            Request::CreateUnnamed(request) => {
                self.wait_for_osts(Some(FileKind::File)).await;
                self.create_unnamed(ctx, &request)
            }
            Request::Open(request) => self.open_file(ctx, &request),
            Request::Close(request) => self.close_file(ctx, &request),
            Request::Unlink(request) => self.unlink(ctx, &request),
            Request::Rename(request) => self.rename(ctx, &request),
            Request::Link(request) => self.link(ctx, &request),
            Request::SetAttr(request) => self.set_attr(ctx, &request),
            Request::SetSize(request) => self.set_size(ctx, &request),
            Request::ReadDir(request) => self.read_dir(&request),
            Request::ReadLink(request) => self.read_link(&request),
            Request::GetXattr(request) => self.get_xattr(&request),
            Request::SetXattr(request) => self.set_xattr(ctx, &request),
            Request::ListXattr(request) => self.list_xattr(&request),
            Request::RemoveXattr(request) => self.remove_xattr(ctx, &request),
            Request::SetLayout(request) => self.set_layout(ctx, &request).await,
            Request::GetDefaultLayout(request) => self.get_default_layout(&request),
            Request::FidToPath(request) => self.fid_to_path(&request),
            Request::Flock(request) => self.flock(ctx, &request),
            Request::FlockWait(request) => self.flock_wait(ctx, &request).await,
            Request::FlockCancel(request) => self.flock_cancel(ctx, &request),
            Request::FlockTest(request) => self.flock_test(ctx, &request),
            Request::GetSequence(_) => self.get_sequence(ctx).await,
            Request::Statfs(_) => self.statfs().await,
            _ => Err(Code::NotSupported),
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
    changes.put_inode(&root);
    store.commit(changes.into_batch())?;
    Ok(None)
}

impl Mdt {
    async fn statfs(&self) -> Outcome {
        let space = self.store.dir().space().await.map_err(|error| {
            tracing::error!(%error, "the space of the target is not known");
            Code::Io
        })?;
        let files_free = space.available / namespace::BYTES_PER_FILE;
        Ok(target::Done::unchanged(Reply::Statfs(proto::wire::messages::Space {
            bytes_total: space.total,
            bytes_free: space.free,
            bytes_available: space.available,
            files_total: self.census.inodes() + files_free,
            files_free,
        })))
    }
}
