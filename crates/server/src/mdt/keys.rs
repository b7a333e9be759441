//! Keys of an MDT's store. Specified in `docs/disk-mdt.md#keys`.
//!
//! Numbers in keys are big endian, so that keys sort as the numbers do.

use bytes::Bytes;
use proto::{ClientId, DataTarget, Fid, FileKind, MdtIndex, Name, OstIndex};
use service::keys::MDT;

/// `[INODE][fid]`: an inode.
pub const INODE: u8 = MDT;
/// `[ENTRY][parent][hash][name]`: an entry of a directory.
pub const ENTRY: u8 = MDT + 1;
/// `[LINK][fid][parent][name]`: back from an inode to an entry that names it.
pub const LINK: u8 = MDT + 2;
/// `[XATTR][fid][name]`: an extended attribute.
pub const XATTR: u8 = MDT + 3;
/// `[ORPHAN][fid]`: an inode without a name that is still open; whether it can get one.
pub const ORPHAN: u8 = MDT + 4;
/// `[DESTROY][index: 4][kind: 1][0: 11][layout id]`: stripes of a layout to be destroyed on an OST (kind 0), or on this MDT (1).
pub const DESTROY: u8 = MDT + 5;
/// `[SEQUENCE]`: first sequence that is not reserved.
pub const SEQUENCE: u8 = MDT + 6;
/// `[GRANT][client: 16][sequence: 8]`: the sequence belongs to the client's session.
pub const GRANT: u8 = MDT + 7;
/// `[OSTS]`: the order in which stripes take OSTs.
pub const OSTS: u8 = MDT + 8;
/// `[OPEN][client: 16][handle: 8]`: the client has the file open for writing.
pub const OPEN: u8 = MDT + 9;
// MDT + 10 is the number of inodes (`store::sums::INODES`).
/// `[CHANGELOG][index: 8]`: a record of the changelog.
pub const CHANGELOG: u8 = MDT + 11;
/// `[CHANGELOG_USER][user: 4]`: who reads it, and how far.
pub const CHANGELOG_USER: u8 = MDT + 12;
/// `[CHANGELOG_STATE]`: its newest and its oldest record.
pub const CHANGELOG_STATE: u8 = MDT + 13;
// MDT + 14 is the number of inodes of each owner (`store::sums::INODE_OWNERS`).
/// `[QUOTA][kind][id: 4]`: what an owner may have; `[QUOTA][kind]`: what holds for all of the kind.
pub const QUOTA: u8 = MDT + 15;
/// `[LOAD][hour: 4]`: how busy the MDT's server was in an hour.
pub const LOAD: u8 = MDT + 16;
/// `[OWNERS][index: 4][kind: 1][0: 11][layout id][boot: 8][number: 8]`: stripes of a layout that got another owner, on an OST or this MDT.
pub const OWNERS: u8 = MDT + 17;
/// `[HSM_ACTION][cookie: 8]`: what a copytool is asked to do with a file, and has not done.
pub const HSM_ACTION: u8 = MDT + 18;
/// `[QUOTA_POOL][part: 1][kind: 1][id: 4][pool]`: what an owner may have of a pool, or all of a kind.
pub const QUOTA_POOL: u8 = MDT + 19;

/// `[USED][kind: 1][id: 4]`: what OSTs said last that an owner with limits has.
pub const USED: u8 = MDT + 20;
/// `[CUT][client: 16][fid: 16]`: the client cuts the file, and has not told its size since.
pub const CUT: u8 = MDT + 21;

/// Version of the format of an entry's value.
const ENTRY_FORMAT: u8 = 1;
/// Version of the format of an open file's value.
const OPEN_FORMAT: u8 = 1;
/// Version of the format of a cut's value.
const CUT_FORMAT: u8 = 1;
/// Bytes in front of the name in an entry's key.
pub const ENTRY_NAME_AT: usize = 1 + 16 + 8;
/// Bytes in front of the name in a link's key.
pub const LINK_NAME_AT: usize = 1 + 16 + 16;

