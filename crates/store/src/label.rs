//! Who a target is: written once by `format`.

use bytes::Bytes;
use proto::wire::{DecodeError, Reader, Wire};
use proto::{ClientId, FsName, Nid, TargetId, TargetKind};
use rt::Dir;

use crate::atomic_file::Kind;
use crate::error::StoreError;

pub(crate) const FILE: Kind = Kind { name: "label", magic: *b"WEFTLABL", version: 1 };

/// The label in a target's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// File system that the target belongs to.
    pub fsname: FsName,
    /// Kind and index.
    pub target: TargetId,
    /// The target's own name.
    pub uuid: ClientId,
    /// Where the MGS is; empty for the MGS itself.
    pub mgs: Vec<Nid>,
}

impl Label {
    /// The label's body (`docs/disk.md#label`).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.fsname.to_string().put(&mut out);
        self.target.kind.to_u8().put(&mut out);
        self.target.index.put(&mut out);
        self.uuid.0.put(&mut out);
        self.mgs.iter().map(Nid::to_string).collect::<Vec<String>>().put(&mut out);
        out
    }

    pub(crate) fn decode(body: Bytes) -> Result<Label, DecodeError> {
        let mut from = Reader::new(body);
        let fsname = from.take::<String>()?.parse().map_err(|_| DecodeError::BadValue)?;
        let kind = TargetKind::from_u8(from.take()?).ok_or(DecodeError::BadValue)?;
        let target = TargetId { kind, index: from.take()? };
        let uuid = ClientId(from.take()?);
        let nids: Vec<String> = from.take()?;
        let mgs = nids
            .iter()
            .map(|text| text.parse().map_err(|_| DecodeError::BadValue))
            .collect::<Result<Vec<Nid>, DecodeError>>()?;
        if from.remaining() != 0 {
            return Err(DecodeError::BadValue);
        }
        Ok(Label { fsname, target, uuid, mgs })
    }

    /// The label in `dir`.
    pub(crate) async fn read(dir: &Dir, path: &str) -> Result<Label, StoreError> {
        let body = FILE.read(dir).await?.ok_or_else(|| {
            StoreError::NotATarget(format!("{path} holds no target (no file {})", FILE.name))
        })?;
        Label::decode(body)
            .map_err(|error| StoreError::NotATarget(format!("{path}: the label is damaged: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label {
            fsname: "weft".parse().expect("a file system's name"),
            target: TargetId::ost(0x1f),
            uuid: ClientId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            mgs: vec!["10.1.1.2@tcp".parse().expect("a NID")],
        }
    }

    #[test]
    fn golden() {
        let hex: String = label().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "040000007765667403\
             1f000000\
             ffeeddccbbaa99887766554433221100\
             010000000c00000031302e312e312e3240746370"
        );
    }

    #[test]
    fn round_trip_and_cuts() {
        let body = label().encode();
        assert_eq!(Label::decode(Bytes::from(body.clone())), Ok(label()));
        for at in 0..body.len() {
            assert!(Label::decode(Bytes::from(body[..at].to_vec())).is_err(), "cut at {at}");
        }
    }
}
