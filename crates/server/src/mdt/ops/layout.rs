//! SetLayout, GetDefaultLayout and SwapLayouts: on which OSTs files lie (FEATURES L11, L17, L18).

use proto::changelog::Kind;
use proto::hsm::flag;
use proto::layout::LayoutHint;
use proto::wire::Reply;
use proto::wire::messages::{
    ACCESS_WRITE, DefaultLayout, FEATURE_OVERSTRIPING, GetDefaultLayout, LOCK_LAYOUT, LOCK_UPDATE, PlaceData,
    SetLayout, SwapLayouts,
};
use proto::{Code, Fid, FileKind, Layout, OstIndex};
use service::{Done, VERSION_OF_THIS, code_of};

use super::create::until_pools;
use crate::mdt::inode::Inode;
use crate::mdt::keep::KEEP_ATTRS;
use crate::mdt::{Changes, Ctx, Halt, Mdt, Outcome, access, allocate, changelog, place};

/// The reply comes when the layout is durable: a replay would give the file another one than the client has
/// used already.
pub(in crate::mdt) async fn set_layout(mdt: &Mdt, ctx: &Ctx<'_>, request: &SetLayout) -> Outcome {
    until_pools(mdt, request.hint.as_ref()).await;
    mdt.sequences.ready(&mdt.store).await?;
    let done = set_layout_now(mdt, ctx, request)?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}

fn set_layout_now(mdt: &Mdt, ctx: &Ctx, request: &SetLayout) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut inode = mdt.names.inode(ctx, request.fid)?;
    match inode.kind() {
        FileKind::Dir => check_default(mdt, request, &inode)?,
        FileKind::File => inode.layout = Some(layout_again(mdt, ctx, request, &inode)?),
        _ => return Err(Code::Invalid.into()),
    }
    if inode.is_dir() {
        inode.hint = request.hint.clone();
    }
    inode.touch(request.time);
    let mut changes = Changes::default();
    changes.put_inode(&inode, LOCK_LAYOUT | LOCK_UPDATE);
    mdt.tell(&mut changes, Kind::Layout, inode.fid, changelog::by(&request.cred));
    let done = mdt.commit(ctx, changes, Reply::SetLayout(inode.entry()))?;
    if inode.fid == Fid::ROOT {
        *mdt.objects.root_hint.write() = inode.hint.clone();
    }
    mdt.grants.keep_guarded(ctx, done, &inode, KEEP_ATTRS)
}

fn check_default(mdt: &Mdt, request: &SetLayout, dir: &Inode) -> Result<(), Code> {
    if !access::is_owner(&request.cred, dir) {
        return Err(Code::NotPermitted);
    }
    match &request.hint {
        Some(hint) => allocate::check(hint, &mdt.objects.osts.table().order),
        None => Ok(()),
    }
}

/// A layout for a file that has no objects.
fn layout_again(mdt: &Mdt, ctx: &Ctx, request: &SetLayout, file: &Inode) -> Result<Layout, Code> {
    access::may(&request.cred, file, ACCESS_WRITE)?;
    let hint = request.hint.as_ref().ok_or(Code::Invalid)?;
    file.check_there()?;
    if file.may_have_objects() {
        return Err(Code::Exists);
    }
    let table = mdt.objects.osts.table();
    allocate::check_pool(hint, &table.order)?;
    let hint = allocate::shortened(allocate::inherit(hint, &followed_hint(mdt)), &table.order);
    let mut layout = table.allocate(mdt.sequences.fresh()?, &hint).map_err(once_more)?;
    if layout.is_overstriped() && ctx.session().features() & FEATURE_OVERSTRIPING == 0 {
        return Err(Code::NotSupported);
    }
    layout.generation = file.layout.as_ref().map_or(0, |before| before.generation + 1);
    Ok(layout)
}

/// A name that this MDT drew itself is too old for an OST that has just been replaced: the next one is not.
fn once_more(code: Code) -> Code {
    if code == Code::OldSequence { Code::TryAgain } else { code }
}

/// Gives a part of a file objects. The reply comes when they are durable: a replay would give it others than those that the client
/// has written to already.
pub(in crate::mdt) async fn place_data(mdt: &Mdt, ctx: &Ctx<'_>, request: &PlaceData) -> Outcome {
    mdt.sequences.ready(&mdt.store).await?;
    let lacking = lacking_room(mdt, ctx, request).await?;
    let done = place_data_now(mdt, ctx, request, &lacking)?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}

