//! What etcd's members do wrong, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::TargetId;
use proto::owner::{TTL, valid_until};
use proto::wire::messages::Tenure;
use rt::Rt;
use rt::sim::{Options, Sim};

use super::model::{Model, Mood};
use super::{Credentials, EtcdOwners};
use crate::owner::conformance::{me, wanted};
use crate::owner::store::{Me, OwnerStore, Unavailable};

const NONE: Duration = Duration::ZERO;
const OWNER_KEY: &str = "/weft/w/owners/OST0001";

fn check(scenario: impl AsyncFnOnce(&Rt, &Model)) {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt("server");
    sim.run(async { scenario(&rt, &Model::new(&rt, 3)).await });
}

fn owners(rt: &Rt, model: &Model) -> EtcdOwners {
    EtcdOwners::new(rt, &"w".parse().expect("a name"), Arc::new(model.clone()), None)
}

fn tenure(epoch: u64) -> Tenure {
    Tenure { target: TargetId::ost(1), epoch }
}

async fn epoch(store: &EtcdOwners, me: &Me, preferred: bool, wait: Duration) -> Option<u64> {
    let grants = store.take(me, wanted(1, preferred), wait).await.expect("etcd answers");
    grants.first().map(|grant| grant.taken.epoch)
}

#[test]
fn a_dead_member_costs_one_attempt() {
    check(async |rt, model| {
        model.set(0, Mood::Silent);
        let (store, a) = (owners(rt, model), me("a", 1));
        assert_eq!(epoch(&store, &a, true, NONE).await, Some(1));
        for _ in 0..100 {
            let began = rt.now();
            assert_eq!(store.renew(&a, vec![tenure(1)]).await.expect("two answer").lost, []);
            assert!(rt.now() - began < Duration::from_millis(50));
        }
        assert_eq!(model.asked(0), 1);
    });
}

