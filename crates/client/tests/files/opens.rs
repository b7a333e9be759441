//! Files that are open for reading when the MDT restarts.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Error, Handle, OpenFlags};
use parking_lot::Mutex;
use proto::{Code, Fid};
use rt::Rt;
use rt::sim::Span;
use rt::wait::join_all;

use crate::world::{World, create, read_write, root};

/// Of each kind.
const FILES: usize = 100;
/// Between two messages of a client that states what it has are several steps.
const LATENCY_MICROS: u64 = 30_000;
const STEP: Duration = Duration::from_millis(10);
/// Until the MDT answers again, or has removed what nobody has open.
const LONG: Duration = Duration::from_secs(10);

async fn open(client: &Client, fid: Fid) -> Handle {
    let flags = OpenFlags { write: false, ..read_write() };
    client.files().open(&root(), fid, flags).await.expect("it is there")
}

/// Opens and closes a file each, one after the other, and waits for none of that: the handles that are open then.
fn open_and_close(
    rt: Rt,
    client: Arc<Client>,
    files: Vec<Fid>,
    handles: Vec<Handle>,
) -> Arc<Mutex<Vec<Handle>>> {
    let opened: Arc<Mutex<Vec<Handle>>> = Arc::default();
    let all = opened.clone();
    rt.clone().spawn(async move {
        for (fid, handle) in files.into_iter().zip(handles) {
            let (client, opened) = (client.clone(), opened.clone());
            rt.spawn(async move {
                client.files().release(handle).await;
                let handle = open(&client, fid).await;
                opened.lock().push(handle);
            });
            rt.sleep(STEP).await;
        }
    });
    all
}

/// Files that `client` keeps open and does not use.
async fn kept_open(client: &Client, fids: &[Fid]) {
    for fid in fids {
        client.files().release(open(client, *fid).await).await;
    }
}

async fn is_there(client: &Client, fid: Fid) -> bool {
    match client.names().getattr(fid).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Error::Refused(Code::Stale));
            false
        }
    }
}

#[test]
fn the_mdt_knows_what_is_open_whatever_is_opened_and_closed_while_it_recovers() {
    let mut world = World::remote(1, 1);
    let (one, two) = (world.mount(), world.mount());
    let name = |n: usize| format!("f{n}").into_bytes();
    let (fids, closing) = world.run(async {
        let mut fids = Vec::new();
        for n in 0..2 * FILES {
            let (attr, handle) = create(&two, &name(n)).await;
            two.files().release(handle).await;
            fids.push(attr.fid);
        }
        two.sync_all().await.expect("what is healthy can be synced");
        kept_open(&one, &fids).await;
        (fids.clone(), join_all(fids[FILES..].iter().map(|fid| open(&one, *fid))).await)
    });
    world.sim.handle().set_latency("client", "servers", Span::micros(LATENCY_MICROS, LATENCY_MICROS));
    let rt = world.hub.rt().clone();
    let opened = open_and_close(rt, one.clone(), fids[..FILES].to_vec(), closing);
    world.restart_servers(1);
    world.run(async {
        world.hub.rt().sleep(LONG).await;
        let opened = std::mem::take(&mut *opened.lock());
        assert_eq!(opened.len(), FILES);
        for n in 0..2 * FILES {
            two.names().unlink(&root(), Fid::ROOT, &name(n)).await.expect("it is there");
        }
        world.hub.rt().sleep(LONG).await;
        let there = join_all(fids.iter().map(|fid| is_there(&two, *fid))).await;
        let count = |there: &[bool]| there.iter().filter(|there| **there).count();
        let counts = (count(&there[..FILES]), count(&there[FILES..]));
        assert_eq!(counts, (FILES, 0), "what is open is there, and what nobody has open is gone");
        for handle in opened {
            one.files().release(handle).await;
        }
        world.hub.rt().sleep(LONG).await;
        let there = join_all(fids.iter().map(|fid| is_there(&two, *fid))).await;
        assert_eq!(count(&there), 0);
    });
}
