//! Create: a new file of any kind, and perhaps open at once.

use std::time::Duration;

use bytes::Bytes;
use proto::changelog::Kind;
use proto::layout::{LayoutHint, Spread};
use proto::limits::{LINKS_MAX, SYMLINK_BYTES_MAX};
use proto::types::{MODE_KIND, MODE_PERMISSIONS};
use proto::wire::Reply;
use proto::wire::messages::{
    ACCESS_EXECUTE, Create, Created, FEATURE_OVERSTRIPING, Foretold, Granted, LOCK_ALONE, LOCK_OPEN,
    LOCK_UPDATE, OPEN_ALONE, OPEN_EXCLUSIVE, OPEN_RANGE, OPEN_READ, OPEN_WRITE,
};
use proto::{Code, Cred, Fid, FileKind, Layout, Timestamp};

use service::Done;

use super::open;
use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_NAME;
use crate::mdt::opens::{OpenMode, Opener};
use crate::mdt::plan::Step;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, allocate, changelog, keys};

/// How long a create waits for the first OST of a file system that has none yet. On a bad network it takes a repetition or
/// two until an OST is registered and the MDT knows.
const OST_WAIT: Duration = Duration::from_secs(60);
/// How long a create waits for a pool that is not known, or has no OST.
const POOL_WAIT: Duration = Duration::from_secs(1);

/// A pool that was made, or filled, a moment ago is known soon: who asks for it by its name waits for that.
pub(super) async fn until_pools(mdt: &Mdt, hint: Option<&LayoutHint>) {
    let Some(hint) = hint else { return };
    if !mdt.objects.osts.table().order.has_pools(hint) {
        Box::pin(mdt.objects.osts.wait_for_pools(hint, POOL_WAIT)).await;
    }
}

/// What has to be known of the wish of a new file: whether its pools are there, and the OSTs that it names are reached. (A replay's were.)
pub(in crate::mdt) async fn until_known(
    mdt: &Mdt,
    ctx: &Ctx<'_>,
    hint: Option<&LayoutHint>,
) -> Result<(), Code> {
    until_pools(mdt, hint).await;
    // What is wrong anyway is refused in its turn.
    let is_sane = |hint: &&LayoutHint| allocate::check(hint, &mdt.objects.osts.table().order).is_ok();
    match hint.filter(is_sane) {
        Some(hint) if ctx.replay.is_none() => Box::pin(mdt.objects.osts.named_are_reached(hint)).await,
        _ => Ok(()),
    }
}

/// Makes a file of this kind. Whoever needs a layout waits for an OST if there is none, and while their order changes. A replay was made with
/// the order that is stored, and waits for none: OSTs that came since then are known when recovery is over.
pub(in crate::mdt) async fn with_osts(
    mdt: &Mdt,
    ctx: &Ctx<'_>,
    kind: Option<FileKind>,
    make: impl FnOnce() -> Outcome,
) -> Outcome {
    if kind != Some(FileKind::File) {
        return make();
    }
    if ctx.replay.is_none() && mdt.objects.osts.table().order.is_empty() {
        Box::pin(mdt.objects.osts.wait_for_any(OST_WAIT)).await?;
    }
    loop {
        if let Some(_order) = mdt.objects.osts.current.ordered() {
            return make();
        }
        Box::pin(mdt.objects.osts.current.until_ordered()).await;
    }
}

pub(in crate::mdt) fn create(mdt: &Mdt, ctx: &Ctx, request: &Create) -> Outcome {
    let _name = mdt.names.locks.name(request.parent, &request.name);
    match mdt.names.find_entry(ctx, request.parent, &request.name)? {
        Some((fid, kind)) => create_over(mdt, ctx, request, fid, kind),
        None => create_new(mdt, ctx, request),
    }
}

