//! Encodings of the ids and types that messages are made of.

use bytes::Bytes;
use smallvec::SmallVec;

use super::codec::{DecodeError, Reader, Wire};
use crate::ids::{ClientId, Fid, Nid, ObjectId, TargetId, TargetKind, Transno, Xid};
use crate::layout::{Layout, LayoutHint};
use crate::limits::{GROUPS_MAX, STRIPES_MAX};
use crate::name::{FsName, Name};
use crate::time::Timestamp;
use crate::types::{Attr, Cred};

/// A struct whose encoding is that of its fields, one behind the other.
macro_rules! wire_fields {
    ($name:ident { $($field:ident),* }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(from: &mut Reader) -> Result<Self, DecodeError> {
                Ok($name { $($field: from.take()?),* })
            }
        }
    };
}

wire_fields!(Fid { seq, oid, ver });
wire_fields!(ObjectId { layout, stripe });
wire_fields!(TargetId { kind, index });
wire_fields!(LayoutHint { stripe_count, stripe_size, start_index, osts, overstripe, pool });
wire_fields!(Attr {
    fid,
    mode,
    nlink,
    uid,
    gid,
    rdev,
    size,
    blocks,
    atime,
    mtime,
    ctime,
    btime,
    size_known,
    version,
    mtime_set
});

impl Wire for Xid {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<Xid, DecodeError> {
        Ok(Xid(from.take()?))
    }
}

impl Wire for Transno {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<Transno, DecodeError> {
        Ok(Transno(from.take()?))
    }
}

impl Wire for ClientId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<ClientId, DecodeError> {
        Ok(ClientId(from.take()?))
    }
}

impl Wire for TargetKind {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_u8().put(out);
    }
    fn take(from: &mut Reader) -> Result<TargetKind, DecodeError> {
        TargetKind::from_u8(from.take()?).ok_or(DecodeError::BadValue)
    }
}

impl Wire for Nid {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_string().put(out);
    }
    fn take(from: &mut Reader) -> Result<Nid, DecodeError> {
        from.take::<String>()?.parse().map_err(|_| DecodeError::BadValue)
    }
}

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        (self.as_bytes().len() as u8).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(from: &mut Reader) -> Result<Name, DecodeError> {
        let len = from.take::<u8>()?;
        Name::new(from.take_bytes(usize::from(len))?).map_err(|_| DecodeError::BadValue)
    }
}

impl Wire for FsName {
    fn put(&self, out: &mut Vec<u8>) {
        Bytes::copy_from_slice(self.as_str().as_bytes()).put(out);
    }
    fn take(from: &mut Reader) -> Result<FsName, DecodeError> {
        from.take::<String>()?.parse().map_err(|_| DecodeError::BadValue)
    }
}

impl Wire for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.secs.put(out);
        self.nanos.put(out);
    }
    fn take(from: &mut Reader) -> Result<Timestamp, DecodeError> {
        let time = Timestamp { secs: from.take()?, nanos: from.take()? };
        if time.nanos < 1_000_000_000 { Ok(time) } else { Err(DecodeError::BadValue) }
    }
}

impl Wire for Cred {
    fn put(&self, out: &mut Vec<u8>) {
        self.uid.put(out);
        self.gid.put(out);
        self.groups.put(out);
    }
    fn take(from: &mut Reader) -> Result<Cred, DecodeError> {
        let cred = Cred { uid: from.take()?, gid: from.take()?, groups: from.take()? };
        match &cred.groups {
            Some(groups) if groups.len() > GROUPS_MAX => Err(DecodeError::TooLong),
            _ => Ok(cred),
        }
    }
}

impl Wire for Layout {
    fn put(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.generation.put(out);
        self.stripe_size.put(out);
        self.overstriped.put(out);
        (self.osts.len() as u16).put(out);
        for ost in &self.osts {
            ost.put(out);
        }
        self.pool.put(out);
    }
    fn take(from: &mut Reader) -> Result<Layout, DecodeError> {
        let (id, generation, stripe_size, overstriped) =
            (from.take()?, from.take()?, from.take()?, from.take()?);
        let count = usize::from(from.take::<u16>()?);
        if count > STRIPES_MAX {
            return Err(DecodeError::TooLong);
        }
        let mut osts = SmallVec::new();
        for _ in 0..count {
            osts.push(from.take()?);
        }
        let layout = Layout { id, generation, stripe_size, overstriped, osts, pool: from.take()? };
        if layout.is_sane() { Ok(layout) } else { Err(DecodeError::BadValue) }
    }
}
