//! Rename: a file gets another name, atomically, perhaps in the place of another file.

use proto::changelog::{Kind, LAST_REPLACED, Record};
use proto::limits::LINKS_MAX;
use proto::wire::Reply;
use proto::wire::messages::{
    ACCESS_EXECUTE, ACCESS_WRITE, LOCK_LOOKUP, LOCK_UPDATE, RENAME_EXCHANGE, RENAME_NOREPLACE, Rename,
    Renamed,
};
use proto::{Code, Fid, FileKind, Timestamp};
use service::Done;
use smallvec::SmallVec;

use crate::mdt::inode::Inode;
use crate::mdt::plan::Step;
use crate::mdt::{Changes, Ctx, Mdt, Outcome, access, changelog};

/// How often the entries are read again because they changed before they were locked.
const RETRIES_MAX: usize = 100;

type Entry = Option<(Fid, FileKind)>;

/// The two directories; one and the same has to be changed once.
struct Parents {
    old: Inode,
    /// `None` if it is the same as `old`.
    new: Option<Inode>,
}

/// What moves, and between which directories.
struct Moving {
    parents: Parents,
    source: Inode,
}

/// What has the new name.
enum Onto {
    Nothing,
    /// It goes.
    Replaced(Inode),
    /// It gets the old name.
    Exchanged(Inode),
}

impl Onto {
    fn target(&self) -> Option<&Inode> {
        match self {
            Onto::Nothing => None,
            Onto::Replaced(target) | Onto::Exchanged(target) => Some(target),
        }
    }

    /// What gets the old name, if it is a directory.
    fn exchanged_dir(&self) -> Option<&Inode> {
        match self {
            Onto::Exchanged(target) => Some(target).filter(|target| target.is_dir()),
            Onto::Nothing | Onto::Replaced(_) => None,
        }
    }

    /// What goes.
    fn replaced(&self) -> Option<&Inode> {
        match self {
            Onto::Replaced(target) => Some(target),
            Onto::Nothing | Onto::Exchanged(_) => None,
        }
    }
}

pub(in crate::mdt) fn rename(mdt: &Mdt, ctx: &Ctx, request: &Rename) -> Outcome {
    let exchange = request.flags & RENAME_EXCHANGE != 0;
    let noreplace = request.flags & RENAME_NOREPLACE != 0;
    if request.flags & !(RENAME_EXCHANGE | RENAME_NOREPLACE) != 0 || exchange && noreplace {
        return Err(Code::Invalid.into());
    }
    for _ in 0..RETRIES_MAX {
        let (old, new) = both_entries(mdt, ctx, request)?;
        let reparents = request.parent != request.new_parent && (is_dir(old) || exchange && is_dir(new));
        let _tree = reparents.then(|| mdt.names.locks.rename());
        let _names =
            mdt.names.locks.names((request.parent, &request.name), (request.new_parent, &request.new_name));
        if both_entries(mdt, ctx, request)? == (old, new) {
            let done = rename_locked(mdt, ctx, request, old, new)?;
            if reparents {
                mdt.names.locks.moved();
            }
            return Ok(done);
        }
    }
    Err(Code::TryAgain.into())
}

fn both_entries(mdt: &Mdt, ctx: &Ctx, request: &Rename) -> Step<(Entry, Entry)> {
    Ok((
        mdt.names.find_entry(ctx, request.parent, &request.name)?,
        mdt.names.find_entry(ctx, request.new_parent, &request.new_name)?,
    ))
}

