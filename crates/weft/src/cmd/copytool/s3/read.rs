//! A copy that is read: its description first, then its data by ranges of bytes, so that a connection that breaks costs one of them.

use std::sync::Arc;

use bytes::Bytes;
use client::Error;
use client::hsm::{Copy, Get};

use super::super::copies::{ABOUT_SUFFIX, About, Sum, name_of};
use super::client::{Ask, Client, Kind, Problem};
use super::ranges::Ranges;
use super::{failed, key_of};

/// Bytes that are asked for at a time.
const CHUNK: u64 = 8 << 20;
/// Bytes that are given on at a time.
const STEP: u64 = 4 << 20;
/// Most bytes of a description: what `Ranges` allows needs fewer.
const ABOUT_BYTES_MAX: usize = 4 << 20;

/// A copy that is read. Holds at most one chunk of it in memory.
pub struct Download {
    client: Arc<Client>,
    key: String,
    size: u64,
    expected: String,
    ranges: Ranges,
    /// The piece that is read, and what of it is done.
    piece: usize,
    done: u64,
    /// Bytes of the object that were asked for.
    fetched: u64,
    chunk: Bytes,
    sum: Sum,
}

impl Download {
    /// Opens a copy.
    pub async fn open(client: &Arc<Client>, of: &Copy<'_>) -> Result<Download, Error> {
        let key = key_of(client.bucket(), &name_of(of));
        match Download::of(client, key.clone(), of).await {
            Ok(download) => Ok(download),
            Err(problem) => Err(failed(&key, &problem)),
        }
    }

    async fn of(client: &Arc<Client>, key: String, of: &Copy<'_>) -> Result<Download, Problem> {
        let about_key = format!("{key}{ABOUT_SUFFIX}");
        let ask = Ask { bytes_max: ABOUT_BYTES_MAX, ..Ask::new("GET", &about_key) };
        let answer = client.ask(&ask).await?;
        let about: Option<About> = serde_json::from_slice(&answer.body).ok();
        let (about, ranges) = about
            .and_then(|mut about| {
                let ranges = Ranges::of(about.ranges.take()?, about.size)?;
                Some((about, ranges))
            })
            .ok_or_else(|| client.failed(Kind::Corrupt, "the description of the copy is damaged"))?;
        if !about.is_of(of) {
            return Err(client.failed(Kind::Corrupt, "the description of the copy is about another one"));
        }
        Ok(Download {
            client: client.clone(),
            key,
            size: about.size,
            expected: about.crc64,
            ranges,
            piece: 0,
            done: 0,
            fetched: 0,
            chunk: Bytes::new(),
            sum: Sum::default(),
        })
    }

    async fn next_part(&mut self) -> Result<Option<(u64, Bytes)>, Problem> {
        let Some(&(offset, len)) = self.ranges.pieces().get(self.piece) else {
            return self.check().map(|()| None);
        };
        if self.chunk.is_empty() {
            self.fetch().await?;
        }
        let now = (len - self.done).min(self.chunk.len() as u64).min(STEP);
        let (at, bytes) = (offset + self.done, self.chunk.split_to(now as usize));
        self.done += now;
        if self.done == len {
            (self.piece, self.done) = (self.piece + 1, 0);
        }
        self.sum.add(at, &bytes);
        Ok(Some((at, bytes)))
    }

    /// The next bytes of the object.
    async fn fetch(&mut self) -> Result<(), Problem> {
        let total = self.ranges.len();
        let len = CHUNK.min(total - self.fetched);
        let (first, last) = (self.fetched, self.fetched + len - 1);
        let ask = Ask { range: Some((first, last)), bytes_max: len as usize, ..Ask::new("GET", &self.key) };
        let answer = self.client.ask(&ask).await?;
        let corrupt = |why: &str| Err(self.client.failed(Kind::Corrupt, why));
        if answer.status == 206
            && answer.header("content-range") != Some(&format!("bytes {first}-{last}/{total}"))
        {
            return corrupt("the copy has another size than it had when it was made");
        }
        // A server may send all of what is short.
        if answer.body.len() as u64 != len || (answer.status == 200 && len != total) {
            return corrupt("the server sends other bytes than those that were asked for");
        }
        (self.chunk, self.fetched) = (answer.body, self.fetched + len);
        Ok(())
    }

    /// Everything was read.
    fn check(&mut self) -> Result<(), Problem> {
        self.sum.hole_until(self.size);
        match self.sum.text() == self.expected {
            true => Ok(()),
            false => Err(self
                .client
                .failed(Kind::Corrupt, "the copy is not what was written: its checksum is another one")),
        }
    }
}

impl Get for Download {
    fn size(&self) -> u64 {
        self.size
    }

    async fn next(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        self.next_part().await.map_err(|problem| failed(&self.key, &problem))
    }
}