/// The name exists: it can be opened at most.
fn create_over(mdt: &Mdt, ctx: &Ctx, request: &Create, fid: Fid, found: FileKind) -> Outcome {
    access::may(&request.cred, &mdt.names.dir(ctx, request.parent)?, ACCESS_EXECUTE)?;
    let opens = request.open & (OPEN_READ | OPEN_WRITE) != 0;
    if kind(request)? != FileKind::File || request.open & OPEN_EXCLUSIVE != 0 || !opens {
        return Err(Code::Exists.into());
    }
    match found {
        FileKind::File => {}
        FileKind::Dir => return Err(Code::IsDirectory.into()),
        _ => return Err(Code::Exists.into()),
    }
    let _inode = mdt.names.locks.inodes(&[fid]);
    let wanted = open::Wanted { fid, open: request.open, cred: &request.cred, keep: KEEP_NAME };
    open::open_inode(mdt, ctx, &wanted, |inode, handle| {
        Reply::Create(Created {
            attr: inode.attr(),
            layout: inode.layout.clone(),
            handle,
            existed: true,
            xattrs: inode.xattrs,
            lock: Granted::default(),
            range: None,
            spread: None,
        })
    })
}

fn create_new(mdt: &Mdt, ctx: &Ctx, request: &Create) -> Outcome {
    let _inodes = mdt.names.locks.inodes(&[request.parent, request.fid]);
    let Planned { inode, parent, opening, mut changes } = plan(mdt, ctx, request)?;
    changes.bound(mdt.quotas.bounds(mdt, ctx, &request.cred, &inode)?);
    let done = finish(mdt, ctx, changes, &New { inode: &inode, opening }, Reply::Create)?;
    let mut done = mdt.grants.keep_guarded(ctx, done, &inode, kept_of_new(opening))?;
    if opening.is_some_and(|opening| opening.writes) && request.open & OPEN_RANGE != 0 {
        mdt.grant_head(ctx, &inode, &mut done);
    }
    if request.open & OPEN_ALONE != 0 {
        grant_alone(mdt, ctx, &inode, &mut done);
    }
    if let (Some(foretold), Reply::Create(created)) = (&request.foretold, &mut done.reply) {
        created.spread = changed_spread(mdt, foretold, &parent);
    }
    Ok(done)
}

/// A new file as it will be.
pub(super) struct Planned {
    pub(super) inode: Inode,
    pub(super) parent: Inode,
    pub(super) opening: Option<Opening>,
    /// Without what limits say.
    pub(super) changes: Changes,
}

/// What is to be committed for a file whose name means nothing yet. The caller holds the guards of the name and of both inodes.
pub(super) fn plan(mdt: &Mdt, ctx: &Ctx, request: &Create) -> Step<Planned> {
    let mut parent = mdt.names.living_dir(ctx, request.parent)?;
    let mut inode = new_inode(mdt, ctx, &Wanted::of(request)?, &parent)?;
    let opens = inode.kind() == FileKind::File && request.open & (OPEN_READ | OPEN_WRITE) != 0;
    let writes = opens && request.open & OPEN_WRITE != 0;
    inode.size_known = !writes;
    if opens {
        ctx.data().has_room()?;
    }
    if inode.is_dir() {
        inode.parent = parent.fid;
        parent.nlink += 1;
    }
    parent.touch_data(request.time);
    let mut changes = Changes::default();
    changes.add_inode(&inode);
    changes.put_entry(parent.fid, &request.name, inode.fid, inode.kind());
    changes.put_inode(&parent, LOCK_UPDATE);
    let kind = match inode.kind() {
        FileKind::File => Kind::Create,
        FileKind::Dir => Kind::MakeDir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Char | FileKind::Block | FileKind::Fifo | FileKind::Socket => Kind::MakeNode,
    };
    mdt.tell(&mut changes, kind, inode.fid, changelog::named(parent.fid, &request.name, &request.cred));
    let opening = match opens {
        true => Some(Opening { handle: handle_of(ctx, request)?, writes }),
        false => None,
    };
    if let Some(opening) = opening.filter(|opening| opening.writes) {
        changes.put_raw(keys::open(ctx.session().client(), opening.handle), keys::open_value(inode.fid));
    }
    Ok(Planned { inode, parent, opening, changes })
}