/// The names are locked, and the tree if a directory gets another parent.
fn rename_locked(mdt: &Mdt, ctx: &Ctx, request: &Rename, old: Entry, new: Entry) -> Outcome {
    let cred = &request.cred;
    let fids: SmallVec<[Fid; 4]> = [Some(request.parent), Some(request.new_parent)]
        .into_iter()
        .chain([old.map(|entry| entry.0), new.map(|entry| entry.0)])
        .flatten()
        .collect();
    let _inodes = mdt.names.locks.inodes(&fids);
    let parents = parents(mdt, ctx, request)?;
    access::may(cred, &parents.old, ACCESS_EXECUTE)?;
    access::may(cred, parents.to(), ACCESS_EXECUTE)?;
    let Some((source, _)) = old else { return Err(Code::NotFound.into()) };
    let source = mdt.names.inode(ctx, source)?;
    let target = new.map(|(fid, _)| mdt.names.inode(ctx, fid)).transpose()?;
    let exchange = request.flags & RENAME_EXCHANGE != 0;
    let onto = match target {
        Some(_) if request.flags & RENAME_NOREPLACE != 0 => return Err(Code::Exists.into()),
        None if exchange => return Err(Code::NotFound.into()),
        None => Onto::Nothing,
        Some(target) if exchange => Onto::Exchanged(target),
        Some(target) => Onto::Replaced(target),
    };
    check_tree(mdt, ctx, request, &source, &onto)?;
    if onto.target().is_some_and(|target| target.fid == source.fid) {
        let renamed = Renamed { fid: source.fid, replaced: None };
        return Ok(Done::unchanged(Reply::Rename(renamed)));
    }
    let moving = Moving { parents, source };
    check_rights(request, &moving, &onto)?;
    check_projects(&moving, &onto)?;
    match onto {
        Onto::Nothing => replace_target(mdt, ctx, request, moving, None),
        Onto::Replaced(target) => replace_target(mdt, ctx, request, moving, Some(target)),
        Onto::Exchanged(target) => exchange_both(mdt, ctx, request, moving, target),
    }
}

/// What is in a directory that passes its project on is all of that project, as XFS and ext4 have it.
fn check_projects(moving: &Moving, onto: &Onto) -> Result<(), Code> {
    let Some(new) = &moving.parents.new else { return Ok(()) };
    let comes_back = match onto {
        Onto::Exchanged(target) => target.fits_into(&moving.parents.old),
        Onto::Nothing | Onto::Replaced(_) => true,
    };
    if moving.source.fits_into(new) && comes_back { Ok(()) } else { Err(Code::CrossDevice) }
}

fn parents(mdt: &Mdt, ctx: &Ctx, request: &Rename) -> Step<Parents> {
    let old = mdt.names.dir(ctx, request.parent)?;
    if request.parent == request.new_parent {
        return Ok(Parents { old, new: None });
    }
    Ok(Parents { old, new: Some(mdt.names.living_dir(ctx, request.new_parent)?) })
}

/// A directory must not come to lie below itself.
fn check_tree(mdt: &Mdt, ctx: &Ctx, request: &Rename, source: &Inode, onto: &Onto) -> Step<()> {
    if request.parent == request.new_parent {
        return Ok(());
    }
    let is_above = |upper: &Inode, lower| ctx.plan.is_above(upper.fid, lower, mdt.names.locks.moves());
    if source.is_dir() && is_above(source, request.new_parent)? {
        return Err(Code::Invalid.into());
    }
    if let Some(target) = onto.exchanged_dir()
        && is_above(target, request.parent)?
    {
        return Err(Code::Invalid.into());
    }
    // Without an exchange the tree is not locked against moves above a directory that is to be replaced; it
    // has entries then, and that is looked at under its lock.
    if onto.replaced().is_some_and(|target| target.is_dir() && target.fid == request.parent) {
        return Err(Code::NotEmpty.into());
    }
    Ok(())
}

fn replace_target(mdt: &Mdt, ctx: &Ctx, request: &Rename, moving: Moving, target: Option<Inode>) -> Outcome {
    let Moving { mut parents, mut source } = moving;
    let mut changes = Changes::default();
    let replaced = target.as_ref().map(|target| target.fid);
    let last = target.as_ref().is_some_and(|target| target.is_dir() || target.nlink <= 1);
    let onto = replaced.unwrap_or(Fid::ZERO);
    mdt.tell(&mut changes, Kind::Rename, onto, |record| Record {
        flags: if last { LAST_REPLACED } else { 0 },
        ..moved(record, request, source.fid)
    });
    if let Some(mut target) = target {
        if target.is_dir() && !mdt.names.is_empty(ctx, &target)? {
            return Err(Code::NotEmpty.into());
        }
        changes.remove_link(request.new_parent, &request.new_name, target.fid);
        if target.is_dir() {
            parents.to_mut().lose_link();
            mdt.drop_name(&ctx.plan, &mut changes, &mut target, request.time)?;
        } else if target.nlink <= 1 {
            mdt.drop_name(&ctx.plan, &mut changes, &mut target, request.time)?;
        } else {
            target.lose_link();
            target.touch(request.time);
            changes.put_inode(&target, LOCK_LOOKUP | LOCK_UPDATE);
        }
    }
    changes.remove_entry(request.parent, &request.name, source.fid);
    changes.put_entry(request.new_parent, &request.new_name, source.fid, source.kind());
    parents.moved(&mut source, request.new_parent);
    source.touch(request.time);
    changes.put_inode(&source, LOCK_LOOKUP | LOCK_UPDATE);
    parents.finish(&mut changes, request.time);
    mdt.commit(ctx, changes, Reply::Rename(Renamed { fid: source.fid, replaced }))
}

