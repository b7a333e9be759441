//! RestateOpens: what was open for reading before a restart is open again. StateOpens: what a client has opened without the MDT is open here, too.
//!
//! An open for writing is in the store; one for reading changes nothing, and only its client knows of it. Until all have said what they have,
//! no inode without a name goes ([`crate::mdt::orphans`]).

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{self as msg, OpenHeld, RestateOpens, StateOpens};
use service::Done;

use crate::mdt::opens::{OpenMode, Opener};
use crate::mdt::plan::{FETCHES_MAX, Halt, Step, Want};
use crate::mdt::{Ctx, Mdt, Outcome};

/// Taken before anybody else is served. A client of this process is not waited for by others.
pub(in crate::mdt) async fn restate_opens(mdt: &Mdt, ctx: &Ctx<'_>, request: &RestateOpens) -> Outcome {
    if !mdt.takes_restatements(ctx) {
        return Err(Code::Invalid.into());
    }
    open_all(mdt, ctx, &request.opens).await?;
    Ok(Done::unchanged(Reply::RestateOpens(msg::Done {})))
}

/// Nobody has removed the files yet: whoever does so calls the client back first.
pub(in crate::mdt) async fn state_opens(mdt: &Mdt, ctx: &Ctx<'_>, request: &StateOpens) -> Outcome {
    open_all(mdt, ctx, &request.opens).await?;
    Ok(Done::unchanged(Reply::StateOpens(msg::Done {})))
}

async fn open_all(mdt: &Mdt, ctx: &Ctx<'_>, opens: &[OpenHeld]) -> Result<(), Halt> {
    for held in opens {
        match open_one(mdt, ctx, held).await {
            Err(Halt::Refused(code)) if code != Code::TryAgain => {
                // The others are open all the same.
                let client = ctx.session().client();
                tracing::error!(fid = %held.fid, %client, ?code, "an open file cannot be opened again");
            }
            done => done?,
        }
    }
    Ok(())
}

async fn open_one(mdt: &Mdt, ctx: &Ctx<'_>, held: &OpenHeld) -> Result<(), Halt> {
    // One after the other, for they are many.
    let mut fetches = FETCHES_MAX;
    while let Some(want) = restate(mdt, ctx, held)? {
        fetches = fetches.checked_sub(1).ok_or(Code::TryAgain)?;
        mdt.names.fetch(ctx, want).await?;
    }
    Ok(())
}

