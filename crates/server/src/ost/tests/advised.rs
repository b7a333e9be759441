//! Advice about what will be read.

use std::time::Duration;

use bytes::Bytes;
use proto::wire::messages as msg;
use proto::{Code, TargetId};
use rpc::Role;

use super::{World, check, id, refused, write};

fn advise(start: u64, end: u64, advice: u8) -> msg::AdviseObject {
    msg::AdviseObject { object: id(1), start, end, advice }
}

async fn set_cache(world: &World, value: &str) {
    set(world, "read_cache_enable", value).await;
}

async fn set(world: &World, name: &str, value: &str) {
    let set = msg::Parameter { name: format!("osd-weft.*.{name}"), value: value.into() };
    let set = msg::SetParameters { parameters: vec![set] };
    let nids = [proto::Nid::lo()];
    let asked = world.hub.ask(TargetId::ost(3), Role::Server, &nids, set, Duration::from_secs(9)).await;
    asked.expect("it is a switch");
}

#[test]
fn advice_is_taken_where_something_is_kept() {
    check(async |_rt, world| {
        let client = world.import(100, Role::Client);
        client.call_bulk(write(1, 0, 7), vec![Bytes::from(vec![7; 100_000])]).await.expect("it is written");
        let whole = advise(0, msg::ADVISE_BYTES_MAX, msg::ADVICE_WILL_READ);
        assert_eq!(refused(client.call(whole.clone()).await), Code::NotSupported, "nothing is kept");
        set_cache(&world, "1").await;
        client.call(whole.clone()).await.expect("it ends at the end of the object");
        client
            .call(advise(1 << 40, (1 << 40) + 1, msg::ADVICE_WILL_READ))
            .await
            .expect("there is nothing to read");
        client.call(advise(9, 3, msg::ADVICE_WILL_READ)).await.expect("there is nothing to read");
        assert_eq!(
            refused(client.call(advise(0, 1, 9)).await),
            Code::NotSupported,
            "nobody knows what that is"
        );
        let larger = advise(0, msg::ADVISE_BYTES_MAX + 1, msg::ADVICE_WILL_READ);
        assert_eq!(refused(client.call(larger).await), Code::TooBig);
        set(&world, "readcache_max_filesize", "99999").await;
        assert_eq!(refused(client.call(whole.clone()).await), Code::NotSupported, "it is too large");
        set(&world, "readcache_max_filesize", "100000").await;
        client.call(whole.clone()).await.expect("it is not too large");
        set_cache(&world, "0").await;
        assert_eq!(refused(client.call(whole).await), Code::NotSupported);
        world.stop().await;
    });
}
