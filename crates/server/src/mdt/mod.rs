//! A metadata target: one shard of the name space.
//!
//! Each operation is a file of [`ops`]: it locks names and inodes ([`locks`]), checks as Linux does ([`access`]),
//! and commits everything that it changes, its reply included, in one batch. Of objects it says on which targets they
//! lie ([`allocate`]), and it alone has them destroyed ([`destroy`]). Those of the first bytes of files it may have itself
//! ([`crate::data`]). [`lfsck`] checks that all of it fits together; what comes of them with the answers about names is in [`head`].

mod access;
mod allocate;
mod alone;
mod away;
mod bits;
mod bursts;
mod changelog;
mod context;
mod cuts;
mod dead;
mod destroy;
mod export;
mod flocks;
mod head;
mod hsm;
mod inode;
mod keep;
mod keys;
mod lfsck;
mod load;
mod locks;
mod namespace;
mod opens;
mod ops;
mod orphans;
mod osts;
mod owners;
mod place;
mod plan;
mod qos;
mod quota;
mod reclaim;
mod revoke;
mod searches;
mod sequence;
mod sharing;
mod spill;
mod stats;
mod turns;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use proto::layout::LayoutHint;
use proto::limits::MDT_DATA_BYTES_MAX;
use proto::parameters::TargetTree;
use proto::wire::header::Room;
use proto::wire::messages::{MdtOrData, MdtOutside, MdtRequest, Space};
use proto::wire::{Reply, Request};
use proto::{Attr, ClientId, Code, Fid, FileKind, Timestamp, Transno};
use rpc::Peer;
use rt::Rt;
use service::{Counted, Done, Env, Handler, Recovery, Session, Shown, Stop, VERSION_OF_THIS, Wait};
use store::sums::{INODE_OWNERS, INODES};
use store::{Store, StoreError};

use crate::data::{Data, TokenCounts};
use crate::{Counts, Held, accounts};
pub use bits::LockCounts;
pub use lfsck::namespace::Check as NamespaceCheck;

use bursts::Bursts;
use changelog::Changelog;
use context::Ctx;
use export::Export;
use flocks::Flocks;
use hsm::Hsm;
use inode::Inode;
use keep::Grants;
use lfsck::Lfsck;
use load::Load;
use namespace::{Changes, Names};
use opens::Opens;
use osts::Objects;
use plan::{FETCHES_MAX, Halt, Reads, Step};
use quota::Quotas;
use searches::Searches;
use sequence::Sequences;
pub use sequence::jump as sequences_jump;
use sharing::Sharing;

/// What an operation gives back.
type Outcome = Step<Done>;

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
    names: Names,
    grants: Grants,
    sharing: Sharing,
    bursts: Bursts,
    opens: Opens,
    flocks: Flocks,
    sequences: Arc<Sequences>,
    objects: Objects,
    searches: Arc<Searches>,
    changelog: Changelog,
    quotas: Quotas,
    load: Arc<Load>,
    lfsck: Lfsck,
    hsm: Hsm,
    /// The first bytes of files.
    data: Arc<Data>,
}

impl Handler for Mdt {
    type Session = Export;
    type Request = MdtOrData;
    type Outside = MdtOutside;
    const STATS: Option<&'static service::Stats> = Some(&stats::STATS);

    async fn open(env: Env) -> Result<Mdt, StoreError> {
        let store = env.store.clone();
        let claimant = env.claimant.clone().map(|claimant| (claimant, env.stop.clone()));
        let sequences = Arc::new(Sequences::open(&store, claimant)?);
        let root_hint = open_root(&env.rt, &store)?;
        quota::sum_up(&env.rt, &store).await?;
        let objects = store::Objects::open_few(&env.rt, store.clone()).await?;
        let data = Arc::new(Data::new(&env, objects, MDT_DATA_BYTES_MAX)?);
        let objects = Objects::open(&env, root_hint, data.clone(), sequences.clone())?;
        Ok(Mdt {
            names: Names::new(&store),
            grants: Grants::new(&env),
            sharing: Sharing::new(store.clone()),
            bursts: Bursts::default(),
            opens: Opens::new(store.boot()),
            flocks: Flocks::new(store.boot()),
            sequences,
            quotas: Quotas::open(&env, &objects, data.clone())?,
            objects,
            searches: Searches::new(&env.rt, &store),
            changelog: Changelog::open(&env)?,
            load: Arc::new(Load::open(&env)),
            lfsck: Lfsck::new(&env.rt),
            hsm: Hsm::open(&env)?,
            data,
            rt: env.rt,
            stop: env.stop,
            recovery: env.recovery,
            store,
        })
    }