/// The OSTs that have no room for a piece of a part that extends itself, if that is what is asked for.
async fn lacking_room(mdt: &Mdt, ctx: &Ctx<'_>, request: &PlaceData) -> Result<Vec<OstIndex>, Halt> {
    let layout = {
        let _inode = mdt.names.locks.inodes(&[request.fid]);
        mdt.names.inode(ctx, request.fid)?.layout
    };
    match layout.and_then(|layout| place::piece(&layout, (request.offset, request.len))) {
        Some(piece) => Ok(mdt.objects.osts.lacking_room(&piece).await),
        None => Ok(Vec::new()),
    }
}

fn place_data_now(mdt: &Mdt, ctx: &Ctx, request: &PlaceData, lacking: &[OstIndex]) -> Outcome {
    let _inode = mdt.names.locks.inodes(&[request.fid]);
    let mut file = mdt.names.inode(ctx, request.fid)?;
    let before = file.layout.as_ref().ok_or(Code::Invalid)?;
    let range = (request.offset, request.len);
    let table = mdt.objects.osts.table();
    let grown = table.place(before, range, lacking, || mdt.sequences.fresh()).map_err(once_more)?;
    // If somebody else came first, the answer still waits for his change to be durable.
    let mut changes = Changes::default();
    if let Some(grown) = grown {
        mdt.objects.osts.look_after(&grown);
        file.layout = Some(grown);
        file.written = true;
        file.version = VERSION_OF_THIS;
        mdt.tell(&mut changes, Kind::Layout, file.fid, |record| record);
    }
    changes.put_inode(&file, LOCK_LAYOUT | LOCK_UPDATE);
    mdt.commit(ctx, changes, Reply::PlaceData(file.entry()))
}

/// The reply comes when it is durable: whoever asked gives the objects up that the file had.
pub(in crate::mdt) async fn swap_layouts(mdt: &Mdt, ctx: &Ctx<'_>, request: &SwapLayouts) -> Outcome {
    let done = swap_layouts_now(mdt, ctx, request)?;
    mdt.store.committed(done.transno).await.map_err(|error| code_of(&error))?;
    Ok(done)
}

fn swap_layouts_now(mdt: &Mdt, ctx: &Ctx, request: &SwapLayouts) -> Outcome {
    let SwapLayouts { fid, with, generation, cred, blocks } = request;
    let _inodes = mdt.names.locks.inodes(&[*fid, *with]);
    let mut file = mdt.names.inode(ctx, *fid)?;
    let before = file.layout.clone().ok_or(Code::Invalid)?;
    if before.generation != *generation {
        return Err(Code::Busy.into());
    }
    let next = before.generation.checked_add(1).ok_or(Code::TooLarge)?;
    let mut changes = Changes::default();
    if *with == Fid::ZERO {
        file.layout = Some(Layout { generation: next, ..before });
    } else {
        if !access::is_owner(cred, &file) {
            return Err(Code::NotPermitted.into());
        }
        let mut other = mdt.names.inode(ctx, *with)?;
        // The layout of a file that somebody else knows of may be in use.
        let unnamed = other.kind() == FileKind::File && other.nlink == 0;
        // Whoever has a file open that lost its last name may wait for its data.
        let unnamed = unnamed && (file.nlink > 0 || file.hsm.is_released());
        // It is never in force again: nobody can grow this generation, which would take a seal away.
        let given_up = Layout { generation: u32::MAX, ..before };
        let taken = other.layout.replace(given_up).filter(|_| unnamed).ok_or(Code::Invalid)?;
        file.layout = Some(Layout { generation: next, ..taken });
        file.written = true;
        if file.hsm.is_released() {
            file.hsm.flags &= !flag::RELEASED;
            mdt.tell(&mut changes, Kind::Hsm, file.fid, |record| record);
        }
        if let Some(blocks) = blocks.filter(|_| file.size_known) {
            file.blocks = blocks;
        }
        other.written = true;
        other.version = VERSION_OF_THIS;
        // Whoever moved the file made its new objects.
        if file.counts_for_others(&other) {
            changes.give_objects(&mut file, &mdt.objects.numbers);
        }
        changes.put_inode(&other, LOCK_LAYOUT | LOCK_UPDATE);
    }
    file.version = VERSION_OF_THIS;
    changes.put_inode(&file, LOCK_LAYOUT | LOCK_UPDATE);
    mdt.tell(&mut changes, Kind::Layout, file.fid, |record| record);
    mdt.commit(ctx, changes, Reply::SwapLayouts(file.entry()))
}

