//! The order of the OSTs as it is stored, in the formats of all versions.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::wire::messages::PoolEntry;
use proto::wire::{DecodeError, Reader, Wire};
use proto::{ClientId, OstIndex, Pools, Transno};
use store::{Batch, Change, Store, StoreError};

use crate::mdt::allocate::{Order, Replaced};
use crate::mdt::keys;
use crate::mdt::turns::Round;

/// Version of the format of the stored order: some OSTs have more turns than others.
const FORMAT_ROUNDS: u8 = 6;
/// The one before, which is written as long as all have as many: pools spill.
const FORMAT_SPILLS: u8 = 5;
/// The one before that, which is written as long as no pool spills, either.
const FORMAT: u8 = 4;
/// The one before that: nobody took a lost one's place.
const FORMAT_POOLS: u8 = 3;
/// And before that: no pools.
const FORMAT_MARKED: u8 = 2;
/// And before that: nothing of what is avoided.
const FORMAT_PLAIN: u8 = 1;

/// The order that the target knew last.
pub(super) fn load(store: &Store) -> Result<Order, StoreError> {
    let Some(value) = store.get(&[keys::OSTS])? else { return Ok(Order::default()) };
    order_of(&value.bytes).ok_or_else(|| StoreError::Corrupt { what: "the order of the OSTs".into() })
}

/// An order as it was stored.
fn order_of(value: &Bytes) -> Option<Order> {
    match *value.first()? {
        FORMAT_ROUNDS => in_rounds(&mut Reader::new(value.slice(1..))),
        FORMAT_SPILLS => spilling(&mut Reader::new(value.slice(1..))).ok(),
        FORMAT => whole(&mut Reader::new(value.slice(1..))).ok(),
        FORMAT_POOLS => with_pools(&mut Reader::new(value.slice(1..))).ok(),
        _ => without_pools(value),
    }
}

/// Behind the turns of all OSTs, and those of each pool, there is an order without that.
fn in_rounds(from: &mut Reader) -> Option<Order> {
    let all = Round::new(from.take().ok()?);
    let pools = from.take::<Vec<PoolEntry>>().ok()?.into_iter();
    let pools: BTreeMap<String, Round> = pools.map(|pool| (pool.name, Round::new(pool.osts))).collect();
    let rest = from.take_bytes(from.remaining()).ok()?;
    let order =
        Some(rest).filter(|rest| rest.first() != Some(&FORMAT_ROUNDS)).and_then(|rest| order_of(&rest))?;
    Some(order.with_rounds(|pool, _| match pool {
        Some(pool) => pools.get(pool).cloned().unwrap_or_default(),
        None => all.clone(),
    }))
}

/// Behind what pools spill from and to there is an order without that.
fn spilling(from: &mut Reader) -> Result<Order, DecodeError> {
    let (pools, targets) = (from.take::<Vec<String>>()?, from.take::<Vec<String>>()?);
    if pools.len() != targets.len() {
        return Err(DecodeError::BadValue);
    }
    Ok(whole(from)?.spilling(pools.into_iter().zip(targets).collect()))
}

fn whole(from: &mut Reader) -> Result<Order, DecodeError> {
    let order = with_pools(from)?;
    let osts = from.take::<Vec<OstIndex>>()?;
    let (uuids, firsts) = (from.take::<Vec<ClientId>>()?, from.take::<Vec<u64>>()?);
    if osts.len() != uuids.len() || osts.len() != firsts.len() {
        return Err(DecodeError::BadValue);
    }
    let names = uuids.into_iter().zip(firsts).map(|(uuid, first)| Replaced { uuid, first });
    // A program that does not know it reads no further.
    let on_mdt_max = if from.is_empty() { None } else { Some(from.take()?) };
    Ok(order.replacing(osts.into_iter().zip(names).collect()).with_on_mdt_max(on_mdt_max))
}

fn with_pools(from: &mut Reader) -> Result<Order, DecodeError> {
    let order = Order::from_osts(from.take()?).avoiding(from.take()?);
    let mut pools = Pools::default();
    from.take::<Vec<PoolEntry>>()?.into_iter().for_each(|pool| pools.insert(pool));
    Ok(order.with_pools(&pools))
}

fn without_pools(value: &[u8]) -> Option<Order> {
    let (format, rest) = value.split_first()?;
    let (numbers, rest) = rest.as_chunks::<4>();
    let mut numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
    let count = match *format {
        FORMAT_MARKED => numbers.next()? as usize,
        FORMAT_PLAIN => numbers.len(),
        _ => return None,
    };
    let whole = rest.is_empty() && count <= numbers.len();
    let mut osts = numbers.map(OstIndex);
    whole.then(|| Order::from_osts(osts.by_ref().take(count).collect()).avoiding(osts.collect()))
}