/// Opens one file again; gives what is lacking for that.
fn restate(mdt: &Mdt, ctx: &Ctx, held: &OpenHeld) -> Step<Option<Want>> {
    let OpenHeld { fid, handle } = *held;
    ctx.data().has_room_for_stated()?;
    let _inode = mdt.names.locks.inodes(&[fid]);
    match mdt.names.read_inode(ctx.reads(), fid) {
        Ok(Some(_)) => {
            mdt.opens.open(
                fid,
                Opener { session: ctx.session().handle(), handle },
                OpenMode { write: false, size_known: true },
            );
            ctx.data().opened(handle, fid);
        }
        Ok(None) => {
            tracing::error!(%fid, client = %ctx.session().client(), "an open file is gone: the MDT does not know it");
        }
        Err(Halt::Missing(want)) => return Ok(Some(want)),
        Err(halt) => return Err(halt),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::wire::messages::{Create, GetAttr, OPEN_READ, Unlink};
    use proto::{ClientId, Cred, Fid, Name, Transno};

    use super::*;
    use crate::mdt::keys;
    use crate::mdt::testing::{Client, World};

    fn opened(client: &Client, fid: Fid) -> OpenHeld {
        let handle = client.open(fid, OPEN_READ, &Cred::root()).expect("root may").handle;
        OpenHeld { fid, handle }
    }

    /// The world after a restart, and its boot before.
    fn crashed(world: World) -> (World, u64) {
        let boot = world.store.boot();
        (world.crash(), boot)
    }

    fn restate(client: &Client, held: &OpenHeld) {
        let answer = client.replay(500, Transno(0), RestateOpens { opens: vec![held.clone()] });
        assert!(answer.result.is_ok(), "the target waits for its clients: {answer:?}");
    }

    /// The clients of before, with numbers that no request had.
    fn back(world: &World, boot: u64) -> [Client<'_>; 2] {
        [1, 2].map(|n| {
            let client = world.connect(ClientId(n), boot, 2).expect("a known client");
            client.skip_to(1000);
            client
        })
    }

    /// Both have nothing to replay any more.
    fn go_on(world: &World, clients: &[Client<'_>; 2]) {
        let pending = clients.each_ref().map(|client| client.start(600, GetAttr { fid: Fid::ROOT }));
        for pending in pending {
            assert!(world.sim.run(pending).result.is_ok());
        }
    }

    #[test]
    fn a_file_that_is_read_survives_its_last_name_and_a_restart() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let [kept, left] = ["kept", "left"].map(|text| a.file(Fid::ROOT, text));
        let held = opened(&a, kept);
        opened(&a, left);
        b.unlink(Fid::ROOT, "kept").expect("it exists");
        b.unlink(Fid::ROOT, "left").expect("it exists");
        world.sync();
        let (world, boot) = crashed(world);
        let clients = back(&world, boot);
        let [a, b] = &clients;
        restate(a, &held);
        restate(a, &held);
        go_on(&world, &clients);
        world.sim.run_for(Duration::from_secs(60));
        assert_eq!(b.attr(left), Err(Code::Stale), "nobody said that it is open");
        assert_eq!(b.attr(kept).map(|attr| attr.nlink), Ok(0));
        assert_eq!(world.keys(keys::ORPHAN), 1);
        a.close(kept, held.handle, false, None);
        assert_eq!(b.attr(kept), Err(Code::Stale));
        assert_eq!(world.keys(keys::ORPHAN), 0);
    }

    /// The close changed nothing, so nobody repeats it.
    #[test]
    fn a_file_that_was_made_to_be_read_and_closed_goes_with_its_last_name() {
        let world = World::new();
        let (a, _) = (world.client(1), world.client(2));
        world.sync();
        let create = Create { open: OPEN_READ, ..a.create_request(Fid::ROOT, "f", 0o100_644) };
        let (fid, xid) = (create.fid, a.xid() + 1);
        let made = a.send(xid, create.clone());
        let Ok(Reply::Create(created)) = made.result else { panic!("{made:?}") };
        a.skip_to(xid);
        a.close(fid, created.handle, false, None);
        let (world, boot) = crashed(world);
        let clients = back(&world, boot);
        let [a, b] = &clients;
        let replayed = a.start_replay(xid, made.transno, create);
        // The replay's turn comes once the other one has none.
        let b_goes_on = b.start(600, GetAttr { fid: Fid::ROOT });
        let answer = world.sim.run(replayed);
        assert!(answer.result.is_ok(), "{answer:?}");
        let a_goes_on = a.start(600, GetAttr { fid: Fid::ROOT });
        for pending in [a_goes_on, b_goes_on] {
            assert!(world.sim.run(pending).result.is_ok());
        }
        b.unlink(Fid::ROOT, "f").expect("it is there again");
        world.sim.run_for(Duration::from_secs(60));
        assert_eq!(b.attr(fid).map(drop), Err(Code::Stale));
        assert_eq!(world.keys(keys::ORPHAN), 0);
    }

    #[test]
    fn an_unlink_that_is_replayed_waits_for_those_who_have_the_file_open() {
        let world = World::new();
        let (a, b) = (world.client(1), world.client(2));
        let file = a.file(Fid::ROOT, "f");
        let held = opened(&a, file);
        world.sync();
        let unlink = Unlink {
            parent: Fid::ROOT,
            name: Name::new("f").expect("a name"),
            directory: false,
            cred: Cred::root(),
            time: b.time(),
        };
        let xid = b.xid() + 1;
        let lost = b.send(xid, unlink.clone()).transno;
        let (world, boot) = crashed(world);
        let clients = back(&world, boot);
        let [a, b] = &clients;
        let replayed = b.start_replay(xid, lost, unlink);
        // The replay's turn comes once the other one has none.
        let a_goes_on = a.start(600, GetAttr { fid: Fid::ROOT });
        assert!(world.sim.run(replayed).result.is_ok());
        restate(a, &held);
        assert!(world.sim.run(b.start(600, GetAttr { fid: Fid::ROOT })).result.is_ok());
        assert!(world.sim.run(a_goes_on).result.is_ok());
        assert_eq!(b.attr(file).map(|attr| attr.nlink), Ok(0));
        world.sim.run_for(Duration::from_secs(60));
        assert_eq!(b.attr(file).map(|attr| attr.nlink), Ok(0), "it is open");
    }

    #[test]
    fn nobody_states_anything_again_while_all_are_served() {
        let world = World::new();
        let client = world.client(1);
        let held = opened(&client, client.file(Fid::ROOT, "f"));
        assert_eq!(client.call(RestateOpens { opens: vec![held] }).err(), Some(Code::Invalid));
    }
}
