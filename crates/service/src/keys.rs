//! The first byte of every key of a target's store says whose it is. Specified in `docs/disk-mdt.md#keys`.

use bytes::Bytes;
use proto::ClientId;

/// `[CLIENT][client: 16 BE]`: the client has, or had before the restart, a session.
pub const CLIENT: u8 = 0x01;
/// `[SLOT][client: 16 BE][slot: 4 BE]`: the reply to the last change in that slot.
pub const SLOT: u8 = 0x02;
/// `[ACCEPTED]`: sessions with starts up to this one are over, for an older copy of the target was accepted then.
pub const ACCEPTED: u8 = 0x03;
/// `[REFUSED]`: the MGS has said that this is an older or a second copy of the target. Each start makes it look newer.
pub const REFUSED: u8 = 0x04;
/// `[REPLACES]`: the target takes the place of a lost one; the first sequence whose objects are not that one's.
pub const REPLACES: u8 = 0x05;
/// `[GIVEN]`: parameters that the target was given when it was made, and that the MGS does not keep yet.
pub const GIVEN: u8 = 0x06;
/// First of the prefixes that an MDT uses.
pub const MDT: u8 = 0x10;
/// First of the prefixes that the MGS uses.
pub const MGS: u8 = 0x60;

/// Key of a client's record.
pub fn client(client: ClientId) -> Bytes {
    let mut key = Vec::with_capacity(17);
    key.push(CLIENT);
    key.extend_from_slice(&client.0.to_be_bytes());
    key.into()
}

/// The client that a [`client`] key names.
pub fn client_of(key: &[u8]) -> Option<ClientId> {
    let (id, _) = key.get(1..)?.split_first_chunk::<16>()?;
    Some(ClientId(u128::from_be_bytes(*id)))
}

/// Key of a reply slot.
pub fn slot(client: ClientId, slot: u32) -> Bytes {
    let mut key = Vec::with_capacity(21);
    key.push(SLOT);
    key.extend_from_slice(&client.0.to_be_bytes());
    key.extend_from_slice(&slot.to_be_bytes());
    key.into()
}

/// The slot that a [`slot`] key names.
pub fn slot_of(key: &[u8]) -> Option<u32> {
    let (slot, _) = key.get(17..)?.split_first_chunk::<4>()?;
    Some(u32::from_be_bytes(*slot))
}

/// First key behind all that start with `prefix`; empty (the end) if there is none.
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_sort() {
        let id = ClientId(0x0102_0304);
        assert_eq!(client_of(&client(id)), Some(id));
        assert_eq!(slot_of(&slot(id, 7)), Some(7));
        assert!(slot(id, 7) < slot(id, 256));
        assert_eq!(behind(&[1, 0xff]), vec![2]);
        assert_eq!(behind(&[1, 2]), vec![1, 3]);
        assert_eq!(client_of(&[1, 2]), None);
    }
}