fn order_value(order: &Order) -> Bytes {
    let mut value = Vec::new();
    let turns = |pool| order.round(pool).map(|round| round.turns().to_vec());
    let of_pools = order.pools().filter_map(|(name, _)| Some((name, turns(Some(name))?)));
    let of_pools: Vec<PoolEntry> =
        of_pools.map(|(name, osts)| PoolEntry { name: name.to_owned(), osts }).collect();
    if turns(None).is_some() || !of_pools.is_empty() {
        value.push(FORMAT_ROUNDS);
        turns(None).unwrap_or_default().put(&mut value);
        of_pools.put(&mut value);
    }
    value.push(if order.spills().is_empty() { FORMAT } else { FORMAT_SPILLS });
    if !order.spills().is_empty() {
        order.spills().keys().cloned().collect::<Vec<_>>().put(&mut value);
        order.spills().values().cloned().collect::<Vec<_>>().put(&mut value);
    }
    order.osts().to_vec().put(&mut value);
    order.avoided().to_vec().put(&mut value);
    let pools = order.pools().map(|(name, osts)| PoolEntry { name: name.to_owned(), osts: osts.to_vec() });
    pools.collect::<Vec<_>>().put(&mut value);
    let replaced = order.replaced();
    replaced.keys().copied().collect::<Vec<_>>().put(&mut value);
    replaced.values().map(|replaced| replaced.uuid).collect::<Vec<_>>().put(&mut value);
    replaced.values().map(|replaced| replaced.first).collect::<Vec<_>>().put(&mut value);
    order.on_mdt_max().iter().for_each(|max| max.put(&mut value));
    value.into()
}

/// Writes an order: it is there after a restart once that is committed.
pub(super) fn save(store: &Store, order: &Order) -> Result<Transno, StoreError> {
    let change = Change { key: Bytes::from_static(&[keys::OSTS]), value: Some(order_value(order)) };
    store.commit(Batch { changes: vec![change], ..Batch::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_a_format_before_is_read() {
        let order_of = |value: &[u8]| order_of(&Bytes::copy_from_slice(value));
        let plain = [1, 7, 0, 0, 0, 3, 0, 0, 0];
        let (order, seven) = (Order::from_osts(vec![OstIndex(7), OstIndex(3)]), vec![OstIndex(7)]);
        assert_eq!(order_of(&plain), Some(order.clone()));
        let marked = [2, 2, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0];
        assert_eq!(order_of(&marked), Some(order.avoiding(seven)));
        for wrong in [&[][..], &[3], &[4], &[5], &[2], &[2, 1, 0, 0, 0], &[1, 7, 0, 0]] {
            assert_eq!(order_of(wrong), None, "{wrong:?}");
        }
    }

    /// The bytes are pinned: targets that were written before have to be read.
    #[test]
    fn an_order_with_pools_has_these_bytes() {
        let mut pools = Pools::default();
        pools.insert(PoolEntry { name: "a".into(), osts: vec![OstIndex(3), OstIndex(7)] });
        pools.insert(PoolEntry { name: "b".into(), osts: vec![] });
        let order = Order::from_osts(vec![OstIndex(7), OstIndex(3)]).avoiding(vec![OstIndex(3)]);
        let order = order.with_pools(&pools);
        let replaced = Replaced { uuid: ClientId(0x0f), first: 0x1_0203 };
        let order = order.replacing(BTreeMap::from([(OstIndex(7), replaced)]));
        let value = order_value(&order);
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let osts = "04 02000000 07000000 03000000 01000000 03000000";
        let pools = "02000000 11000000 01000000 61 02000000 07000000 03000000 09000000 01000000 62 00000000";
        let replaced =
            "01000000 07000000 01000000 0f000000000000000000000000000000 01000000 0302010000000000";
        assert_eq!(hex, [osts, pools, replaced].concat().replace(' ', ""));
        let before =
            Bytes::from([&[3], &value[1..value.len() - replaced.replace(' ', "").len() / 2]].concat());
        assert_eq!(order_of(&before), Some(order.clone().replacing(BTreeMap::new())), "of the format before");
        assert_eq!(order_of(&value), Some(order.clone()));
        for len in 0..value.len() {
            assert_eq!(order_of(&value.slice(..len)), None, "{len} bytes");
        }
        let bounded = order_value(&order.clone().with_on_mdt_max(Some(65_536)));
        assert_eq!(bounded, [&value[..], &[0, 0, 1, 0, 0, 0, 0, 0]].concat());
        let order = order.with_on_mdt_max(Some(65_536));
        assert_eq!(order_of(&bounded), Some(order.clone()));
        let order = order.spilling(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let spilling = order_value(&order);
        let front = [5, 1, 0, 0, 0, 1, 0, 0, 0, b'a', 1, 0, 0, 0, 1, 0, 0, 0, b'b'];
        assert_eq!(spilling, [&front[..], &bounded[1..]].concat());
        assert_eq!(order_of(&spilling), Some(order.clone()));
        let turns = |osts: &[u32]| Round::new(osts.iter().copied().map(OstIndex).collect());
        let order = order.with_rounds(|pool, _| match pool {
            None => turns(&[7, 3, 7]),
            Some("a") => turns(&[3, 3]),
            Some(_) => Round::default(),
        });
        let rounds = order_value(&order);
        let front =
            "06 03000000 07000000 03000000 07000000 01000000 11000000 01000000 61 02000000 03000000 03000000";
        let hex: String = rounds.iter().map(|byte| format!("{byte:02x}")).collect();
        let rest: String = spilling.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, front.replace(' ', "") + &rest);
        assert_eq!(order_of(&rounds), Some(order));
        let twice = [&rounds[..hex.len() / 2 - spilling.len()], &rounds[..]].concat();
        assert_eq!(order_of(&twice.into()), None, "there is one order");
    }
}