/// Which bits of a new file its client may keep.
pub(super) fn kept_of_new(opening: Option<Opening>) -> u32 {
    if opening.is_some_and(|opening| !opening.writes) { KEEP_NAME | LOCK_OPEN } else { KEEP_NAME }
}

/// What names the open file: the number of the request, unless its client has foretold it.
fn handle_of(ctx: &Ctx, request: &Create) -> Result<u64, Code> {
    match &request.foretold {
        None => Ok(ctx.xid.0),
        Some(foretold) if foretold.handle == Foretold::handle_of(request.fid) => Ok(foretold.handle),
        Some(_) => Err(Code::Invalid),
    }
}

/// The client has the new directory to itself, if nothing that it tells ahead can be refused later: nobody has a limit of inodes, and
/// there is room.
fn grant_alone(mdt: &Mdt, ctx: &Ctx, dir: &Inode, done: &mut Done) {
    if !dir.is_dir() || !ctx.keeps() || mdt.quotas.is_used() || mdt.store.is_full() {
        return;
    }
    ctx.record(done);
    let Reply::Create(created) = &mut done.reply else { return };
    let lock = &mut created.lock;
    if lock.bits != 0 && mdt.grants.bits.grant_alone(ctx.session().handle(), dir.fid, lock.number) {
        lock.bits |= LOCK_ALONE;
        created.spread = Some(spread_in(mdt, dir));
    }
}

/// How new files in a directory lie.
fn spread_in(mdt: &Mdt, dir: &Inode) -> Spread {
    allocate::spread(&super::layout::effective_hint(mdt, dir), &mdt.objects.osts.table().order)
}

/// The same, if a client that foretold a layout does not know it.
pub(super) fn changed_spread(mdt: &Mdt, foretold: &Foretold, parent: &Inode) -> Option<Spread> {
    let layout = foretold.layout.as_ref()?;
    let now = spread_in(mdt, parent);
    let id = layout.components.first()?.id;
    (now.layout_of(id).as_ref() != Some(layout)).then_some(now)
}

/// How a new file is open from its first moment.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) handle: u64,
    pub(super) writes: bool,
}

/// A new file, and how it is open, if it is.
pub(super) struct New<'a> {
    pub(super) inode: &'a Inode,
    pub(super) opening: Option<Opening>,
}

/// Commits the changes that make a new file, opens it, and answers.
pub(super) fn finish(
    mdt: &Mdt,
    ctx: &Ctx,
    changes: Changes,
    new: &New<'_>,
    reply: impl FnOnce(Created) -> Reply,
) -> Outcome {
    let New { inode, opening } = *new;
    let created = Created {
        attr: inode.attr(),
        layout: inode.layout.clone(),
        handle: opening.map_or(0, |opening| opening.handle),
        existed: false,
        xattrs: inode.xattrs,
        lock: Granted::default(),
        range: None,
        spread: None,
    };
    let done = mdt.commit(ctx, changes, reply(created))?;
    opened(mdt, ctx, inode.fid, opening);
    Ok(done)
}

/// A new file is open from now on, if that was asked for. A client that repeats its create after a restart says by itself what it has open to
/// read ([`super::restate_opens`]): it may have closed the file again since, of which there is nothing to repeat.
pub(super) fn opened(mdt: &Mdt, ctx: &Ctx, fid: Fid, opening: Option<Opening>) {
    if let Some(Opening { handle, writes }) = opening.filter(|opening| opening.writes || ctx.replay.is_none())
    {
        let opener = Opener { session: ctx.session().handle(), handle };
        mdt.opens.open(fid, opener, OpenMode { write: writes, size_known: true });
        ctx.data().opened(handle, fid);
    }
}