pub(in crate::mdt) fn get_default_layout(mdt: &Mdt, ctx: &Ctx, request: &GetDefaultLayout) -> Outcome {
    let dir = mdt.names.dir(ctx, request.fid)?;
    let effective = effective_hint(mdt, &dir);
    Ok(Done::unchanged(Reply::GetDefaultLayout(DefaultLayout { own: dir.hint, effective })))
}

/// What a new file in `dir` gets.
pub(in crate::mdt) fn effective_hint(mdt: &Mdt, dir: &Inode) -> LayoutHint {
    match &dir.hint {
        Some(own) => allocate::inherit(own, &followed_hint(mdt)),
        None => followed_hint(mdt),
    }
}

/// What directories without a default of their own follow: the root's, and then the file system's.
fn followed_hint(mdt: &Mdt) -> LayoutHint {
    let default = allocate::file_system_default();
    match &*mdt.objects.root_hint.read() {
        Some(root) => allocate::inherit(root, &default),
        None => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mdt::testing::{World, user};
    use proto::Cred;
    use proto::layout::HintPart;
    use proto::wire::messages::{CreateUnnamed, GetAttr, OPEN_READ, OPEN_WRITE};

    fn hint(count: i32) -> LayoutHint {
        LayoutHint { stripe_count: count, ..LayoutHint::default() }
    }

    #[test]
    fn files_without_objects_get_another_layout() {
        let world = World::new();
        let client = world.client(1);
        let file = client.file(Fid::ROOT, "f");
        let set = |hint| {
            let request = SetLayout { fid: file, hint: Some(hint), cred: Cred::root(), time: client.time() };
            client.call(request).map(|entry| entry.layout.expect("of a file"))
        };
        let layout = set(hint(4)).expect("it has no objects");
        assert_eq!((layout.object_count(), layout.generation), (4, 1));
        let id = layout.components[0].id;
        assert!(id != file && id.is_sane());
        let opened = client.open(file, OPEN_WRITE, &Cred::root()).expect("root may");
        assert_eq!(set(hint(2)), Err(Code::Exists), "somebody may be writing");
        client.close(file, opened.handle, true, Some(1));
        assert_eq!(set(hint(2)), Err(Code::Exists));
        client.unlink(Fid::ROOT, "f").expect("it exists");
        assert!(world.destroys().iter().all(|(_, of, _)| *of == id));
    }

    #[test]
    fn components_get_objects_with_the_first_write() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        let parts = [(1 << 20, 1), (2 << 20, 2), (4 << 20, -1)];
        let parts = parts.map(|(end, count)| HintPart::new(end, hint(count))).to_vec();
        let parts = LayoutHint { parts, ..LayoutHint::default() };
        let set = |fid, hint| client.call(SetLayout { fid, hint, cred: Cred::root(), time: client.time() });
        set(dir, Some(parts.clone())).expect("root may");
        let file = client.file(dir, "f");
        let layout = || client.call(GetAttr { fid: file }).expect("it is there").layout.expect("of a file");
        let counts = |layout: &Layout| layout.components.iter().map(|c| c.targets.len()).collect::<Vec<_>>();
        assert_eq!((counts(&layout()), layout().generation), (vec![1, 0, 0, 0], 0));
        let place = |offset, len| {
            client.call(PlaceData { fid: file, offset, len }).map(|entry| entry.layout.expect("of a file"))
        };
        // Only what is touched, and once.
        let third = place(3 << 20, 1).expect("there is a component");
        assert_eq!((counts(&third), third.generation), (vec![1, 0, 4, 0], 1));
        assert_eq!(place(0, 1 << 20), Ok(third.clone()));
        assert_eq!(place(3 << 20, 1 << 20), Ok(third.clone()));
        assert_eq!(place(3 << 20, (1 << 20) + 1), Err(Code::NoComponent));
        assert_eq!(place(4 << 20, 1), Err(Code::NoComponent));
        let all = place(0, 4 << 20).expect("there are components");
        assert_eq!((counts(&all), all.generation), (vec![1, 2, 4, 0], 2));
        assert_eq!(
            (all.components[0].clone(), all.components[2].clone()),
            (third.components[0].clone(), third.components[2].clone())
        );
        assert!(
            all.ids().all(|id| id.is_sane())
                && all.ids().collect::<std::collections::BTreeSet<_>>().len() == 3
        );
        // It was durable when it was answered.
        let world = world.crash();
        let client = world.client(2);
        assert_eq!(client.call(GetAttr { fid: file }).expect("it is there").layout, Some(all.clone()));
        client.unlink(dir, "f").expect("it is there");
        let destroyed: std::collections::BTreeSet<Fid> =
            world.destroys().into_iter().map(|(_, id, _)| id).collect();
        assert_eq!(destroyed, all.ids().collect());
        let bad = |ends: &[u64]| {
            let parts = ends.iter().map(|end| HintPart::new(*end, hint(1))).collect();
            let hint = Some(LayoutHint { parts, ..LayoutHint::default() });
            client.call(SetLayout { fid: dir, hint, cred: Cred::root(), time: client.time() }).map(drop)
        };
        assert_eq!(bad(&[1 << 20, 1 << 20]), Err(Code::Invalid));
        assert_eq!(bad(&[1000]), Err(Code::Invalid));
        assert_eq!(bad(&[u64::MAX, u64::MAX]), Err(Code::Invalid));
        assert_eq!(bad(&[1 << 20, u64::MAX]), Ok(()));
    }

    #[test]
    fn two_files_exchange_their_layouts() {
        let world = World::new();
        let (client, other) = (world.client(1), world.client(2));
        let file = client.file(Fid::ROOT, "f");
        client.chown(file, 5, 5);
        let (fid, time) = (client.new_fid(), client.time());
        let unnamed = CreateUnnamed {
            parent: Fid::ROOT,
            fid,
            mode: 0o100_600,
            open: OPEN_READ | OPEN_WRITE,
            hint: Some(hint(4)),
            cred: Cred::root(),
            time,
            umask: 0,
        };
        let made = client.call(unnamed).expect("root may");
        let layout = |fid| other.call(GetAttr { fid }).expect("it is there").layout.expect("of a file");
        let (old, new) = (layout(file), layout(fid));
        let swap = |with, generation, cred| {
            client
                .call(SwapLayouts { fid: file, with, generation, cred, blocks: None })
                .map(|entry| entry.layout)
        };
        assert_eq!(swap(fid, 0, user(6)), Err(Code::NotPermitted));
        assert_eq!(swap(fid, 1, user(5)), Err(Code::Busy), "another generation");
        let named = client.file(Fid::ROOT, "g");
        assert_eq!(swap(named, 0, user(5)), Err(Code::Invalid), "somebody may use it");
        assert_eq!(swap(file, 0, user(5)), Err(Code::Invalid));
        // Only the generation: whoever has copied meanwhile comes too late.
        let grown = Layout { generation: 1, ..old.clone() };
        assert_eq!(swap(Fid::ZERO, 0, user(6)), Ok(Some(grown)));
        assert_eq!(swap(fid, 0, user(5)), Err(Code::Busy));
        let moved = Layout { generation: 2, ..new };
        assert_eq!(swap(fid, 1, user(5)), Ok(Some(moved.clone())));
        assert_eq!(layout(file), moved);
        client.close(fid, made.handle, true, None);
        let destroyed: Vec<Fid> = world.destroys().into_iter().map(|(_, id, _)| id).collect();
        assert!(!destroyed.is_empty() && destroyed.iter().all(|id| old.ids().eq([*id])));
        world.sync();
        let world = world.crash();
        let told = world.client(3).call(GetAttr { fid: file }).expect("it is there");
        assert_eq!(told.layout, Some(moved));
    }

    #[test]
    fn defaults_are_told_filled_in() {
        let world = World::new();
        let client = world.client(1);
        let dir = client.mkdir(Fid::ROOT, "d");
        let get = || client.call(GetDefaultLayout { fid: dir }).expect("a directory");
        assert_eq!(get(), DefaultLayout { own: None, effective: allocate::file_system_default() });
        let set =
            |fid, hint, cred: Cred| client.call(SetLayout { fid, hint, cred, time: client.time() }).map(drop);
        assert_eq!(set(dir, Some(hint(2)), user(5)), Err(Code::NotPermitted));
        assert_eq!(set(dir, Some(hint(-5)), Cred::root()), Err(Code::Invalid));
        assert_eq!(set(dir, Some(hint(2)), Cred::root()), Ok(()));
        assert_eq!((get().own, get().effective.stripe_count), (Some(hint(2)), 2));
        assert_eq!(set(dir, None, Cred::root()), Ok(()));
        assert_eq!(set(Fid::ROOT, Some(hint(3)), Cred::root()), Ok(()));
        world.sync();
        let world = world.crash();
        let client = world.client(2);
        let told = client.call(GetDefaultLayout { fid: dir }).expect("a directory");
        assert_eq!((told.own, told.effective.stripe_count), (None, 3));
    }
}
