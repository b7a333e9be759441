//! Small files that are replaced as a whole: label and boot counter.
//!
//! Layout: magic (8 bytes), version u32, body length u32, crc32c of what stands before u32, crc32c of the body u32,
//! body. A file is written under another name, synced, renamed, and the directory synced: a crash leaves the old
//! or the new one.

use bytes::Bytes;
use rt::Dir;

use crate::error::StoreError;

const HEADER_BYTES: usize = 24;
/// Largest body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What a kind of file is called and how it begins.
pub(crate) struct Kind {
    /// Name in the directory.
    pub name: &'static str,
    /// First bytes.
    pub magic: [u8; 8],
    /// Version of the body that is written, and the newest that is read.
    pub version: u32,
    /// The oldest that is read.
    pub oldest: u32,
}

impl Kind {
    fn temporary(&self) -> String {
        format!("{}.tmp", self.name)
    }

    /// Whether `name` is what an interrupted [`Kind::write`] leaves.
    pub fn is_leftover(&self, name: &str) -> bool {
        name.strip_suffix(".tmp") == Some(self.name)
    }

    /// The file's bytes.
    pub fn encode(&self, body: &[u8]) -> Vec<u8> {
        assert!(body.len() <= BODY_BYTES_MAX, "a small file is small");
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        let header_crc = crc_fast::crc32_iscsi(&out);
        out.extend_from_slice(&header_crc.to_le_bytes());
        out.extend_from_slice(&crc_fast::crc32_iscsi(body).to_le_bytes());
        out.extend_from_slice(body);
        out
    }

    /// The body of a file's bytes.
    pub fn decode(&self, file: &Bytes) -> Result<Bytes, StoreError> {
        let bad = |why: &str| StoreError::NotATarget(format!("the file {} {why}", self.name));
        if file.len() < HEADER_BYTES {
            return Err(bad("is too short"));
        }
        if file[..8] != self.magic {
            return Err(bad("is not one of weft's"));
        }
        let word = |at: usize| u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]);
        if word(16) != crc_fast::crc32_iscsi(&file[..16]) {
            return Err(bad("has a header that does not match its checksum"));
        }
        if word(8) > self.version {
            return Err(bad(&format!(
                "has version {}, a newer weft wrote it; this one reads versions {} to {}",
                word(8),
                self.oldest,
                self.version
            )));
        }
        if word(8) < self.oldest {
            return Err(bad(&format!(
                "has version {}, an older weft wrote it; this one reads version {} and later: copy the files with the weft that \
                 made the file system into a new one",
                word(8),
                self.oldest
            )));
        }
        let body = file.slice(HEADER_BYTES..);
        if word(12) as usize != body.len() {
            return Err(bad("has another length than its header says"));
        }
        if word(20) != crc_fast::crc32_iscsi(&body) {
            return Err(bad("does not match its checksum"));
        }
        Ok(body)
    }

    /// The body of the file in `dir`; `None` if there is no such file.
    pub async fn read(&self, dir: &Dir) -> Result<Option<Bytes>, StoreError> {
        let file = match dir.open(self.name).await {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let len = file.len().await?.min((HEADER_BYTES + BODY_BYTES_MAX + 1) as u64);
        let bytes = file.read_at(0, len as usize).await?;
        self.decode(&bytes).map(Some)
    }

    /// Whether the file in `dir`, which can be read, is of an older version than this program writes.
    pub async fn is_older(&self, dir: &Dir) -> Result<bool, StoreError> {
        let bytes = dir.open(self.name).await?.read_at(0, HEADER_BYTES).await?;
        Ok(bytes.get(8..12) != Some(&self.version.to_le_bytes()[..]))
    }

    /// Replaces the file in `dir`; durable when this returns.
    pub async fn write(&self, dir: &Dir, body: &[u8]) -> Result<(), StoreError> {
        let temporary = self.temporary();
        match dir.remove(&temporary).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let file = dir.create(&temporary).await?;
        file.write_at(0, vec![Bytes::from(self.encode(body))]).await?;
        file.sync().await?;
        dir.rename(&temporary, self.name).await?;
        dir.sync().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { name: "boot", magic: *b"WEFTBOOT", version: 1, oldest: 1 };

    #[test]
    fn golden() {
        let file = KIND.encode(&7u64.to_le_bytes());
        let hex: String = file.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "57454654424f4f540100000008000000330b4a388eb771760700000000000000");
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let file = KIND.encode(b"body");
        assert_eq!(KIND.decode(&Bytes::from(file.clone())).expect("it was just made"), Bytes::from("body"));
        for at in 0..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 1;
            assert!(KIND.decode(&Bytes::from(bad)).is_err(), "byte {at}");
            assert!(KIND.decode(&Bytes::from(file[..at].to_vec())).is_err(), "cut at {at}");
        }
    }
}
