use super::*;

const SECOND: u64 = 1_000_000_000;
const OST: TargetId = TargetId { kind: crate::TargetKind::Ost, index: 1 };

fn server(name: &str, instance: u64) -> Server {
    let nids = vec![format!("{name}@tcp").parse().expect("a NID")];
    Server { name: name.into(), instance, nids }
}

fn wanted(preferred: bool) -> Wanted {
    Wanted { target: OST, seen: 4, preferred }
}

fn take(owners: &mut Owners, now: u64, server: &Server, preferred: bool) -> Result<(u64, bool), u64> {
    match owners.take(now, server, &wanted(preferred)) {
        Verdict::Granted(taken, record) => {
            assert_eq!((taken.target, taken.epoch), (OST, record.epoch));
            Ok((taken.epoch, taken.in_place))
        }
        Verdict::Wait(until) => Err(until),
    }
}

fn renews(owners: &mut Owners, now: u64, server: &Server, epoch: u64) -> bool {
    let hold = Tenure { target: OST, epoch };
    owners.renew(now, &server.name, server.instance, &[hold]).is_empty()
}

#[test]
fn the_first_of_the_service_nodes_goes_first() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, SECOND, &b, false), Err(11 * SECOND));
    assert_eq!(take(&mut owners, 2 * SECOND, &a, true), Ok((5, true)), "behind what its directory shows");
    assert_eq!(take(&mut owners, 2 * SECOND, &b, false), Err(5 * SECOND));
}

#[test]
fn nobody_gets_what_is_renewed() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    for now in 1..20 {
        assert!(renews(&mut owners, now * SECOND, &a, 5));
        assert_eq!(take(&mut owners, now * SECOND, &b, false), Err((now + 3) * SECOND));
    }
    assert_eq!(take(&mut owners, 22 * SECOND, &b, false), Ok((6, false)), "nobody knows what a does");
    assert!(!renews(&mut owners, 22 * SECOND, &a, 5), "it comes back");
    assert!(renews(&mut owners, 22 * SECOND, &b, 6));
    assert!(owners.is_owner(OST, 6) && !owners.is_owner(OST, 5));
}

#[test]
fn what_nobody_has_taken_meanwhile_goes_on() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    assert!(renews(&mut owners, 60 * SECOND, &a, 5));
    assert_eq!(take(&mut owners, 61 * SECOND, &b, false), Err(63 * SECOND));
}

#[test]
fn an_owner_acts_only_while_nobody_else_can_have_it() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    // Asked at 4 s, arrived at 4.2 s: clocks may differ in rate by a sixth.
    assert!(renews(&mut owners, 4 * SECOND + SECOND / 5, &a, 5));
    let until = valid_until(4 * SECOND, TTL);
    assert_eq!(take(&mut owners, until, &b, false), Err(7 * SECOND + SECOND / 5));
}

#[test]
fn a_server_that_starts_again_goes_on_at_once() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &b, true), Ok((5, true)));
    let again = server("b", 2);
    assert_eq!(take(&mut owners, 1, &a, false), Err(3 * SECOND));
    assert_eq!(take(&mut owners, 1, &again, true), Ok((6, true)));
    assert!(!renews(&mut owners, 2, &b, 5), "the process of before is gone");
    // Another machine with the same name is another server.
    let other = Server { nids: server("x", 1).nids, ..server("b", 3) };
    assert_eq!(take(&mut owners, 3, &other, true), Err(1 + 3 * SECOND));
}

#[test]
fn who_stops_in_order_may_name_its_heir() {
    let (a, b) = (server("a", 1), server("b", 1));
    let mut owners = Owners::new(0, []);
    assert_eq!(take(&mut owners, 0, &a, true), Ok((5, true)));
    let tenure = Tenure { target: OST, epoch: 5 };
    assert_eq!(owners.release(SECOND, "b", 1, &tenure, ""), None, "it is not b's");
    let record = owners.release(SECOND, "a", 1, &tenure, "b@tcp").expect("it is a's");
    assert!(record.released && !owners.is_owner(OST, 5));
    assert_eq!(take(&mut owners, SECOND, &a, true), Err(3 * SECOND), "b has it reserved");
    assert_eq!(take(&mut owners, SECOND, &b, false), Ok((6, true)), "at once");
    let tenure = Tenure { target: OST, epoch: 6 };
    owners.release(2 * SECOND, "b", 1, &tenure, "").expect("it is b's");
    assert_eq!(take(&mut owners, 2 * SECOND, &b, false), Err(4 * SECOND), "it is not the first of them");
    assert_eq!(take(&mut owners, 4 * SECOND, &b, false), Ok((7, true)), "but the first one does not come");
}

#[test]
fn what_was_owned_before_a_restart_of_the_store_is_not_given_away() {
    let (a, b) = (server("a", 1), server("b", 1));
    let record = Record { epoch: 9, server: a.clone(), released: false, reserved: String::new() };
    let mut owners = Owners::new(100 * SECOND, [(OST, record.clone())]);
    assert_eq!(take(&mut owners, 100 * SECOND, &b, false), Err(103 * SECOND));
    assert!(renews(&mut owners, 102 * SECOND, &a, 9));
    assert_eq!(take(&mut owners, 103 * SECOND, &b, false), Err(105 * SECOND));
    let mut owners = Owners::new(100 * SECOND, [(OST, Record { released: true, ..record })]);
    assert_eq!(take(&mut owners, 100 * SECOND, &b, false), Err(110 * SECOND), "a may be starting too");
}