fn exchange_both(mdt: &Mdt, ctx: &Ctx, request: &Rename, moving: Moving, mut target: Inode) -> Outcome {
    let Moving { mut parents, mut source } = moving;
    let mut changes = Changes::default();
    // Two records: each file has another name afterwards, and none replaces the other.
    mdt.tell(&mut changes, Kind::Rename, Fid::ZERO, |record| moved(record, request, source.fid));
    mdt.tell(&mut changes, Kind::Rename, Fid::ZERO, |record| moved(record, &back(request), target.fid));
    changes.remove_link(request.parent, &request.name, source.fid);
    changes.remove_link(request.new_parent, &request.new_name, target.fid);
    changes.put_entry(request.parent, &request.name, target.fid, target.kind());
    changes.put_entry(request.new_parent, &request.new_name, source.fid, source.kind());
    parents.moved(&mut source, request.new_parent);
    parents.moved_back(&mut target, request.parent);
    for inode in [&mut source, &mut target] {
        inode.touch(request.time);
        changes.put_inode(inode, LOCK_LOOKUP | LOCK_UPDATE);
    }
    parents.finish(&mut changes, request.time);
    let renamed = Renamed { fid: source.fid, replaced: Some(target.fid) };
    mdt.commit(ctx, changes, Reply::Rename(renamed))
}

/// A record of `source` getting its new name.
fn moved(record: Record, request: &Rename, source: Fid) -> Record {
    let named = changelog::named(request.new_parent, &request.new_name, &request.cred);
    Record { source, source_parent: request.parent, source_name: request.name.to_bytes(), ..named(record) }
}

/// The way back, as the other file of an exchange takes it.
fn back(request: &Rename) -> Rename {
    Rename {
        parent: request.new_parent,
        name: request.new_name.clone(),
        new_parent: request.parent,
        new_name: request.name.clone(),
        ..request.clone()
    }
}

impl Parents {
    /// The directory of the new name.
    fn to(&self) -> &Inode {
        self.new.as_ref().unwrap_or(&self.old)
    }

    fn to_mut(&mut self) -> &mut Inode {
        self.new.as_mut().unwrap_or(&mut self.old)
    }

    /// `inode` goes from the old directory to the new one.
    fn moved(&mut self, inode: &mut Inode, to: Fid) {
        if let Some(new) = &mut self.new
            && inode.is_dir()
        {
            inode.parent = to;
            self.old.lose_link();
            new.nlink += 1;
        }
    }

    /// `inode` goes from the new directory to the old one.
    fn moved_back(&mut self, inode: &mut Inode, to: Fid) {
        if let Some(new) = &mut self.new
            && inode.is_dir()
        {
            inode.parent = to;
            self.old.nlink += 1;
            new.lose_link();
        }
    }

    fn finish(mut self, changes: &mut Changes, time: Timestamp) {
        for inode in [Some(&mut self.old), self.new.as_mut()].into_iter().flatten() {
            inode.touch_data(time);
            changes.put_inode(inode, LOCK_UPDATE);
        }
    }
}

fn is_dir(entry: Entry) -> bool {
    entry.is_some_and(|(_, kind)| kind == FileKind::Dir)
}