    fn variant(request: &Request) -> usize {
        stats::variant(request)
    }

    fn parts(request: &Request) -> Vec<Counted> {
        stats::parts(request)
    }

    fn started(self: &Arc<Self>) {
        self.rt.spawn(osts::watch(self.objects.osts.clone(), self.objects.destroyer.clone()));
        // Of OSTs the MGS tells; what is left of this target's own waits for nobody.
        self.objects.destroyer.wake(&[]);
        self.rt.spawn(orphans::clean(self.clone()));
        self.rt.spawn(changelog::clear::run(self.clone()));
        self.rt.spawn(self.grants.reclaimer.clone().run());
        self.rt.spawn(load::sample(self.load.clone()));
        self.rt.spawn(lfsck::run(self.clone()));
        self.rt.spawn(hsm::run(self.clone()));
        self.rt.spawn(quota::forget_pools(self.clone()));
    }

    async fn handle(
        &self,
        ctx: &service::Ctx<Export>,
        request: MdtOrData,
        bulk: Vec<Bytes>,
    ) -> Result<Done, Code> {
        let request = match request {
            MdtOrData::Mdt(request) => request,
            // Boxed, as is what an open brings: requests about names need no room for it.
            MdtOrData::Data(request) => return Box::pin(self.data.handle(ctx, request, bulk)).await,
        };
        let ctx = Ctx::new(ctx, &self.grants.bits, &self.sharing, Reads::of(&request));
        let (mut rounds, mut fetches) = (0, 0);
        while rounds < ROUNDS_MAX && fetches < FETCHES_MAX {
            let outcome = match self.carry_out(&ctx, &request).await {
                Ok(done) => Ok(done),
                Err(Halt::Refused(code)) => Err(code),
                Err(Halt::Conflict(conflicts)) => {
                    self.grants.revoker.revoke_for(&ctx, &request, conflicts).await?;
                    rounds += 1;
                    continue;
                }
                Err(Halt::Missing(want)) => {
                    self.names.fetch(&ctx, want).await?;
                    fetches += 1;
                    continue;
                }
            };
            self.sharing.settle(ctx.seen()).await?;
            let mut done = outcome?;
            if let Some(head) = head::wanted(&ctx, &request, &done) {
                Box::pin(self.bring_head(&ctx, head, &mut done)).await;
            }
            return Ok(done);
        }
        Err(Code::TryAgain)
    }

    async fn outside(&self, peer: &Peer, request: MdtOutside) -> Result<Reply, Code> {
        match request {
            MdtOutside::OrderChangelog(order) => {
                self.changelog.order(peer, &order).await.map(Reply::OrderChangelog)
            }
            MdtOutside::ReadChangelog(read) => self.changelog.read(&read).map(Reply::ReadChangelog),
            MdtOutside::ReadQuota(read) => self.quotas.read(&read).await.map(Reply::ReadQuota),
            MdtOutside::SetQuota(set) => {
                let state = self.quotas.set(&set).await?;
                // What clients do ahead may have been told by them, and must not be refused. While one gives a directory back, it may
                // make others in it.
                while self.quotas.is_used() {
                    let alone = self.grants.bits.all_alone();
                    if alone.is_empty() {
                        break;
                    }
                    self.grants.revoker.revoke(alone).await?;
                }
                Ok(Reply::SetQuota(state))
            }
        }
    }

    async fn space(&self) -> Result<Space, Code> {
        let space = self.data.space().await.inspect_err(|error| {
            tracing::error!(%error, "the space of the target is not known");
        })?;
        let files_free = space.bytes_available / namespace::BYTES_PER_FILE;
        let inodes = self.store.sum(&INODES.key()).map_err(|error| service::code_of(&error))?;
        Ok(Space {
            files_total: inodes + files_free,
            files_free,
            state: service::space_state(&self.store),
            ..space
        })
    }

