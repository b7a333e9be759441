//! A copy that is made: one request for a small one, a multipart upload for a larger one. The description comes last; what has none is
//! no copy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Error;
use client::hsm::{Copy, Put};

use super::super::copies::{ABOUT_SUFFIX, About, Sum, name_of};
use super::answers;
use super::client::{Ask, Client, Kind, Problem};
use super::ranges::Ranges;
use super::{failed, key_of};

/// Bytes of a part of a file that is not huge. Smaller files are one object without parts.
const PART_BYTES_MIN: u64 = 8 << 20;
/// Most parts that S3 takes.
const PARTS_MAX: u64 = 10_000;
/// Most bytes of an object.
const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Sizes of parts are whole numbers of these.
const PART_STEP: u64 = 1 << 20;
/// Most letters of a part's tag.
const TAG_BYTES_MAX: usize = 256;
/// Zeros that are added at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// How long the server may put parts together.
const COMPLETE_WAIT: Duration = Duration::from_secs(300);

/// A copy that is made. Holds at most one part of it in memory.
pub struct Upload {
    client: Arc<Client>,
    key: String,
    about: About,
    sum: Sum,
    ranges: Ranges,
    part_bytes: usize,
    /// The part that is filled.
    part: Vec<u8>,
    begun: Option<Begun>,
}

/// An upload of several parts.
struct Begun {
    id: String,
    /// Tags of the parts that the server has.
    tags: Vec<String>,
}

/// Bytes of each part of a file of so many.
fn part_bytes(size: u64) -> u64 {
    let least = size.min(OBJECT_BYTES_MAX).div_ceil(PARTS_MAX);
    least.next_multiple_of(PART_STEP).max(PART_BYTES_MIN)
}

impl Upload {
    /// One that has not sent anything.
    pub fn new(client: &Arc<Client>, of: &Copy<'_>) -> Result<Upload, Error> {
        let about = About::new(of)?;
        let part_bytes = part_bytes(about.size) as usize;
        Ok(Upload {
            client: client.clone(),
            key: key_of(client.bucket(), &name_of(of)),
            // Memory that is not written is not there.
            part: Vec::with_capacity(part_bytes.min(about.size as usize)),
            about,
            sum: Sum::default(),
            ranges: Ranges::default(),
            part_bytes,
            begun: None,
        })
    }

