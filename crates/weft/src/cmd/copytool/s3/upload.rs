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
        Ok(Upload::with(client, key_of(client.bucket(), &name_of(of)), About::new(of)?))
    }

    fn with(client: &Arc<Client>, key: String, about: About) -> Upload {
        let part_bytes = part_bytes(about.size) as usize;
        Upload {
            client: client.clone(),
            key,
            // Memory that is not written is not there.
            part: Vec::with_capacity(part_bytes.min(about.size as usize)),
            about,
            sum: Sum::default(),
            ranges: Ranges::default(),
            part_bytes,
            begun: None,
        }
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
        let about = Bytes::from(self.about.text());
        self.client.ask(&Ask { body: about.clone(), ..Ask::new("PUT", &key) }).await?;
        self.look(&key, &about).await
    }

    /// Has the server put the parts together.
    async fn complete(&mut self) -> Result<(), Problem> {
        let Some(begun) = &self.begun else { return Ok(()) };
        let body = Bytes::from(answers::parts(&begun.tags));
        let query = [("uploadId", begun.id.as_str())];
        let ask = Ask { query: &query, body, patience: COMPLETE_WAIT, ..Ask::new("POST", &self.key) };
        match self.client.ask(&ask).await {
            // The upload is no more after an answer that was lost, too.
            Ok(_) | Err(Problem { kind: Kind::NotFound, .. }) => {}
            Err(problem) => return Err(problem),
        }
        self.begun = None;
        Ok(())
    }

    /// Looks whether what the server says it has taken is there: what is between may say so of anything.
    async fn look(&self, about_key: &str, about: &Bytes) -> Result<(), Problem> {
        let head = self.client.ask(&Ask::new("HEAD", &self.key)).await;
        let is_whole = match &head {
            Ok(head) => head.header("content-length") == Some(self.ranges.len().to_string().as_str()),
            Err(problem) if problem.kind == Kind::NotFound => false,
            Err(problem) => return Err(problem.clone()),
        };
        let ask = Ask { bytes_max: about.len(), ..Ask::new("GET", about_key) };
        let is_described = match self.client.ask(&ask).await {
            Ok(found) => found.body == about,
            Err(problem) if matches!(problem.kind, Kind::NotFound | Kind::Corrupt) => false,
            Err(problem) => return Err(problem),
        };
        match is_whole && is_described {
            true => Ok(()),
            false => Err(self.client.failed(
                Kind::Failed,
                "what it said it had taken is not there; check the server, and what is on the way to it",
            )),
        }
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
    use super::super::fake::Fake;
    use super::*;

    const SIZE: u64 = PART_BYTES_MIN + 1;
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const BEGUN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\n<A><UploadId>first</UploadId></A>\n";
    const PART: &str = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 0\r\n\r\n";
    const NO_UPLOAD: &str =
        "HTTP/1.1 404 None\r\nContent-Length: 40\r\n\r\n<Error><Code>NoSuchUpload</Code></Error>";
    const NONE: &str = "HTTP/1.1 404 None\r\nContent-Length: 37\r\n\r\n<Error><Code>NoSuchKey</Code></Error>";
    const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n";
    const SHORT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n";

    fn about() -> About {
        let text = format!(
            r#"{{"fid":"a","path":"a","size":{SIZE},"crc64":"","uid":0,"gid":0,"mode":420,"mtime":0}}"#
        );
        serde_json::from_str(&text).expect("it is one")
    }

    /// Makes a copy of one byte more than a part has, at a server that has these answers. Gives whether it was made, and the methods
    /// that were asked.
    fn copy(answers: &[&str]) -> (bool, String) {
        let fake = Fake::new(answers);
        let result = fake.block_on(async {
            let mut upload = Upload::with(&fake.client, "a".into(), about());
            upload.write(0, Bytes::from(vec![1; SIZE as usize])).await?;
            upload.finish(SIZE).await
        });
        assert!(matches!(result, Ok(()) | Err(Error::Refused(proto::Code::Io))), "{result:?}");
        let methods: Vec<String> =
            fake.end().iter().filter_map(|question| question.split(' ').next()).map(str::to_owned).collect();
        (result.is_ok(), methods.join(" "))
    }

    #[test]
    fn a_copy_is_made_only_if_it_is_there() {
        let mut sum = Sum::default();
        sum.add(0, &vec![1; SIZE as usize]);
        let mut written = about();
        (written.crc64, written.ranges) = (sum.text(), Some(vec![(0, SIZE)]));
        let written = String::from_utf8(written.text()).expect("it is a text");
        let told = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{written}", written.len());
        let asked = "post put put post put head get";
        for (completed, head, said, is_made) in [
            (OK, WHOLE, told.as_str(), true),
            // The answer to an end was lost.
            (NO_UPLOAD, WHOLE, &told, true),
            (OK, SHORT, &told, false),
            (OK, NONE, &told, false),
            (NO_UPLOAD, NONE, &told, false),
            (OK, WHOLE, NONE, false),
            (OK, WHOLE, OK, false),
        ] {
            let answers = [BEGUN, PART, PART, completed, OK, head, said];
            assert_eq!(copy(&answers), (is_made, asked.to_owned()), "{completed} {head} {said}");
        }
    }

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