fn of_fid(prefix: u8, fid: Fid, room: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(17 + room);
    key.push(prefix);
    key.extend_from_slice(&fid.to_key());
    key
}

/// Key of the limits of an owner.
pub fn quota(kind: u8, id: u32) -> Bytes {
    let mut key = vec![QUOTA, kind];
    key.extend_from_slice(&id.to_be_bytes());
    key.into()
}

/// Key of what OSTs said last of an owner.
pub fn used((kind, id): (u8, u32)) -> Bytes {
    [&[USED, kind][..], &id.to_be_bytes()].concat().into()
}

/// The owner in such a key.
pub fn used_of(key: &[u8]) -> Option<(u8, u32)> {
    match *key {
        [USED, kind, ref id @ ..] => Some((kind, u32::from_be_bytes(id.try_into().ok()?))),
        _ => None,
    }
}

/// Key of what holds for all owners of a kind.
pub fn quota_of_all(kind: u8) -> Bytes {
    Bytes::copy_from_slice(&[QUOTA, kind])
}

/// Key of a part of what an owner of a kind may have of a pool.
pub fn quota_of_pool((part, kind): (u8, u8), id: u32, pool: &str) -> Bytes {
    [&[QUOTA_POOL, part, kind][..], &id.to_be_bytes(), pool.as_bytes()].concat().into()
}

/// Key of an inode.
pub fn inode(fid: Fid) -> Bytes {
    of_fid(INODE, fid, 0).into()
}

/// Key of an entry.
pub fn entry(parent: Fid, name: &Name) -> Bytes {
    let mut key = of_fid(ENTRY, parent, 8 + name.as_bytes().len());
    key.extend_from_slice(&name.hash().to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key.into()
}

/// First key that an entry of `parent` with a hash of at least `hash` can have.
pub fn entries_from(parent: Fid, hash: u64) -> Vec<u8> {
    let mut key = of_fid(ENTRY, parent, 8);
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// First key behind the entries of `parent`: hashes have 63 bits.
pub fn entries_end(parent: Fid) -> Vec<u8> {
    entries_from(parent, u64::MAX)
}

/// Hash in an entry's key.
pub fn entry_hash(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(17..)?.first_chunk()?))
}

/// Hash and name of an entry's key.
pub fn entry_parts(key: &Bytes) -> Option<(u64, Name)> {
    let hash = key.get(17..)?.first_chunk::<8>()?;
    let name = Name::new(key.slice(ENTRY_NAME_AT..)).ok()?;
    Some((u64::from_be_bytes(*hash), name))
}

/// Value of an entry: format, FID, kind.
pub fn entry_value(fid: Fid, kind: FileKind) -> Bytes {
    let mut value = of_fid(ENTRY_FORMAT, fid, 1);
    value.push((kind.mode_bits() >> 12) as u8);
    value.into()
}

/// The inverse of [`entry_value`].
pub fn entry_of(value: &[u8]) -> Option<(Fid, FileKind)> {
    let (&format, rest) = value.split_first()?;
    let kind = u32::from(*rest.get(16)?) << 12;
    match (format, value.len()) {
        (ENTRY_FORMAT, 18) => Some((Fid::from_key(rest)?, FileKind::from_mode(kind)?)),
        _ => None,
    }
}

/// Key of a link.
pub fn link(fid: Fid, parent: Fid, name: &Name) -> Bytes {
    let mut key = of_fid(LINK, fid, 16 + name.as_bytes().len());
    key.extend_from_slice(&parent.to_key());
    key.extend_from_slice(name.as_bytes());
    key.into()
}

/// Parent and name of a link's key.
pub fn link_parts(key: &Bytes) -> Option<(Fid, Name)> {
    let parent = Fid::from_key(key.get(17..)?)?;
    let name = Name::new(key.slice(LINK_NAME_AT..)).ok()?;
    Some((parent, name))
}

/// What the keys of `fid` under `prefix` start with.
pub fn of(prefix: u8, fid: Fid) -> Vec<u8> {
    of_fid(prefix, fid, 1)
}