#[test]
fn a_swap_whose_answer_was_lost_is_recognised() {
    check(async |rt, model| {
        let (store, a) = (owners(rt, model), me("a", 1));
        assert_eq!(epoch(&store, &me("b", 1), false, NONE).await, None, "what it costs to look is known");
        // The member that is asked first carries everything out and says nothing: the next one says that the target is a's.
        model.set(0, Mood::Mute);
        assert_eq!(epoch(&store, &a, true, Duration::from_secs(2)).await, Some(1));
        assert_eq!(store.renew(&a, vec![tenure(1)]).await.expect("it is a's").lost, []);
        // None says anything, from the moment of the swap on.
        model.set_all(Mood::Well);
        store.release(&a, tenure(1), "").await.expect("it is a's");
        let swapped = async {
            while !model.get(OWNER_KEY).is_some_and(|text| text.contains(r#""epoch":2"#)) {
                rt.sleep(Duration::from_micros(100)).await;
            }
        };
        rt.spawn({
            let (rt, model) = (rt.clone(), model.clone());
            async move {
                // The look is under way by then; it takes a millisecond.
                rt.sleep(Duration::from_micros(500)).await;
                model.set_all(Mood::Mute);
            }
        });
        store.take(&a, wanted(1, true), NONE).await.expect_err("nobody answers");
        swapped.await;
        model.set_all(Mood::Well);
        assert_eq!(epoch(&store, &a, true, NONE).await, Some(2), "and not swapped once more");
    });
}

#[test]
fn nobody_takes_what_its_owner_could_not_renew_while_etcd_was_away() {
    for mood in [Mood::Dead, Mood::Silent, Mood::Leaderless] {
        check(async |rt, model| {
            let (holder, taker) = (owners(rt, model), owners(rt, model));
            let (a, b) = (me("a", 1), me("b", 1));
            assert_eq!(epoch(&holder, &a, true, NONE).await, Some(1));
            assert_eq!(holder.renew(&a, vec![tenure(1)]).await.expect("etcd answers").lost, []);
            assert_eq!(epoch(&taker, &b, false, Duration::from_secs(1)).await, None);
            model.set_all(mood);
            let until = rt.now() + Duration::from_secs(20);
            while rt.now() < until {
                holder.renew(&a, vec![tenure(1)]).await.expect_err("etcd is away");
                taker.take(&b, wanted(1, false), Duration::from_secs(1)).await.expect_err("etcd is away");
                rt.sleep(Duration::from_millis(100)).await;
            }
            model.set_all(Mood::Well);
            assert_eq!(epoch(&taker, &b, false, TTL / 2).await, None, "a may not know yet that etcd is back");
            assert_eq!(holder.renew(&a, vec![tenure(1)]).await.expect("etcd answers").lost, []);
            assert_eq!(epoch(&taker, &b, false, TTL - Duration::from_millis(100)).await, None);
            assert_eq!(epoch(&taker, &b, false, TTL).await, Some(2), "but a that does not renew loses it");
        });
    }
}

#[test]
fn members_of_two_clusters_are_not_believed() {
    check(async |rt, model| {
        model.set_cluster(1, 0xc2);
        let store = owners(rt, model);
        assert_eq!(store.identity().await, Ok("etcd-00000000000000c1".into()));
        model.set(0, Mood::Dead);
        model.set(2, Mood::Dead);
        let Unavailable(why) = store.identity().await.expect_err("the only one is of another cluster");
        assert!(!why.is_empty());
        model.set(2, Mood::Well);
        assert_eq!(store.identity().await, Ok("etcd-00000000000000c1".into()));
    });
}

#[test]
fn a_key_that_names_no_owner_is_said() {
    check(async |rt, model| {
        let (store, a) = (owners(rt, model), me("a", 1));
        model.put(OWNER_KEY, "nonsense");
        let Unavailable(why) = store.take(&a, wanted(1, true), NONE).await.expect_err("it is no owner");
        assert!(why.contains(OWNER_KEY) && why.contains("remove it"), "{why}");
        let all: Vec<_> = (1..=2).flat_map(|index| wanted(index, true)).collect();
        let grants = store.take(&a, all, NONE).await.expect("the other one is all right");
        assert_eq!(grants.len(), 1);
        let other = Tenure { target: TargetId::ost(2), epoch: 1 };
        let lost = store.renew(&a, vec![tenure(1), other]).await.expect("etcd answers").lost;
        assert_eq!(lost, [TargetId::ost(1)], "what it was is nobody's");
    });
}

#[test]
fn an_etcd_that_lost_its_data_takes_targets_away() {
    check(async |rt, model| {
        let (store, a) = (owners(rt, model), me("a", 1));
        assert_eq!(epoch(&store, &a, true, NONE).await, Some(1));
        assert_eq!(store.renew(&a, vec![tenure(1)]).await.expect("etcd answers").lost, []);
        model.wipe();
        assert_eq!(store.renew(&a, vec![tenure(1)]).await.expect("etcd answers").lost, [TargetId::ost(1)]);
        // The directory shows that it was served: whoever did may not have noticed yet.
        let mut wants = wanted(1, true);
        wants[0].seen = 1;
        let began = rt.now();
        let grants = store.take(&me("b", 1), wants, TTL * 2).await.expect("etcd answers");
        let grant = grants.first().expect("it is free in the end");
        assert_eq!((grant.taken.epoch, grant.taken.in_place), (2, false));
        assert!(rt.now() - began >= TTL);
    });
}

#[test]
fn a_password_is_changed_for_a_token() {
    check(async |rt, model| {
        model.want_password("secret", "token1");
        let with = |password: &str| {
            let credentials = Credentials { user: "weft".into(), password: password.into() };
            EtcdOwners::new(rt, &"w".parse().expect("a name"), Arc::new(model.clone()), Some(credentials))
        };
        let store = with("secret");
        store.identity().await.expect("the password is right");
        // Tokens end.
        model.want_password("secret", "token2");
        store.identity().await.expect("it gets itself a new one");
        let Unavailable(why) = with("wrong!").identity().await.expect_err("the password is wrong");
        assert!(why.contains("authentication failed") && !why.contains("wrong!"), "{why}");
        owners(rt, model).identity().await.expect_err("there is no password");
    });
}

/// What each server believes: until when it owns the target.
type Beliefs = Arc<Mutex<Vec<u64>>>;

async fn serve(rt: Rt, model: Model, index: usize, beliefs: Beliefs) {
    let mut instance = 1;
    loop {
        let store = owners(&rt, &model);
        let server = me(&format!("s{index}"), instance);
        instance += 1;
        while model.below(12) > 0 {
            let Ok(grants) = store.take(&server, wanted(1, index == 0), Duration::from_secs(5)).await else {
                rt.sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Some(grant) = grants.first() else { continue };
            let held = tenure(grant.taken.epoch);
            loop {
                let asked = rt.now();
                if let Ok(renewed) = store.renew(&server, vec![held.clone()]).await {
                    if !renewed.lost.is_empty() {
                        break;
                    }
                    let until = valid_until(asked.0, renewed.ttl);
                    let mut beliefs = beliefs.lock();
                    beliefs[index] = beliefs[index].max(until);
                }
                match model.below(40) {
                    0 => rt.sleep(Duration::from_millis(model.below(9000))).await,
                    1 => {
                        beliefs.lock()[index] = 0;
                        let _ = store.release(&server, held, "").await;
                        break;
                    }
                    // It dies, and is started again.
                    2 => break,
                    _ => rt.sleep(Duration::from_millis(300)).await,
                }
            }
            beliefs.lock()[index] = 0;
        }
    }
}

/// Three servers and an etcd at its worst; gives whether two ever owned the target at once, and for how many ticks one did.
fn wild(seed: u64, careless: bool) -> (bool, u64) {
    let sim = Sim::new(Options::seed(seed));
    let rt = sim.rt("server");
    sim.run(async {
        let model = Model::new(&rt, 3);
        for _ in 0..seed {
            model.below(2);
        }
        model.set_all(Mood::Wild);
        if careless {
            model.be_careless();
        }
        let beliefs: Beliefs = Arc::new(Mutex::new(vec![0; 3]));
        for index in 0..3 {
            rt.spawn(serve(rt.clone(), model.clone(), index, beliefs.clone()));
        }
        let (mut two, mut one) = (false, 0);
        for _ in 0..30_000 {
            rt.sleep(Duration::from_millis(10)).await;
            let now = rt.now().0;
            let owners = beliefs.lock().iter().filter(|until| **until > now).count();
            two |= owners > 1;
            one += u64::from(owners == 1);
        }
        (two, one)
    })
}

#[test]
fn two_servers_never_own_a_target_whatever_etcd_does() {
    let mut owned = 0;
    for seed in 1..=12 {
        let (two, one) = wild(seed, false);
        assert!(!two, "seed {seed}: two owners");
        owned += one;
    }
    assert!(owned > 12 * 30_000 / 4, "somebody owns it most of the time: {owned}");
}

#[test]
fn an_etcd_without_conditions_is_found_out() {
    assert!((1..=12).any(|seed| wild(seed, true).0), "the test above can fail");
}