/// The checks, and the inode as it will be.
pub(super) fn new_inode(mdt: &Mdt, ctx: &Ctx, wanted: &Wanted<'_>, parent: &Inode) -> Step<Inode> {
    let cred = wanted.cred;
    access::may_change(cred, parent)?;
    if matches!(wanted.kind, FileKind::Char | FileKind::Block) && !access::is_root(cred) {
        return Err(Code::NotPermitted.into());
    }
    if wanted.kind == FileKind::Dir && parent.nlink >= LINKS_MAX {
        return Err(Code::TooManyLinks.into());
    }
    if !ctx.data().owns(wanted.fid) || mdt.names.find_inode(ctx, wanted.fid)?.is_some() {
        return Err(Code::Invalid.into());
    }
    let mode = wanted.kind.mode_bits() | wanted.mode & MODE_PERMISSIONS;
    let mut inode = Inode::new(wanted.fid, mode, wanted.time);
    access::inherit(cred, parent, &mut inode)?;
    if parent.inherits {
        inode.project = parent.project;
        inode.inherits = inode.is_dir();
    }
    mdt.names.counted(ctx.reads(), &inode)?;
    if wanted.kind != FileKind::Symlink {
        access::inherit_acl(wanted.umask, parent, &mut inode);
    }
    match wanted.kind {
        FileKind::File => inode.layout = Some(layout_of_new(mdt, ctx, wanted, parent)?),
        FileKind::Dir if parent.fid != Fid::ROOT => inode.hint = parent.hint.clone(),
        FileKind::Symlink => {
            check_target(wanted.target)?;
            inode.size = wanted.target.len() as u64;
            inode.target = Bytes::copy_from_slice(wanted.target);
        }
        FileKind::Char | FileKind::Block => inode.rdev = wanted.rdev,
        FileKind::Dir | FileKind::Fifo | FileKind::Socket => {}
    }
    Ok(inode)
}

fn layout_of_new(mdt: &Mdt, ctx: &Ctx, wanted: &Wanted<'_>, parent: &Inode) -> Result<Layout, Code> {
    let table = mdt.objects.osts.table();
    if let Some(layout) = wanted.foretold {
        allocate::accept(layout, wanted.fid, &table.order)?;
        mdt.objects.osts.look_after(layout);
        return Ok(layout.clone());
    }
    let default = super::layout::effective_hint(mdt, parent);
    let hint = match wanted.hint {
        Some(wanted) => {
            allocate::check_pool(wanted, &table.order)?;
            allocate::inherit(wanted, &default)
        }
        None => default,
    };
    let hint = allocate::shortened(hint, &table.order);
    let layout = table.allocate(wanted.fid, &hint)?;
    mdt.objects.osts.look_after(&layout);
    if layout.is_overstriped() && ctx.session().features() & FEATURE_OVERSTRIPING == 0 {
        return Err(Code::NotSupported);
    }
    Ok(layout)
}

/// What a new inode is to be.
pub(super) struct Wanted<'a> {
    pub(super) fid: Fid,
    pub(super) kind: FileKind,
    /// Permissions.
    pub(super) mode: u32,
    /// Permissions that it does not get, unless there is a default ACL.
    pub(super) umask: u32,
    pub(super) rdev: u32,
    /// Target of a symbolic link.
    pub(super) target: &'a [u8],
    pub(super) hint: Option<&'a LayoutHint>,
    /// The layout that its client has foretold.
    pub(super) foretold: Option<&'a Layout>,
    pub(super) cred: &'a Cred,
    pub(super) time: Timestamp,
}