/// Key of an extended attribute.
pub fn xattr(fid: Fid, name: &[u8]) -> Bytes {
    let mut key = of_fid(XATTR, fid, name.len());
    key.extend_from_slice(name);
    key.into()
}

/// Name of an extended attribute's key.
pub fn xattr_name(key: &Bytes) -> Bytes {
    key.slice(17.min(key.len())..)
}

/// Key of an orphan.
pub fn orphan(fid: Fid) -> Bytes {
    of_fid(ORPHAN, fid, 0).into()
}

/// Value of an orphan: empty if it lost its last name; 1 for a file that was made without one and may get one.
pub fn orphan_value(linkable: bool) -> Bytes {
    Bytes::from_static(if linkable { &[1] } else { &[] })
}

/// Whether an orphan with this value may get a name.
pub fn is_linkable(value: &[u8]) -> bool {
    value == [1]
}

/// The FID behind a key's prefix.
pub fn fid_of(key: &[u8]) -> Option<Fid> {
    Fid::from_key(key.get(1..)?)
}

/// What the keys of a target's list under `prefix` start with: what is to be destroyed on it, or got another owner.
pub fn of_target(prefix: u8, target: DataTarget) -> Vec<u8> {
    let (index, kind) = match target {
        DataTarget::Ost(index) => (index.0, 0),
        DataTarget::Mdt(index) => (index.0, 1),
    };
    let mut key = Vec::with_capacity(49);
    key.push(prefix);
    key.extend_from_slice(&index.to_be_bytes());
    key.push(kind);
    // Keys that are listed together share their first 17 bytes.
    key.extend_from_slice(&[0; 11]);
    key
}

/// Key of the stripes of `layout` to be destroyed on `target`.
pub fn destroy(target: DataTarget, layout: Fid) -> Bytes {
    let mut key = of_target(DESTROY, target);
    key.extend_from_slice(&layout.to_key());
    key.into()
}

/// Key of the stripes of `layout` on `target` that got another owner; `number` is used once in a boot of the target.
pub fn owners(target: DataTarget, layout: Fid, (boot, number): (u64, u64)) -> Bytes {
    let mut key = of_target(OWNERS, target);
    key.extend_from_slice(&layout.to_key());
    key.extend_from_slice(&boot.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key.into()
}

/// What the keys of [`owners`] have in common that name the same objects; none for another key.
pub fn owned(key: &[u8]) -> Option<&[u8]> {
    if key.first() == Some(&OWNERS) { key.get(..key.len().checked_sub(16)?) } else { None }
}

/// Target and layout id of a key of a target's list.
pub fn target_parts(key: &[u8]) -> Option<(DataTarget, Fid)> {
    let (index, rest) = key.get(1..)?.split_first_chunk::<4>()?;
    let index = u32::from_be_bytes(*index);
    let target = match rest.first()? {
        0 => DataTarget::Ost(OstIndex(index)),
        1 => DataTarget::Mdt(MdtIndex(index)),
        _ => return None,
    };
    Some((target, Fid::from_key(rest.get(12..)?)?))
}

/// What the keys of a client under `prefix` start with.
pub fn of_client(prefix: u8, client: ClientId) -> Vec<u8> {
    let mut key = Vec::with_capacity(25);
    key.push(prefix);
    key.extend_from_slice(&client.0.to_be_bytes());
    key
}

/// Key of an action of HSM.
pub fn hsm_action(cookie: u64) -> Bytes {
    let mut key = vec![HSM_ACTION];
    key.extend_from_slice(&cookie.to_be_bytes());
    key.into()
}

/// The cookie of such a key.
pub fn hsm_action_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

/// Key of a granted sequence.
pub fn grant(client: ClientId, sequence: u64) -> Bytes {
    let mut key = of_client(GRANT, client);
    key.extend_from_slice(&sequence.to_be_bytes());
    key.into()
}

/// Key of an open file.
pub fn open(client: ClientId, handle: u64) -> Bytes {
    let mut key = of_client(OPEN, client);
    key.extend_from_slice(&handle.to_be_bytes());
    key.into()
}

/// Value of an open file.
pub fn open_value(fid: Fid) -> Bytes {
    of_fid(OPEN_FORMAT, fid, 0).into()
}

/// The inverse of [`open_value`].
pub fn opened(value: &[u8]) -> Option<Fid> {
    let (&format, fid) = value.split_first()?;
    if format == OPEN_FORMAT && fid.len() == 16 { Fid::from_key(fid) } else { None }
}

/// Key of a file that a client cuts.
pub fn cut(client: ClientId, fid: Fid) -> Bytes {
    let mut key = of_client(CUT, client);
    key.extend_from_slice(&fid.to_key());
    key.into()
}

/// Value of a file that a client cuts.
pub fn cut_value() -> Bytes {
    Bytes::from_static(&[CUT_FORMAT])
}

/// The file in such a key, if its value is one that this version knows.
pub fn cut_of(key: &[u8], value: &[u8]) -> Option<Fid> {
    if value == [CUT_FORMAT] { Fid::from_key(key.get(17..)?) } else { None }
}

/// The number behind the client in a [`grant`] or [`open`] key.
pub fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(17..)?.first_chunk::<8>()?))
}