    fn stamp(reply: &mut Reply, transno: Transno) {
        let stamp = |attr: &mut Attr| {
            if attr.version == VERSION_OF_THIS {
                attr.version = transno.0;
            }
        };
        let attr = match reply {
            Reply::KeepPromises(promises) => {
                return promises.kept.iter_mut().filter_map(|kept| kept.attr.as_mut()).for_each(stamp);
            }
            Reply::Create(created) | Reply::CreateUnnamed(created) => &mut created.attr,
            Reply::Open(opened) => &mut opened.attr,
            Reply::Link(entry) | Reply::SetAttr(entry) => &mut entry.attr,
            Reply::SetLayout(entry) | Reply::SwapLayouts(entry) | Reply::PlaceData(entry) => &mut entry.attr,
            Reply::ReleaseData(entry) => &mut entry.attr,
            Reply::Close(settled) | Reply::SetSize(settled) => match &mut settled.entry {
                Some(entry) => &mut entry.attr,
                None => return,
            },
            _ => return,
        };
        stamp(attr);
    }

    fn began(&self, session: &Session<Export>) {
        self.flocks.begin_session(session.handle());
        self.begin_export(session);
    }

    fn ended(&self, session: &Session<Export>) {
        self.flocks.end_session(session.handle());
        self.data.locks().ended(session.handle());
        self.quotas.ended(session.handle());
        self.hsm.session_ended(session.handle());
        self.end_export(session);
    }

    fn forgotten(&self, client: ClientId) {
        self.forget_export(client);
    }

    fn room(&self, sessions: impl FnOnce() -> usize) -> Room {
        self.data.room(sessions)
    }

    async fn finish(&self) {
        self.load.write().await;
        self.data.finish().await;
    }
}

impl Shown for Mdt {
    fn parameters<'a>(&'a self, tree: &mut TargetTree<'a>) {
        self.grants.bits.parameters(tree);
        self.sharing.parameters(tree);
        self.changelog.parameters(tree);
        self.objects.osts.parameters(tree);
        self.objects.osts.list_parameters(tree);
        self.objects.osts.qos_parameters(tree);
        self.objects.osts.spill_parameters(tree);
        self.load.parameters(tree);
        self.lfsck.parameters(tree);
        self.hsm.parameters(tree);
        self.data.statistics(tree);
        accounts::parameters(&*self.store, tree);
    }

    fn held(&self) -> Vec<Held> {
        let mut held = self.grants.bits.held();
        held.extend(self.data.locks().held());
        held
    }

    fn held_count(&self) -> usize {
        self.grants.bits.held_count() + self.data.locks().held_count()
    }

    fn held_by(&self, session: u64) -> Vec<Held> {
        let mut held = self.grants.bits.held_by_session(session);
        held.extend(self.data.locks().held_by(session));
        held
    }

    fn waits(&self) -> Vec<Wait> {
        let mut waits = self.grants.bits.waits();
        waits.extend(self.grants.revoker.waits());
        waits.extend(self.data.locks().waits());
        waits
    }

    fn problems(&self) -> Vec<String> {
        self.data.problems()
    }
}

impl Counts for Mdt {
    fn lock_counts(&self) -> LockCounts {
        self.grants.bits.counts()
    }