impl<'a> Wanted<'a> {
    fn of(request: &'a Create) -> Result<Wanted<'a>, Code> {
        Ok(Wanted {
            fid: request.fid,
            kind: kind(request)?,
            mode: request.mode,
            umask: request.umask,
            rdev: request.rdev,
            target: &request.target,
            hint: request.hint.as_ref(),
            foretold: request.foretold.as_ref().and_then(|foretold| foretold.layout.as_ref()),
            cred: &request.cred,
            time: request.time,
        })
    }
}

/// The kind that is to be made; a mode without one means a regular file, as for mknod(2).
pub(in crate::mdt) fn kind(request: &Create) -> Result<FileKind, Code> {
    match request.mode & MODE_KIND {
        0 => Ok(FileKind::File),
        _ => FileKind::from_mode(request.mode).ok_or(Code::Invalid),
    }
}

fn check_target(target: &[u8]) -> Result<(), Code> {
    match target.len() {
        0 => Err(Code::NotFound),
        len if len > SYMLINK_BYTES_MAX => Err(Code::NameTooLong),
        _ if target.contains(&0) => Err(Code::Invalid),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{World, name, user};
    use proto::wire::messages as msg;

    #[test]
    fn a_new_file_is_found_and_its_directory_changes() {
        let world = World::new();
        let client = world.client(1);
        let before = client.attr(Fid::ROOT).expect("the root exists");
        let dir = client.mkdir(Fid::ROOT, "d");
        let after = client.attr(Fid::ROOT).expect("the root exists");
        assert_eq!((before.nlink, after.nlink), (2, 3));
        assert!(after.mtime > before.mtime && after.ctime == after.mtime && after.version > before.version);
        let file = client.file(dir, "f");
        let found = client.lookup(dir, "f").expect("it was made");
        assert_eq!((found.fid, found.mode, found.nlink, found.size_known), (file, 0o100_644, 1, true));
        assert_eq!(found.version, client.attr(file).expect("it was made").version);
        let above = client.call(msg::Lookup { parent: dir, name: None, cred: Cred::root() });
        assert_eq!(above.expect("the root").attr.fid, Fid::ROOT);
        assert_eq!(client.lookup(dir, "g"), Err(Code::NotFound));
        assert_eq!(client.lookup(file, "g"), Err(Code::NotDirectory));
    }

    #[test]
    fn refusals() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        let file = client.file(Fid::ROOT, "f");
        let make =
            |parent, text, mode, uid| client.make(parent, text, mode, &user(uid)).map(|attr| attr.mode);
        assert_eq!(make(dir, "x", 0o100_644, 5), Err(Code::AccessDenied));
        assert_eq!(make(Fid::ROOT, "f", 0o100_644, 5), Err(Code::Exists), "before the right to write");
        assert_eq!(make(file, "x", 0o100_644, 0), Err(Code::NotDirectory));
        client.chmod(dir, 0o777);
        assert_eq!(make(dir, "x", 0o020_644, 5), Err(Code::NotPermitted));
        assert_eq!(make(dir, "x", 0o030_644, 5), Err(Code::Invalid));
        assert_eq!(make(dir, "x", 0o010_644, 5), Ok(0o010_644));
        let gone = client.mkdir(Fid::ROOT, "gone");
        client.rmdir(Fid::ROOT, "gone").expect("it is empty");
        assert_eq!(make(gone, "x", 0o100_644, 0), Err(Code::Stale));
        let link = |target: &[u8]| {
            let target = Bytes::copy_from_slice(target);
            let request = msg::Create { target, ..client.create_request(dir, "l", 0o120_777) };
            client.call(request).map(|created| created.attr.size)
        };
        assert_eq!(link(b""), Err(Code::NotFound));
        assert_eq!(link(&[b'x'; 4096]), Err(Code::NameTooLong));
        assert_eq!(link(b"to"), Ok(2));
    }

    #[test]
    fn names_come_from_the_sessions_sequence_and_once() {
        let world = World::new();
        let (client, other) = (world.client(1), world.client(2));
        let fid = client.file(Fid::ROOT, "a");
        let mut request = client.create_request(Fid::ROOT, "b", 0o100_644);
        request.fid = fid;
        assert_eq!(client.call(request.clone()), Err(Code::Invalid));
        request.fid = other.new_fid();
        assert_eq!(client.call(request), Err(Code::Invalid));
    }

    #[test]
    fn create_and_open() {
        let world = World::new();
        let client = world.client(1);
        let request =
            |open| msg::Create { open, cred: user(5), ..client.create_request(Fid::ROOT, "f", 0o100_000) };
        client.chmod(Fid::ROOT, 0o777);
        let made = client.call(request(OPEN_WRITE)).expect("whoever makes a file may write it once");
        assert!(!made.existed && made.handle != 0 && !made.attr.size_known);
        assert_eq!(client.call(request(OPEN_WRITE)), Err(Code::AccessDenied));
        assert_eq!(client.call(request(OPEN_WRITE | OPEN_EXCLUSIVE)), Err(Code::Exists));
        assert_eq!(client.call(request(0)), Err(Code::Exists));
        client.chmod(made.attr.fid, 0o644);
        let again = client.call(request(OPEN_READ)).expect("its owner may read");
        assert!(again.existed && again.attr.fid == made.attr.fid);
        client.mkdir(Fid::ROOT, "d");
        let over = |text: &str| msg::Create { name: name(text), ..request(OPEN_READ) };
        assert_eq!(client.call(over("d")), Err(Code::IsDirectory));
        client.close(made.attr.fid, made.handle, false, None);
        assert!(client.attr(made.attr.fid).expect("it exists").size_known);
    }

    #[test]
    fn layouts_follow_hint_directory_and_root() {
        let world = World::new();
        let client = world.client(1);
        let hint = |count| LayoutHint { stripe_count: count, ..LayoutHint::default() };
        let osts = |parent, text: &str, hint| {
            let layout = client.file_with(parent, text, hint).expect("a layout").layout.expect("of a file");
            layout.osts().map(|ost| ost.0).collect::<Vec<_>>()
        };
        let mut single: Vec<u32> =
            ["a", "b", "c", "d"].iter().flat_map(|text| osts(Fid::ROOT, text, hint(0))).collect();
        single.sort_unstable();
        assert_eq!(single, [0, 1, 2, 3]);
        assert_eq!(osts(Fid::ROOT, "e", hint(-1)).len(), 4);
        client.unlink(Fid::ROOT, "d").expect("it was made");
        let dir = client.mkdir(Fid::ROOT, "d");
        let set = |fid, hint| {
            let request = msg::SetLayout { fid, hint, cred: Cred::root(), time: client.time() };
            client.call(request).expect("root may");
        };
        set(Fid::ROOT, Some(LayoutHint { stripe_size: 65_536, ..hint(4) }));
        assert_eq!(osts(dir, "a", hint(0)).len(), 4, "the root's default holds below");
        set(dir, Some(hint(2)));
        let sub = client.mkdir(dir, "sub");
        set(dir, Some(hint(3)));
        assert_eq!(osts(sub, "a", hint(0)).len(), 2, "a new directory has a copy");
        let request = client.create_request(dir, "b", 0o100_644);
        let layout = client.call(request).expect("a layout").layout.expect("of a file");
        assert_eq!((layout.object_count(), layout.components[0].stripe_size), (3, 65_536));
        let bad = LayoutHint { stripe_size: 65_537, ..hint(1) };
        assert_eq!(client.file_with(dir, "x", bad).map(drop), Err(Code::Invalid));
    }

    const OSTS: [(u32, &str); 4] = [(0, "a"), (1, "a"), (2, "b"), (3, "b")];

    #[test]
    fn pools_bound_new_files_and_are_inherited() {
        let world = World::new();
        world.set_pools(&OSTS, &[("flash", &[1, 3]), ("disk", &[0]), ("empty", &[])]);
        let client = world.client(1);
        let hint = |pool: &str, count| LayoutHint {
            pool: pool.into(),
            stripe_count: count,
            ..LayoutHint::default()
        };
        let make = |parent, text: &str, hint| {
            let layout = client.file_with(parent, text, hint)?.layout.expect("of a file");
            let mut osts: Vec<u32> = layout.osts().map(|ost| ost.0).collect();
            osts.sort_unstable();
            Ok((osts, layout.components[0].pool.clone()))
        };
        let is = |osts: &[u32], pool: &str| Ok((osts.to_vec(), pool.to_owned()));
        assert_eq!(make(Fid::ROOT, "a", hint("flash", -1)), is(&[1, 3], "flash"));
        assert_eq!(make(Fid::ROOT, "b", hint("gone", 1)), Err(Code::NotFound));
        assert_eq!(make(Fid::ROOT, "b", hint("empty", 1)), Err(Code::NoSpace));
        let set = |fid, hint| {
            client.call(msg::SetLayout { fid, hint, cred: Cred::root(), time: client.time() }).map(drop)
        };
        let dir = client.mkdir(Fid::ROOT, "d");
        assert_eq!(set(dir, Some(hint("gone", 1))), Err(Code::NotFound));
        assert_eq!(set(dir, Some(LayoutHint { start_index: 0, ..hint("flash", 1) })), Err(Code::Invalid));
        set(dir, Some(hint("flash", -1))).expect("there is such a pool");
        let sub = client.mkdir(dir, "sub");
        assert_eq!(make(sub, "a", LayoutHint::default()), is(&[1, 3], "flash"), "a new directory has a copy");
        assert_eq!(make(dir, "b", hint("", 2)), is(&[1, 3], "flash"), "what is not said comes from above");
        assert_eq!(make(dir, "c", hint("disk", 0)), is(&[0], "disk"));
        assert_eq!(make(dir, "e", hint("ignore", -1)), is(&[0, 1, 2, 3], ""));
        let first = LayoutHint { start_index: 2, ..hint("", 1) };
        assert_eq!(make(dir, "f", first), is(&[2], ""), "who names an OST gets it");
        set(Fid::ROOT, Some(hint("disk", 1))).expect("there is such a pool");
        let plain = client.mkdir(Fid::ROOT, "plain");
        assert_eq!(
            make(plain, "a", LayoutHint::default()),
            is(&[0], "disk"),
            "the root's default holds below"
        );

        // What becomes of a pool changes no file. Its name in a default means all OSTs when it is no more.
        let before = client.lookup(sub, "a").expect("it was made").fid;
        world.set_pools(&OSTS, &[("flash", &[2]), ("disk", &[])]);
        assert_eq!(make(sub, "b", LayoutHint::default()), is(&[2], "flash"));
        assert_eq!(make(plain, "b", LayoutHint::default()), Err(Code::NoSpace));
        world.set_pools(&OSTS, &[]);
        assert_eq!(make(sub, "c", LayoutHint::default()), is(&[0, 1, 2, 3], ""));
        let kept = client.call(msg::GetAttr { fid: before }).expect("it was made").layout.expect("of a file");
        assert_eq!((kept.object_count(), kept.components[0].pool.as_str()), (2, "flash"));
    }

    /// The client has used the layout that it was given before the crash, whatever the pool is like now.
    #[test]
    fn a_replay_finds_the_pool_that_it_was_made_in() {
        let world = World::new();
        world.set_pools(&OSTS, &[("flash", &[1, 3])]);
        let table = world.target.handler().objects.osts.table();
        let World { sim, target, store, .. } = world;
        sim.crash(crate::mdt::testing::NODE);
        drop((target, store));
        let rt = rt::Rt::sim(sim.restart(crate::mdt::testing::NODE));
        let (target, _store) = sim.run(crate::mdt::testing::open(rt, Default::default()));
        let again = target.handler().objects.osts.table();
        assert_eq!(again.order, table.order);
        assert_eq!(
            again.order.pools().map(|(name, osts)| (name, osts.len())).collect::<Vec<_>>(),
            [("flash", 2)]
        );
    }

    #[test]
    fn without_osts_there_is_no_space_after_a_while() {
        let world = World::new();
        world.set_osts(&[]);
        let client = world.client(1);
        let before = world.sim.now();
        assert_eq!(client.make(Fid::ROOT, "f", 0o100_644, &Cred::root()).map(drop), Err(Code::NoSpace));
        assert_eq!(world.sim.now() - before, OST_WAIT);
        client.mkdir(Fid::ROOT, "d");
        let (before, again) = (world.sim.now(), client.create_request(Fid::ROOT, "g", 0o100_644));
        client.replay(500, proto::Transno(world.store.last_transno().0 + 1), again);
        assert!(world.sim.now() - before < OST_WAIT / 60, "a replay waits for nobody");
    }
}
