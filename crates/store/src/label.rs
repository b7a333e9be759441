//! Who a target is: written once by `format`.

use bytes::Bytes;
use proto::wire::{DecodeError, Reader, Wire};
use proto::{ClientId, FsName, Nid, TargetId, TargetKind};
use rt::Dir;

use crate::atomic_file::Kind;
use crate::error::StoreError;

/// Its version is that of everything in the target's directory: whatever cannot be read by the program before makes it grow
/// (`docs/disk.md#version`).
pub(crate) const FILE: Kind = Kind { name: "label", magic: *b"WEFTLABL", version: 7, oldest: 5 };

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
    /// Where the target may be served, best first; empty if only wherever its directory is.
    pub service: Vec<Nid>,
}

impl Label {
    /// The label's body (`docs/disk.md#label`).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.fsname.to_string().put(&mut out);
        self.target.kind.to_u8().put(&mut out);
        self.target.index.put(&mut out);
        self.uuid.0.put(&mut out);
        texts(&self.mgs).put(&mut out);
        texts(&self.service).put(&mut out);
        out
    }

    /// Writes the label into `dir`; durable when this returns.
    pub(crate) async fn write(&self, dir: &Dir) -> Result<(), StoreError> {
        FILE.write(dir, &self.encode()).await
    }

    /// Says that this program writes into `dir`: an older one may not be able to read that.
    pub(crate) async fn renew(&self, dir: &Dir) -> Result<(), StoreError> {
        if FILE.is_older(dir).await? { self.write(dir).await } else { Ok(()) }
    }

    pub(crate) fn decode(body: Bytes) -> Result<Label, DecodeError> {
        let mut from = Reader::new(body);
        let fsname = from.take::<String>()?.parse().map_err(|_| DecodeError::BadValue)?;
        let kind = TargetKind::from_u8(from.take()?).ok_or(DecodeError::BadValue)?;
        let target = TargetId { kind, index: from.take()? };
        let uuid = ClientId(from.take()?);
        let mgs = nids(from.take()?)?;
        let service = nids(from.take()?)?;
        if from.remaining() != 0 {
            return Err(DecodeError::BadValue);
        }
        Ok(Label { fsname, target, uuid, mgs, service })
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

fn texts(nids: &[Nid]) -> Vec<String> {
    nids.iter().map(Nid::to_string).collect()
}

fn nids(texts: Vec<String>) -> Result<Vec<Nid>, DecodeError> {
    texts.iter().map(|text| text.parse().map_err(|_| DecodeError::BadValue)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_of_another_version_is_refused_with_a_sentence() {
        let body = label().encode();
        for (version, said) in [(4, "an older weft wrote it"), (8, "a newer weft wrote it")] {
            let other = Kind { version, ..FILE };
            let error = FILE.decode(&other.encode(&body).into()).expect_err("of another version").to_string();
            assert!(error.contains(said) && error.contains(&format!("has version {version}")), "{error}");
        }
    }

    fn label() -> Label {
        Label {
            fsname: "weft".parse().expect("a file system's name"),
            target: TargetId::ost(0x1f),
            uuid: ClientId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            mgs: vec!["10.1.1.2@tcp".parse().expect("a NID")],
            service: vec![],
        }
    }

    fn shared() -> Label {
        Label { service: vec!["10.1.1.3@tcp".parse().expect("a NID")], ..label() }
    }

    #[test]
    fn golden() {
        let hex: String = label().encode().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "040000007765667403\
             1f000000\
             ffeeddccbbaa99887766554433221100\
             010000000c00000031302e312e312e3240746370\
             00000000"
        );
    }

    #[test]
    fn round_trip_and_cuts() {
        assert_eq!(Label::decode(Bytes::from(label().encode())), Ok(label()));
        let body = shared().encode();
        assert_eq!(Label::decode(Bytes::from(body.clone())), Ok(shared()));
        assert_eq!(body[label().encode().len() - 4..], *b"\x01\0\0\0\x0c\0\0\x0010.1.1.3@tcp");
        for at in 0..body.len() {
            assert!(Label::decode(Bytes::from(body[..at].to_vec())).is_err(), "cut at {at}");
        }
    }
}
