//! Encodings of the ids and types that messages are made of.

use bytes::Bytes;

use super::codec::{Body, DecodeError, Reader, Wire, put_framed};
use crate::ids::{
    ClientId, DataTarget, Fid, MdtIndex, ObjectId, OstIndex, TargetId, TargetKind, Transno, Xid,
};
use crate::layout::{Component, HintPart, Layout, LayoutHint, Pattern};
use crate::limits::{COMPONENTS_MAX, GROUPS_MAX, STRIPES_MAX};
use crate::name::{FsName, Name};
use crate::nid::Nid;
use crate::time::Timestamp;
use crate::types::{Attr, Cred, FileOwner};
use crate::wire_fields;

/// An id whose encoding is that of its fields, one behind the other: it never grows.
macro_rules! wire_id {
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

wire_id!(Fid { seq, oid, ver });
wire_id!(ObjectId { layout, stripe });
wire_id!(TargetId { kind, index });

wire_fields!(FileOwner { uid, gid, version, project });
wire_fields!(HintPart { end, stripe_count, stripe_size, start_index, osts, overstripe, pool; on_mdt, extension });
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
    mtime_set;
    project,
    inherits
});

impl Wire for OstIndex {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<OstIndex, DecodeError> {
        Ok(OstIndex(from.take()?))
    }
}

impl Wire for DataTarget {
    fn put(&self, out: &mut Vec<u8>) {
        TargetId::from(*self).put(out);
    }
    fn take(from: &mut Reader) -> Result<DataTarget, DecodeError> {
        let TargetId { kind, index } = from.take()?;
        match kind {
            TargetKind::Ost => Ok(DataTarget::Ost(OstIndex(index))),
            TargetKind::Mdt => Ok(DataTarget::Mdt(MdtIndex(index))),
            TargetKind::Mgs => Err(DecodeError::BadValue),
        }
    }
}

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
        let kind = from.take()?;
        TargetKind::from_u8(kind)
            .ok_or(DecodeError::UnknownValue { of: "kind of target", value: u32::from(kind) })
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
        put_framed(out, |out| {
            self.uid.put(out);
            self.gid.put(out);
            self.groups.put(out);
        });
    }
    fn take(from: &mut Reader) -> Result<Cred, DecodeError> {
        let mut from = from.take_framed()?;
        let cred = Cred { uid: from.take()?, gid: from.take()?, groups: from.take()? };
        match &cred.groups {
            Some(groups) if groups.len() > GROUPS_MAX => Err(DecodeError::TooLong),
            _ => Ok(cred),
        }
    }
}

impl Body for LayoutHint {
    fn put_fields(&self, out: &mut Vec<u8>) {
        self.stripe_count.put(out);
        self.stripe_size.put(out);
        self.start_index.put(out);
        self.osts.put(out);
        self.overstripe.put(out);
        self.pool.put(out);
        if !self.parts.is_empty() {
            self.parts.put(out);
        }
    }
    fn take_fields(from: &mut Reader) -> Result<LayoutHint, DecodeError> {
        let (stripe_count, stripe_size, start_index) = (from.take()?, from.take()?, from.take()?);
        let (osts, overstripe, pool) = (from.take()?, from.take()?, from.take()?);
        let parts: Vec<HintPart> = from.take_or_default()?;
        if parts.len() > COMPONENTS_MAX {
            return Err(DecodeError::TooLong);
        }
        Ok(LayoutHint { stripe_count, stripe_size, start_index, osts, overstripe, pool, parts })
    }
}

impl Wire for LayoutHint {
    fn put(&self, out: &mut Vec<u8>) {
        put_framed(out, |out| self.put_fields(out));
    }
    fn take(from: &mut Reader) -> Result<LayoutHint, DecodeError> {
        LayoutHint::take_fields(&mut from.take_framed()?)
    }
}

impl Body for Component {
    fn put_fields(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.start.put(out);
        self.end.put(out);
        self.pattern_number().put(out);
        self.stripe_size.put(out);
        self.overstriped.put(out);
        (self.targets.len() as u16).put(out);
        self.targets.iter().for_each(|target| target.put(out));
        self.pool.put(out);
        if let Some(wanted) = &self.wanted {
            wanted.put(out);
        }
        if self.extension > 0 {
            self.extension.put(out);
        }
    }
    fn take_fields(from: &mut Reader) -> Result<Component, DecodeError> {
        let (id, start, end) = (from.take()?, from.take()?, from.take()?);
        let pattern = Pattern::from_u32(from.take()?);
        let (stripe_size, overstriped) = (from.take()?, from.take()?);
        let count = usize::from(from.take::<u16>()?);
        if count > STRIPES_MAX {
            return Err(DecodeError::TooLong);
        }
        let targets = (0..count).map(|_| from.take()).collect::<Result<_, _>>()?;
        let pool = from.take()?;
        let wanted = match pattern {
            pattern if pattern.has_wish() => Some(Box::new(from.take()?)),
            _ => None,
        };
        let extension = from.take_or_default()?;
        Ok(Component { id, start, end, pattern, stripe_size, overstriped, targets, pool, wanted, extension })
    }
}

impl Wire for Component {
    fn put(&self, out: &mut Vec<u8>) {
        put_framed(out, |out| self.put_fields(out));
    }
    fn take(from: &mut Reader) -> Result<Component, DecodeError> {
        Component::take_fields(&mut from.take_framed()?)
    }
}

impl Wire for Layout {
    fn put(&self, out: &mut Vec<u8>) {
        put_framed(out, |out| {
            self.generation.put(out);
            (self.components.len() as u16).put(out);
            self.components.iter().for_each(|component| component.put(out));
        });
    }
    fn take(from: &mut Reader) -> Result<Layout, DecodeError> {
        let mut from = from.take_framed()?;
        let generation = from.take()?;
        let count = usize::from(from.take::<u16>()?);
        if count > COMPONENTS_MAX {
            return Err(DecodeError::TooLong);
        }
        let components = (0..count).map(|_| from.take()).collect::<Result<_, _>>()?;
        let layout = Layout { generation, components };
        if layout.is_sane() { Ok(layout) } else { Err(DecodeError::BadValue) }
    }
}
