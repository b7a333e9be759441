//! What every store of owners has to do, and does: the same scenarios for the MGS's own table and for etcd.

use std::sync::Arc;
use std::time::Duration;

use proto::owner::TTL;
use proto::wire::messages::{Tenure, Wanted};
use proto::{ClientId, FsName, Nid, TargetId};
use rpc::{Hub, Keys};
use rt::Rt;
use rt::sim::{Options, Sim};
use store::{Label, Store};

use super::etcd::model::Model;
use super::store::{Grant, Me, OwnerStore};
use super::{EtcdOwners, MgsOwners};
use crate::{Config, start};

/// How much later than it could a store may give something.
const SLACK: Duration = Duration::from_millis(600);

fn fsname() -> FsName {
    "w".parse().expect("a file system's name")
}

/// Runs `scenario` against each store.
fn check(scenario: impl AsyncFn(&Rt, &dyn OwnerStore)) {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt("mgs");
    sim.run(async {
        let (target, uuid) = (TargetId::MGS, ClientId(1));
        let label = Label { fsname: fsname(), target, uuid, mgs: vec![], service: vec![] };
        Store::format(&rt, "mgs", &label).await.expect("an empty directory");
        let hub = Hub::new(rt.clone(), fsname(), Keys::default());
        let config = Config { path: "mgs".into(), nids: vec![], server: "mgs".into() };
        let _running = start(&hub, config).await.expect("the MGS starts");
        scenario(&rt, &MgsOwners::new(&hub, vec![Nid::lo()])).await;
    });
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt("server");
    sim.run(async {
        let etcd = Model::new(&rt, 3);
        scenario(&rt, &EtcdOwners::new(&rt, &fsname(), Arc::new(etcd), None)).await;
    });
}

pub(super) fn me(name: &str, instance: u64) -> Me {
    let nids = vec![format!("{name}@tcp").parse().expect("a NID")];
    // No two processes have the same.
    let instance = instance << 32 | name.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte));
    Me { server: name.into(), instance, nids }
}

pub(super) fn wanted(index: u32, preferred: bool) -> Vec<Wanted> {
    vec![Wanted { target: TargetId::ost(index), seen: 0, preferred }]
}

fn tenure(epoch: u64) -> Tenure {
    Tenure { target: TargetId::ost(1), epoch }
}

async fn take(store: &dyn OwnerStore, me: &Me, preferred: bool, wait: Duration) -> Option<Grant> {
    let grants = store.take(me, wanted(1, preferred), wait).await.expect("the store answers");
    assert!(grants.len() <= 1);
    grants.into_iter().next()
}

/// Takes the target at once; gives epoch, whether in place, and the former owner's name.
async fn taken(store: &dyn OwnerStore, me: &Me, preferred: bool, wait: Duration) -> (u64, bool, String) {
    let Grant { taken, former } = take(store, me, preferred, wait).await.expect("it is free");
    (taken.epoch, taken.in_place, former.map_or(String::new(), |former| former.server))
}

async fn is_renewed(store: &dyn OwnerStore, me: &Me, epoch: u64) -> bool {
    let renewed = store.renew(me, vec![tenure(epoch)]).await.expect("the store answers");
    assert_eq!(renewed.ttl, TTL);
    renewed.lost.is_empty()
}

const NONE: Duration = Duration::ZERO;

#[test]
fn a_store_has_one_name() {
    check(async |_, store| {
        let identity = store.identity().await.expect("the store answers");
        assert_eq!(store.identity().await, Ok(identity.clone()));
        let sane = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(identity.len() < 40 && identity.chars().all(sane), "it becomes a file's name: {identity}");
    });
}

#[test]
fn what_is_renewed_is_nobody_elses() {
    check(async |rt, store| {
        let (a, b) = (me("a", 1), me("b", 1));
        assert_eq!(take(store, &b, false, NONE).await, None, "the first of the service nodes goes first");
        assert_eq!(taken(store, &a, true, NONE).await, (1, true, String::new()));
        for _ in 0..20 {
            assert!(is_renewed(store, &a, 1).await);
            assert!(is_renewed(store, &a, 1).await, "once more changes nothing");
            assert_eq!(take(store, &b, false, Duration::from_millis(900)).await, None);
        }
        assert!(!is_renewed(store, &b, 1).await, "it is not b's");
        assert!(!is_renewed(store, &a, 2).await, "there was no such epoch");
        assert!(!is_renewed(store, &me("a", 2), 1).await, "it is another process's");
        let began = rt.now();
        assert!(is_renewed(store, &a, 1).await);
        assert_eq!(taken(store, &b, false, TTL * 2).await, (2, false, "a".into()));
        let waited = rt.now() - began;
        assert!(waited >= TTL && waited < TTL + SLACK, "{waited:?}");
        assert!(!is_renewed(store, &a, 1).await && is_renewed(store, &b, 2).await);
    });
}