    fn token_counts(&self) -> TokenCounts {
        self.data.locks().counts()
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
    changes.put_raw(INODE_OWNERS.marker(), Bytes::new());
    store.commit(changes.into_batch())?;
    Ok(None)
}

impl Mdt {
    /// One attempt: an operation that meets a conflict, or lacks something, ends without having changed anything.
    ///
    /// What waits and is rare is boxed: each request's future has room for the largest of them.
    async fn carry_out(&self, ctx: &Ctx<'_>, request: &MdtRequest) -> Outcome {
        match request {
            MdtRequest::GetAttr(request) => ops::get_attr::get_attr(self, ctx, request),
            MdtRequest::Lookup(request) => ops::lookup::lookup(self, ctx, request),
            MdtRequest::Access(request) => ops::access::access(self, ctx, request),
            MdtRequest::Create(request) => {
                let entry = keys::entry(request.parent, &request.name);
                self.names.fetch_for_create(&entry, request.fid).await?;
                let kind = ops::create::kind(request).ok();
                ops::create::until_known(self, ctx, request.hint.as_ref()).await?;
                ops::create::with_osts(self, ctx, kind, || ops::create::create(self, ctx, request)).await
            }
            MdtRequest::KeepPromises(request) => {
                Box::pin(ops::keep_promises::keep_promises(self, ctx, request)).await
            }
            MdtRequest::CreateUnnamed(request) => {
                ops::create::until_known(self, ctx, request.hint.as_ref()).await?;
                ops::create::with_osts(self, ctx, Some(FileKind::File), || {
                    ops::create_unnamed::create_unnamed(self, ctx, request)
                })
                .await
            }
            MdtRequest::Open(request) => ops::open::open_file(self, ctx, request),
            MdtRequest::Close(request) => ops::close::close_file(self, ctx, request),
            MdtRequest::RestateOpens(request) => {
                Box::pin(ops::restate_opens::restate_opens(self, ctx, request)).await
            }
            MdtRequest::StateOpens(request) => {
                Box::pin(ops::restate_opens::state_opens(self, ctx, request)).await
            }
            MdtRequest::Unlink(request) => ops::unlink::unlink(self, ctx, request),
            MdtRequest::Rename(request) => ops::rename::rename(self, ctx, request),
            MdtRequest::Link(request) => ops::link::link(self, ctx, request),
            MdtRequest::SetAttr(request) => ops::set_attr::set_attr(self, ctx, request),
            MdtRequest::SetSize(request) => ops::set_size::set_size(self, ctx, request),
            MdtRequest::ReadDir(request) => ops::read_dir::read_dir(self, ctx, request),
            MdtRequest::ReadLink(request) => ops::read_link::read_link(self, ctx, request),
            MdtRequest::GetXattr(request) => ops::xattr::get_xattr(self, ctx, request),
            MdtRequest::SetXattr(request) => ops::xattr::set_xattr(self, ctx, request),
            MdtRequest::ListXattr(request) => ops::xattr::list_xattr(self, ctx, request),
            MdtRequest::RemoveXattr(request) => ops::xattr::remove_xattr(self, ctx, request),
            MdtRequest::SetLayout(request) => Box::pin(ops::layout::set_layout(self, ctx, request)).await,
            MdtRequest::PlaceData(request) => Box::pin(ops::layout::place_data(self, ctx, request)).await,
            MdtRequest::SwapLayouts(request) => Box::pin(ops::layout::swap_layouts(self, ctx, request)).await,
            MdtRequest::GetHsm(request) => ops::hsm::get_hsm(self, ctx, request),
            MdtRequest::SetHsm(request) => Box::pin(ops::hsm::set_hsm(self, ctx, request)).await,
            MdtRequest::ReleaseData(request) => Box::pin(ops::hsm::release_data(self, ctx, request)).await,
            MdtRequest::AskHsm(request) => Box::pin(ops::hsm::ask_hsm(self, ctx, request)).await,
            MdtRequest::TakeHsm(request) => Box::pin(ops::hsm::take_hsm(self, ctx, request)).await,
            MdtRequest::EndHsm(request) => Box::pin(ops::hsm::end_hsm(self, request)).await,
            MdtRequest::GetDefaultLayout(request) => ops::layout::get_default_layout(self, ctx, request),
            MdtRequest::Flock(request) => Box::pin(ops::flock::flock(self, ctx, request)).await,
            MdtRequest::FlockWait(request) => Box::pin(ops::flock::flock_wait(self, ctx, request)).await,
            MdtRequest::FlockCancel(request) => ops::flock::flock_cancel(self, ctx, request),
            MdtRequest::FlockTest(request) => Box::pin(ops::flock::flock_test(self, ctx, request)).await,
            MdtRequest::RestateFlocks(request) => ops::flock::restate_flocks(self, ctx, request),
            MdtRequest::RestateNames(request) => ops::restate_names::restate_names(self, ctx, request),
            MdtRequest::RestateAlone(request) => ops::restate_alone::restate_alone(self, ctx, request),
            MdtRequest::CancelBits(request) => ops::cancel_bits::cancel_bits(self, ctx, request),
            MdtRequest::FidToPath(request) => ops::fid_to_path::fid_to_path(self, ctx, request),
            MdtRequest::Find(request) => Box::pin(ops::find::find(self, request)).await,
            MdtRequest::HoldSpace(request) => {
                let held = Box::pin(self.quotas.hold(ctx.session().handle(), request)).await?;
                Ok(Done::unchanged(Reply::HoldSpace(held)))
            }
            MdtRequest::GetSequence(_) => Box::pin(ops::sequence::get_sequence(self, ctx)).await,
        }
    }
}