/// Key of a record of the changelog.
pub fn changelog(index: u64) -> Bytes {
    let mut key = vec![CHANGELOG];
    key.extend_from_slice(&index.to_be_bytes());
    key.into()
}

/// The inverse of [`changelog`].
pub fn changelog_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(1..)?.first_chunk()?))
}

/// Key of a reader of the changelog.
pub fn changelog_user(user: u32) -> Bytes {
    let mut key = vec![CHANGELOG_USER];
    key.extend_from_slice(&user.to_be_bytes());
    key.into()
}

/// The inverse of [`changelog_user`].
pub fn changelog_user_of(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*key.get(1..)?.first_chunk()?))
}

/// Key of what is known of the changelog as a whole.
pub fn changelog_state() -> Bytes {
    Bytes::from_static(&[CHANGELOG_STATE])
}

/// Key of the load of an hour, counted from 1970.
pub fn load(hour: u32) -> Bytes {
    let mut key = vec![LOAD];
    key.extend_from_slice(&hour.to_be_bytes());
    key.into()
}

/// The inverse of [`load`].
pub fn load_of(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid { seq: 0x2_0000_0400, oid: 5, ver: 0 };

    #[test]
    fn keys_round_trip() {
        let name = Name::new(&b"hello"[..]).expect("a plain name");
        assert_eq!(entry_parts(&entry(FID, &name)), Some((name.hash(), name.clone())));
        assert_eq!(link_parts(&link(FID, Fid::ROOT, &name)), Some((Fid::ROOT, name.clone())));
        assert_eq!(entry_of(&entry_value(FID, FileKind::Dir)), Some((FID, FileKind::Dir)));
        assert_eq!(entry_of(&[1, 2, 3]), None);
        assert_eq!(xattr_name(&xattr(FID, b"user.a")), &b"user.a"[..]);
        for target in [DataTarget::Ost(OstIndex(7)), DataTarget::Mdt(MdtIndex(7))] {
            assert_eq!(target_parts(&destroy(target, FID)), Some((target, FID)));
            assert_eq!(target_parts(&owners(target, FID, (1, 2))), Some((target, FID)));
        }
        assert_eq!(number_of(&grant(ClientId(1), 99)), Some(99));
        assert_eq!(opened(&open_value(FID)), Some(FID));
        assert_eq!(fid_of(&orphan(FID)), Some(FID));
        assert!(!store::sums::INODES.key().starts_with(&[CHANGELOG]));
        assert_eq!(changelog_of(&changelog(0x1_0000_0002)), Some(0x1_0000_0002));
        assert_eq!(changelog_user_of(&changelog_user(3)), Some(3));
        assert_eq!(load_of(&load(0x1_0002)), Some(0x1_0002));
        let first = entries_from(FID, name.hash());
        assert!(first.as_slice() <= &entry(FID, &name)[..] && entry(FID, &name)[..] < entries_end(FID)[..]);
    }
}