#[test]
fn what_is_released_is_free() {
    check(async |rt, store| {
        let (a, b, c) = (me("a", 1), me("b", 1), me("c", 1));
        taken(store, &a, true, NONE).await;
        assert_eq!(take(store, &b, false, NONE).await, None);
        store.release(&b, tenure(1), "b").await.expect("it is nobody's error");
        assert!(is_renewed(store, &a, 1).await, "and it changes nothing");
        store.release(&a, tenure(1), "b@tcp").await.expect("the store answers");
        store.release(&a, tenure(1), "").await.expect("the second time says nothing");
        assert_eq!(take(store, &a, true, NONE).await, None, "b has it reserved");
        assert_eq!(taken(store, &b, false, NONE).await, (2, true, String::new()));
        assert_eq!(take(store, &c, false, NONE).await, None);
        let began = rt.now();
        store.release(&b, tenure(2), "").await.expect("the store answers");
        assert_eq!(taken(store, &c, false, TTL * 2).await, (3, true, String::new()), "a does not come");
        let waited = rt.now() - began;
        assert!(waited >= proto::owner::RESTART_GRACE && waited < proto::owner::RESTART_GRACE + SLACK);
    });
}

#[test]
fn a_process_that_starts_again_goes_on() {
    check(async |_, store| {
        let (a, again) = (me("a", 1), me("a", 2));
        taken(store, &a, true, NONE).await;
        assert!(is_renewed(store, &a, 1).await);
        assert_eq!(taken(store, &again, true, NONE).await, (2, true, String::new()));
        assert!(!is_renewed(store, &a, 1).await && is_renewed(store, &again, 2).await);
    });
}

#[test]
fn a_former_owner_is_named_until_that_is_settled() {
    check(async |_, store| {
        let (a, b, c) = (me("a", 1), me("b", 1), me("c", 1));
        taken(store, &a, true, NONE).await;
        store.settle(&a, tenure(1)).await.expect("it is a's");
        assert_eq!(taken(store, &b, false, TTL * 2).await, (2, false, "a".into()));
        store.settle(&a, tenure(1)).await.expect_err("it is a's no more");
        store.release(&b, tenure(2), "").await.expect("it could not be fenced");
        assert_eq!(taken(store, &c, true, NONE).await, (3, true, "a".into()));
        store.settle(&c, tenure(3)).await.expect("it is c's");
        assert!(is_renewed(store, &c, 3).await);
        store.settle(&c, tenure(3)).await.expect("once more");
        store.release(&c, tenure(3), "").await.expect("it is c's");
        assert_eq!(taken(store, &b, true, NONE).await, (4, true, String::new()));
    });
}

#[test]
fn many_targets_are_one_question() {
    check(async |rt, store| {
        let (a, b) = (me("a", 1), me("b", 1));
        let all = |preferred| (0..100).flat_map(|n| wanted(n, preferred)).collect::<Vec<_>>();
        let grants = store.take(&a, all(true), NONE).await.expect("the store answers");
        assert_eq!(grants.len(), 100);
        let held: Vec<Tenure> =
            grants.iter().map(|g| Tenure { target: g.taken.target, epoch: g.taken.epoch }).collect();
        assert_eq!(store.take(&b, all(false), TTL / 2).await, Ok(vec![]));
        assert!(store.renew(&a, held.clone()).await.expect("the store answers").lost.is_empty());
        // Of those that are not renewed others may have some; the rest goes on.
        let mut got = Vec::new();
        while got.len() < 50 {
            assert!(store.renew(&a, held[50..].to_vec()).await.expect("the store answers").lost.is_empty());
            let more = store.take(&b, all(false)[..50].to_vec(), NONE).await.expect("the store answers");
            got.extend(more.into_iter().map(|grant| grant.taken.target));
            rt.sleep(Duration::from_millis(250)).await;
        }
        let lost = store.renew(&a, held.clone()).await.expect("the store answers").lost;
        assert_eq!(lost, held[..50].iter().map(|hold| hold.target).collect::<Vec<_>>());
        let lost = store.renew(&a, held[50..].to_vec()).await.expect("the store answers").lost;
        assert_eq!(lost, []);
    });
}
