//! KeepPromises: changes that a client has told of before, in one commit (`docs/locks.md#alone`).
//!
//! Each is planned on top of those before it ([`Ctx::changed`]), and all are committed together. One that is refused changes nothing, and
//! those behind it are carried out: they fail if they build on it.

use std::collections::BTreeSet;

use proto::limits::PROMISES_MAX;
use proto::wire::Reply;
use proto::wire::messages::{
    Create, Granted, KeepPromises, Kept, LOCK_ALONE, OPEN_ALONE, Promise, PromisesKept, Remove, SetAttr,
};
use proto::{Code, Fid, FileKind, Name};
use service::Done;

use super::{create, set_attr, unlink};
use crate::mdt::inode::Inode;
use crate::mdt::plan::{Halt, Step};
use crate::mdt::{Ctx, Mdt, Outcome, keys};

/// One promise of a request.
enum Told<'a> {
    Create(&'a Create),
    SetAttr(&'a SetAttr),
    Remove(&'a Remove),
}

impl<'a> Told<'a> {
    fn of(promise: &'a Promise) -> Result<Told<'a>, Code> {
        match promise {
            Promise { create: Some(create), set_attr: None, remove: None } => Ok(Told::Create(create)),
            Promise { create: None, set_attr: Some(set), remove: None } if set.size.is_none() => {
                Ok(Told::SetAttr(set))
            }
            Promise { create: None, set_attr: None, remove: Some(remove) } => Ok(Told::Remove(remove)),
            _ => Err(Code::Invalid),
        }
    }

    fn name(&self) -> Option<(Fid, &'a Name)> {
        match self {
            Told::Create(create) => Some((create.parent, &create.name)),
            Told::SetAttr(_) => None,
            Told::Remove(Remove { unlink, .. }) => Some((unlink.parent, &unlink.name)),
        }
    }
}

/// A promise whose change is planned.
struct Planned<'a> {
    told: Told<'a>,
    inode: Inode,
    /// Of a create: the directory afterwards.
    parent: Option<Inode>,
    opening: Option<create::Opening>,
}

/// Has what its promises are sure to lack, and waits for an OST if one of them needs it.
pub(in crate::mdt) async fn keep_promises(mdt: &Mdt, ctx: &Ctx<'_>, request: &KeepPromises) -> Outcome {
    if request.promises.len() > PROMISES_MAX {
        return Err(Code::Invalid.into());
    }
    let told = request.promises.iter().map(Told::of).collect::<Result<Vec<Told>, Code>>()?;
    if !can_be_planned(&told) {
        return Err(Code::Invalid.into());
    }
    let mut kind = None;
    for told in &told {
        let Told::Create(create) = told else { continue };
        let entry = keys::entry(create.parent, &create.name);
        mdt.names.fetch_for_create(&entry, create.fid).await?;
        kind = kind.or(create::kind(create).ok().filter(|kind| *kind == FileKind::File));
    }
    create::with_osts(mdt, ctx, kind, || keep(mdt, ctx, told)).await
}

/// Whether a directory is empty, and who has a file open, is known of what is committed: nothing goes that changes before in the same
/// request may concern so.
fn can_be_planned(told: &[Told<'_>]) -> bool {
    let mut made = BTreeSet::new();
    told.iter().enumerate().all(|(place, told)| match told {
        Told::Create(create) => {
            made.insert(create.fid);
            true
        }
        Told::SetAttr(_) => true,
        Told::Remove(remove) => !made.contains(&remove.fid) && (place == 0 || !remove.unlink.directory),
    })
}

fn keep(mdt: &Mdt, ctx: &Ctx, told: Vec<Told<'_>>) -> Outcome {
    // Those of an attempt that lacked something.
    drop(ctx.take_changes());
    let _names = mdt.names.locks.all_names(told.iter().filter_map(Told::name));
    let inodes: Vec<Fid> = told
        .iter()
        .flat_map(|told| match told {
            Told::Create(create) => [create.parent, create.fid],
            Told::SetAttr(set) => [set.fid, set.fid],
            Told::Remove(remove) => [remove.unlink.parent, remove.fid],
        })
        .collect();
    let _inodes = mdt.names.locks.inodes(&inodes);
    let mut planned = Vec::with_capacity(told.len());
    let mut alone = BTreeSet::new();
    for told in told {
        match plan(mdt, ctx, told, &mut alone) {
            Ok(step) => planned.push(Ok(step)),
            Err(Halt::Refused(code)) => planned.push(Err(code)),
            Err(halt) => return Err(halt),
        }
        if ctx.changes_too_much() {
            return Err(Code::TooLarge.into());
        }
    }
    let kept = planned
        .iter()
        .map(|step| Kept { status: step.as_ref().err().map_or(0, |code| code.to_u32()), ..Kept::default() });
    let reply = Reply::KeepPromises(PromisesKept { kept: kept.collect(), most: 0 });
    let changes = ctx.take_changes();
    let mut done = if changes.is_empty() { Done::unchanged(reply) } else { mdt.commit(ctx, changes, reply)? };
    // What is said from here on is not said again to a client that asks again.
    ctx.record(&mut done);
    if let Reply::KeepPromises(reply) = &mut done.reply {
        tell_spreads(mdt, &planned, reply);
        reply.most =
            u32::try_from(mdt.bursts.share(ctx.session().handle(), mdt.rt.now())).unwrap_or(u32::MAX);
        let steps = planned.into_iter().zip(&mut reply.kept);
        steps.filter_map(|(step, kept)| Some((step.ok()?, kept))).for_each(|(step, kept)| {
            committed(mdt, ctx, step, kept);
        });
    }
    Ok(done)
}

/// Where files of a directory lie is the same for all of a request: one of each directory is looked at.
fn tell_spreads(mdt: &Mdt, planned: &[Result<Planned<'_>, Code>], reply: &mut PromisesKept) {
    let mut looked_at = BTreeSet::new();
    for (step, kept) in planned.iter().zip(&mut reply.kept) {
        let Ok(Planned { told: Told::Create(create), parent: Some(parent), .. }) = step else { continue };
        let Some(foretold) = create.foretold.as_ref().filter(|foretold| foretold.layout.is_some()) else {
            continue;
        };
        if looked_at.insert(parent.fid) {
            kept.spread = create::changed_spread(mdt, foretold, parent);
        }
    }
}

/// Plans one change on top of those before it; `alone` are the directories among them that the client has to itself.
fn plan<'a>(mdt: &Mdt, ctx: &Ctx, told: Told<'a>, alone: &mut BTreeSet<Fid>) -> Step<Planned<'a>> {
    match &told {
        Told::Create(create) => {
            if mdt.names.find_entry(ctx, create.parent, &create.name)?.is_some() {
                return Err(Code::Exists.into());
            }
            let create::Planned { inode, parent, opening, mut changes } = create::plan(mdt, ctx, create)?;
            // Who has the directory alone has told of it already: it is counted, and not refused.
            let bits = &mdt.grants.bits;
            let is_alone =
                alone.contains(&create.parent) || bits.is_alone(ctx.session().handle(), create.parent);
            if !is_alone {
                changes.bound(mdt.quotas.bounds(mdt, ctx, &create.cred, &inode)?);
            } else if create.open & OPEN_ALONE != 0 {
                alone.insert(create.fid);
            }
            ctx.join(changes);
            Ok(Planned { inode, parent: Some(parent), opening, told })
        }
        Told::SetAttr(set) => {
            let set_attr::Planned { inode, is_given, mut changes } = set_attr::plan(mdt, ctx, set)?;
            if is_given {
                changes.bound(mdt.quotas.bounds(mdt, ctx, &set.cred, &inode)?);
            }
            ctx.join(changes);
            Ok(Planned { inode, parent: None, opening: None, told })
        }
        Told::Remove(Remove { unlink: request, fid }) => {
            if unlink::find(mdt, ctx, request)? != *fid {
                return Err(Code::Stale.into());
            }
            let (inode, changes) = unlink::plan(mdt, ctx, request, *fid)?;
            ctx.join(changes);
            Ok(Planned { inode, parent: None, opening: None, told })
        }
    }
}

/// What follows from a change that is committed, and what its client is told.
fn committed(mdt: &Mdt, ctx: &Ctx, planned: Planned<'_>, kept: &mut Kept) {
    let Planned { told, inode, opening, .. } = planned;
    match told {
        Told::Create(create) => {
            create::opened(mdt, ctx, inode.fid, opening);
            kept.lock = mdt.grants.grant_guarded(ctx, &inode, create::kept_of_new(opening));
            if create.open & OPEN_ALONE != 0 && inode.is_dir() {
                grant_alone(mdt, ctx, inode.fid, &mut kept.lock);
            }
        }
        Told::SetAttr(set) => set_attr::committed(mdt, ctx, set),
        Told::Remove(_) => return,
    }
    kept.attr = Some(inode.attr());
}

/// The client has told already what it makes in the new directory: it has it to itself even if somebody has a limit by now, and even if
/// nothing else of it may be kept because too much is.
fn grant_alone(mdt: &Mdt, ctx: &Ctx, dir: Fid, lock: &mut Granted) {
    // Whoever repeats it after a restart says by itself what it has.
    if !ctx.keeps() {
        return;
    }
    let (bits, session) = (&mdt.grants.bits, ctx.session().handle());
    let is_granted = match lock.bits {
        0 => bits.restate_alone(session, dir),
        _ => bits.grant_alone(session, dir, lock.number),
    };
    if is_granted {
        lock.bits |= LOCK_ALONE;
    }
}