    async fn add(&mut self, mut bytes: &[u8]) -> Result<(), Problem> {
        while !bytes.is_empty() {
            // The last one is sent by `finish`, which knows whether it is the only one.
            if self.part.len() == self.part_bytes {
                self.send_part().await?;
            }
            let room = self.part_bytes - self.part.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.part.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    async fn send_part(&mut self) -> Result<(), Problem> {
        if self.begun.is_none() {
            let ask = Ask { query: &[("uploads", "")], ..Ask::new("POST", &self.key) };
            let answer = self.client.ask(&ask).await?;
            let id = answers::upload_id(&answer.body)
                .ok_or_else(|| self.client.failed(Kind::Failed, "it names no upload that was begun"))?;
            self.begun = Some(Begun { id, tags: Vec::new() });
        }
        let Some(begun) = &mut self.begun else { return Ok(()) };
        let number = (begun.tags.len() + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", &begun.id)];
        let body = Bytes::from(std::mem::take(&mut self.part));
        let answer = self.client.ask(&Ask { query: &query, body, ..Ask::new("PUT", &self.key) }).await?;
        let tag = answer.header("etag").filter(|tag| tag.len() <= TAG_BYTES_MAX);
        let tag = tag.ok_or_else(|| self.client.failed(Kind::Failed, "it gives no tag for a part"))?;
        begun.tags.push(tag.to_owned());
        self.part = Vec::with_capacity(self.part_bytes);
        Ok(())
    }

    /// The data, and then what is said of it.
    async fn send_rest(&mut self) -> Result<(), Problem> {
        match self.begun {
            None => {
                let body = Bytes::from(std::mem::take(&mut self.part));
                self.client.ask(&Ask { body, ..Ask::new("PUT", &self.key) }).await?;
            }
            Some(_) => {
                self.send_part().await?;
                self.complete().await?;
            }
        }
        let key = format!("{}{ABOUT_SUFFIX}", self.key);
        let body = Bytes::from(self.about.text());
        self.client.ask(&Ask { body, ..Ask::new("PUT", &key) }).await.map(|_| ())
    }

    /// Has the server put the parts together.
    async fn complete(&mut self) -> Result<(), Problem> {
        let Some(begun) = &self.begun else { return Ok(()) };
        let body = Bytes::from(answers::parts(&begun.tags));
        let query = [("uploadId", begun.id.as_str())];
        let ask = Ask { query: &query, body, patience: COMPLETE_WAIT, ..Ask::new("POST", &self.key) };
        match self.client.ask(&ask).await {
            // An answer that was lost: the upload is no more, and the object is there.
            Err(Problem { kind: Kind::NotFound, why }) => {
                let head = self.client.ask(&Ask::new("HEAD", &self.key)).await?;
                let len = head.header("content-length").and_then(|len| len.parse().ok());
                if len != Some(self.ranges.len()) {
                    return Err(Problem { kind: Kind::Failed, why });
                }
            }
            Err(problem) => return Err(problem),
            Ok(_) => {}
        }
        self.begun = None;
        Ok(())
    }
}

impl Put for Upload {
    async fn write(&mut self, offset: u64, bytes: Bytes) -> Result<(), Error> {
        self.sum.add(offset, &bytes);
        let mut zeros = self.ranges.add(offset, bytes.len() as u64);
        if self.ranges.len() > OBJECT_BYTES_MAX {
            let why = format!(
                "there are more than {OBJECT_BYTES_MAX} bytes of data in the file, which no object can have"
            );
            err!("{}: {why}", self.about.fid);
            return Err(Error::Refused(proto::Code::TooLarge));
        }
        while zeros > 0 {
            let now = zeros.min(ZEROS.len() as u64);
            self.add(&ZEROS[..now as usize]).await.map_err(|problem| failed(&self.key, &problem))?;
            zeros -= now;
        }
        self.add(&bytes).await.map_err(|problem| failed(&self.key, &problem))
    }

    async fn finish(mut self, size: u64) -> Result<(), Error> {
        self.sum.hole_until(size);
        self.about.size = size;
        self.about.crc64 = self.sum.text();
        self.about.ranges = Some(self.ranges.pieces().to_vec());
        self.send_rest().await.map_err(|problem| failed(&self.key, &problem))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A copytool that is killed here leaves parts: docs/hsm.md says what removes them.
        let Some(Begun { id, .. }) = self.begun.take() else { return };
        let (client, key) = (self.client.clone(), std::mem::take(&mut self.key));
        self.client.rt().spawn(async move {
            let ask = Ask { query: &[("uploadId", &id)], ..Ask::new("DELETE", &key) };
            match client.ask(&ask).await {
                Ok(_) | Err(Problem { kind: Kind::NotFound, .. }) => {}
                Err(problem) => err!("parts of a copy stay in the archive: {}", problem.why),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_neither_too_many_nor_too_small() {
        for size in
            [0, 1, PART_BYTES_MIN, 1 << 30, 80_000 << 20, (80_000 << 20) + 1, 1 << 40, OBJECT_BYTES_MAX]
        {
            let bytes = part_bytes(size);
            assert!((5 << 20..=5 << 30).contains(&bytes), "S3 takes parts of 5 MiB to 5 GiB: {size}");
            assert!(size.div_ceil(bytes) <= PARTS_MAX, "{size}");
            assert_eq!(bytes % PART_STEP, 0);
        }
        assert_eq!(part_bytes(0), 8 << 20);
        assert_eq!(part_bytes(OBJECT_BYTES_MAX), 525 << 20);
        assert_eq!(part_bytes(u64::MAX), 525 << 20);
    }
}