/// Whether the caller may do it, and whether the kinds fit; in the order in which Linux looks.
fn check_rights(request: &Rename, moving: &Moving, onto: &Onto) -> Result<(), Code> {
    let cred = &request.cred;
    let Moving { parents, source } = moving;
    access::may_remove(cred, &parents.old, source)?;
    match onto.target() {
        None => access::may_change(cred, parents.to())?,
        Some(target) => access::may_remove(cred, parents.to(), target)?,
    }
    match onto.replaced().map(|target| (source.is_dir(), target.is_dir())) {
        Some((true, false)) => return Err(Code::NotDirectory),
        Some((false, true)) => return Err(Code::IsDirectory),
        Some((true, true) | (false, false)) | None => {}
    }
    let Some(new_parent) = &parents.new else { return Ok(()) };
    // Its entry ".." changes.
    if source.is_dir() {
        access::may(cred, source, ACCESS_WRITE)?;
    }
    if let Some(target) = onto.exchanged_dir() {
        access::may(cred, target, ACCESS_WRITE)?;
    }
    let gains = |comes: bool, goes: bool, parent: &Inode| comes && !goes && parent.nlink >= LINKS_MAX;
    let target_is_dir = onto.target().is_some_and(Inode::is_dir);
    if gains(source.is_dir(), target_is_dir, new_parent)
        || onto.exchanged_dir().is_some() && gains(true, source.is_dir(), &parents.old)
    {
        return Err(Code::TooManyLinks);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::keys;
    use crate::mdt::testing::{Client, World, user};
    use proto::Cred;
    use proto::wire::messages as msg;

    fn nlinks(client: &Client, fids: &[Fid]) -> Vec<u32> {
        fids.iter().map(|fid| client.attr(*fid).expect("it exists").nlink).collect()
    }

    #[test]
    fn refusals() {
        let world = World::new();
        let client = world.client(1);
        let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
        let sub = client.mkdir(a, "sub");
        client.file(sub, "x");
        client.file(a, "f");
        client.file(b, "g");
        client.mkdir(b, "empty");
        let (no, swap) = (RENAME_NOREPLACE, RENAME_EXCHANGE);
        let root = Fid::ROOT;
        type Place = (Fid, &'static str);
        let table: &[(Place, Place, u32, Code)] = &[
            ((a, "missing"), (b, "x"), 0, Code::NotFound),
            ((a, "f"), (b, "empty"), 0, Code::IsDirectory),
            ((b, "empty"), (a, "f"), 0, Code::NotDirectory),
            ((b, "empty"), (a, "sub"), 0, Code::NotEmpty),
            ((a, "sub"), (sub, "y"), 0, Code::Invalid),
            ((root, "a"), (sub, "y"), 0, Code::Invalid),
            ((root, "a"), (a, "y"), 0, Code::Invalid),
            ((sub, "x"), (a, "sub"), 0, Code::NotEmpty),
            ((a, "f"), (b, "g"), no, Code::Exists),
            ((a, "f"), (b, "missing"), swap, Code::NotFound),
            ((root, "a"), (a, "sub"), swap, Code::Invalid),
            ((a, "sub"), (root, "a"), swap, Code::Invalid),
            ((a, "f"), (b, "g"), no | swap, Code::Invalid),
            ((a, "f"), (b, "g"), 4, Code::Invalid),
        ];
        for (from, to, flags, expected) in table {
            let refused = client.rename(*from, *to, *flags, &Cred::root());
            assert_eq!(refused, Err(*expected), "{} to {}", from.1, to.1);
        }
        assert_eq!(client.rename((a, "f"), (b, "z"), 0, &user(5)), Err(Code::AccessDenied));
    }

    #[test]
    fn rights() {
        let world = World::new();
        let client = world.client(1);
        let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
        for dir in [a, b] {
            client.chmod(dir, 0o777);
        }
        let dir = client.make(a, "d", 0o040_755, &user(6)).expect("allowed").fid;
        client.make(a, "f", 0o100_644, &user(6)).expect("allowed");
        client.make(b, "g", 0o100_644, &user(7)).expect("allowed");
        let rename = |from, to, uid| client.rename(from, to, 0, &user(uid)).map(drop);
        assert_eq!(rename((a, "d"), (b, "d"), 5), Err(Code::AccessDenied), "its \"..\" cannot be written");
        assert_eq!(rename((a, "d"), (a, "e"), 5), Ok(()));
        client.chmod(b, 0o1777);
        assert_eq!(rename((a, "f"), (b, "g"), 6), Err(Code::NotPermitted), "the target is another's");
        client.chmod(a, 0o1777);
        assert_eq!(rename((a, "f"), (b, "h"), 7), Err(Code::NotPermitted), "the source is another's");
        assert_eq!(rename((a, "e"), (b, "e"), 6), Ok(()));
        assert_eq!(client.attr(dir).map(|attr| attr.nlink), Ok(2));
    }

    #[test]
    fn directories_move_with_their_links() {
        let world = World::new();
        let client = world.client(1);
        let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
        let dir = client.mkdir(a, "d");
        let root = Cred::root();
        client.rename((a, "d"), (b, "e"), 0, &root).expect("nothing in the way");
        assert_eq!(nlinks(&client, &[a, b, dir]), [2, 3, 2]);
        let above = client.call(msg::Lookup { parent: dir, name: None, cred: Cred::root() });
        assert_eq!(above.map(|entry| entry.attr.fid), Ok(b));
        let other = client.mkdir(a, "o");
        let renamed = client.rename((b, "e"), (a, "o"), 0, &root).expect("an empty directory gives way");
        assert_eq!(renamed, Renamed { fid: dir, replaced: Some(other) });
        assert_eq!(nlinks(&client, &[a, b, dir]), [3, 2, 2]);
        assert_eq!(client.attr(other), Err(Code::Stale));
        let paths = client.call(msg::FidToPath { fid: dir, cred: Cred::root() }).expect("it exists").paths;
        assert_eq!(paths, ["a/o"]);
        let file = client.file(b, "f");
        client.rename((a, "o"), (b, "f"), RENAME_EXCHANGE, &root).expect("both exist");
        assert_eq!(nlinks(&client, &[a, b, dir, file]), [2, 3, 2, 1]);
        let paths = |fid| client.call(msg::FidToPath { fid, cred: Cred::root() }).expect("it exists").paths;
        assert_eq!((paths(dir), paths(file)), (vec!["b/f".into()], vec!["a/o".into()]));
        assert_eq!((world.keys(keys::ENTRY), world.keys(keys::LINK)), (4, 4));
    }

    #[test]
    fn names_change_places() {
        let world = World::new();
        let client = world.client(1);
        let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
        let (x, y) = (client.mkdir(a, "x"), client.mkdir(b, "y"));
        let inner = client.mkdir(x, "inner");
        let file = client.file(a, "f");
        let root = Cred::root();
        let swap = |from, to| client.rename(from, to, RENAME_EXCHANGE, &root);
        // Full directories of two parents.
        client.file(y, "full");
        assert_eq!(swap((a, "x"), (b, "y")), Ok(Renamed { fid: x, replaced: Some(y) }));
        assert_eq!(nlinks(&client, &[a, b, x, y]), [3, 3, 3, 2]);
        let above = |fid| client.call(msg::Lookup { parent: fid, name: None, cred: Cred::root() });
        assert_eq!((above(x).map(|e| e.attr.fid), above(y).map(|e| e.attr.fid)), (Ok(b), Ok(a)));
        assert_eq!(
            client.call(msg::FidToPath { fid: inner, cred: Cred::root() }).map(|p| p.paths),
            Ok(vec!["b/y/inner".into()])
        );
        // A file and a directory of one parent, and of two: the count of directories moves along.
        swap((a, "x"), (a, "f")).expect("both exist");
        assert_eq!(nlinks(&client, &[a, b, y, file]), [3, 3, 2, 1]);
        swap((a, "x"), (b, "y")).expect("a file and a directory");
        assert_eq!(nlinks(&client, &[a, b, x, y, file]), [4, 2, 3, 2, 1]);
        // Two names of one file stay as they are.
        let (name, time) = (crate::mdt::testing::name("twin"), client.time());
        client.call(msg::Link { fid: file, parent: a, name, cred: Cred::root(), time }).expect("root may");
        assert_eq!(swap((b, "y"), (a, "twin")), Ok(Renamed { fid: file, replaced: None }));
        let twin = client.rename((b, "y"), (a, "twin"), RENAME_NOREPLACE, &root);
        assert_eq!(twin, Err(Code::Exists), "a name that exists is in the way, whatever it means");
        client.rename((b, "y"), (b, "z"), RENAME_NOREPLACE, &root).expect("the name is free");
        assert_eq!((client.names(a).len(), client.names(b)), (3, vec!["z".to_owned()]));
        assert_eq!(world.keys(keys::ENTRY), world.keys(keys::LINK));
    }

    #[test]
    fn places_change_only_with_the_right_to_take_both_names() {
        let world = World::new();
        let client = world.client(1);
        let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
        for dir in [a, b] {
            client.chmod(dir, 0o1777);
        }
        client.make(a, "five", 0o100_644, &user(5)).expect("allowed");
        client.make(b, "six", 0o100_644, &user(6)).expect("allowed");
        client.make(b, "also", 0o100_644, &user(5)).expect("allowed");
        let dir = client.make(b, "dir", 0o040_755, &user(6)).expect("allowed").fid;
        let swap = |from, to, uid| client.rename(from, to, RENAME_EXCHANGE, &user(uid)).map(drop);
        assert_eq!(swap((a, "five"), (b, "six"), 5), Err(Code::NotPermitted), "the other is another's");
        assert_eq!(swap((a, "five"), (b, "six"), 6), Err(Code::NotPermitted), "the one is another's");
        assert_eq!(swap((a, "five"), (b, "also"), 5), Ok(()));
        client.chmod(b, 0o777);
        assert_eq!(swap((a, "five"), (b, "dir"), 5), Err(Code::AccessDenied), "its \"..\" cannot be written");
        client.chmod(dir, 0o777);
        assert_eq!(swap((a, "five"), (b, "dir"), 5), Ok(()));
        assert_eq!(nlinks(&client, &[a, b]), [3, 2]);
    }

    #[test]
    fn a_directory_has_room_for_so_many_others() {
        let world = World::new();
        let client = world.client(1);
        let (a, b) = (client.mkdir(Fid::ROOT, "a"), client.mkdir(Fid::ROOT, "b"));
        client.mkdir(a, "d");
        client.mkdir(b, "e");
        client.file(b, "f");
        world.set_nlink(b, LINKS_MAX);
        let rename = |name, to, flags| client.rename((a, name), (b, to), flags, &Cred::root()).map(drop);
        assert_eq!(rename("d", "g", 0), Err(Code::TooManyLinks));
        assert_eq!(rename("d", "f", RENAME_EXCHANGE), Err(Code::TooManyLinks));
        assert_eq!(rename("d", "e", RENAME_EXCHANGE), Ok(()), "one comes, one goes");
        assert_eq!(client.make(b, "g", 0o040_755, &Cred::root()).map(drop), Err(Code::TooManyLinks));
        let file = client.lookup(b, "f").expect("it was made").fid;
        world.set_nlink(file, LINKS_MAX);
        let (name, time) = (crate::mdt::testing::name("again"), client.time());
        let link = msg::Link { fid: file, parent: b, name, cred: Cred::root(), time };
        assert_eq!(client.call(link), Err(Code::TooManyLinks));
    }

    #[test]
    fn files_replace_files() {
        let world = World::new();
        let client = world.client(1);
        let (f, g) = (client.file(Fid::ROOT, "f"), client.file(Fid::ROOT, "g"));
        let link = |fid, text| {
            let name = crate::mdt::testing::name(text);
            let (cred, time) = (Cred::root(), client.time());
            client.call(msg::Link { fid, parent: Fid::ROOT, name, cred, time }).expect("root may")
        };
        assert_eq!(link(f, "same").attr.nlink, 2);
        let before = client.attr(Fid::ROOT).expect("the root exists");
        let root = Cred::root();
        let same = client.rename((Fid::ROOT, "f"), (Fid::ROOT, "same"), 0, &root);
        assert_eq!(same, Ok(Renamed { fid: f, replaced: None }));
        assert_eq!(client.attr(Fid::ROOT), Ok(before), "two names of one file: nothing happens");
        link(g, "g2");
        client.rename((Fid::ROOT, "f"), (Fid::ROOT, "g"), 0, &root).expect("root may");
        assert_eq!(nlinks(&client, &[f, g]), [2, 1]);
        client.rename((Fid::ROOT, "g"), (Fid::ROOT, "g2"), 0, &root).expect("root may");
        assert_eq!(client.attr(g), Err(Code::Stale));
        assert_eq!(client.rename((Fid::ROOT, "g2"), (Fid::ROOT, "g2"), 0, &root).map(|r| r.fid), Ok(f));
        assert_eq!(client.names(Fid::ROOT).len(), 2);
        assert_eq!((world.keys(keys::ENTRY), world.keys(keys::LINK)), (2, 2));
    }
}
