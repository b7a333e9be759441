//! An archive in a bucket of S3: an object for each copy, with the same names as in a directory, and a second one that describes it.
//!
//! A copy without a description does not count. Objects are written as a whole, so that every request can be repeated.

mod answers;
mod bucket;
mod client;
mod credentials;
#[cfg(test)]
mod fake;
mod ranges;
mod read;
mod sign;
mod upload;

use std::sync::Arc;

use ::client::Error;
use ::client::hsm::{Archive, Copy};
use bytes::Bytes;
use proto::Code;
use rt::Rt;
use rt::os::Node;

use super::copies::{ABOUT_SUFFIX, MARKED, MARKER, name_of};
use crate::failure::Failure;
pub use bucket::{Bucket, Options};
use client::{Ask, Client, Kind, Problem};
use credentials::Credentials;
use read::Download;
use upload::Upload;

/// An archive below a prefix of a bucket.
pub struct S3 {
    client: Arc<Client>,
}

/// The key of what has a name in the archive.
fn key_of(bucket: &Bucket, name: &str) -> String {
    format!("{}{name}", bucket.prefix)
}

/// What a problem means to whoever waits for the data; all of it is said here.
fn failed(key: &str, problem: &Problem) -> Error {
    err!("{}: {}", key.rsplit('/').next().unwrap_or(key), problem.why);
    Error::Refused(match problem.kind {
        Kind::NotFound => Code::NotFound,
        Kind::NoSpace => Code::NoSpace,
        Kind::Corrupt => Code::Corrupt,
        Kind::Failed => Code::Io,
    })
}

impl S3 {
    /// The one in `bucket`.
    pub fn new(rt: &Rt, node: &Node, options: &Options, bucket: Bucket) -> Result<S3, Failure> {
        let credentials = Credentials::find(options.s3_credentials.as_deref())?;
        let http = options.client(node, &bucket)?;
        Ok(S3 { client: Arc::new(Client::new(rt, http, bucket, credentials)) })
    }

    /// Looks whether there is an archive.
    pub async fn open(&self) -> Result<(), Failure> {
        match self.is_marked().await? {
            true => Ok(()),
            false => Err(self.failure("there is no archive below the prefix; name the bucket and prefix of one, or make one with --init")),
        }
    }

    /// Makes an archive, if nothing is there.
    pub async fn init(&self) -> Result<(), Failure> {
        let of = |problem: Problem| Failure::new(problem.why);
        if self.is_marked().await? {
            return Ok(());
        }
        let query = [("list-type", "2"), ("max-keys", "1"), ("prefix", &self.client.bucket().prefix)];
        let list = self.client.ask(&Ask { query: &query, ..Ask::new("GET", "") }).await.map_err(of)?;
        match answers::has_objects(&list.body) {
            Some(false) => {}
            Some(true) => {
                return Err(self.failure("there are objects below the prefix; --init needs an empty one"));
            }
            None => return Err(self.failure("it gives no list of objects; is it S3?")),
        }
        let key = key_of(self.client.bucket(), MARKER);
        let body = Bytes::from_static(MARKED);
        self.client.ask(&Ask { body, ..Ask::new("PUT", &key) }).await.map_err(of)?;
        Ok(())
    }

    async fn is_marked(&self) -> Result<bool, Failure> {
        let key = key_of(self.client.bucket(), MARKER);
        match self.client.ask(&Ask::new("GET", &key)).await {
            Ok(answer) if answer.body == MARKED => Ok(true),
            Ok(_) => Err(self.failure("it is the archive of another version of weft; use that one")),
            Err(Problem { kind: Kind::NotFound, .. }) => Ok(false),
            Err(problem) => Err(Failure::new(problem.why)),
        }
    }

    fn failure(&self, why: &str) -> Failure {
        Failure::new(self.client.failed(Kind::Failed, why).why)
    }
}

impl Archive for S3 {
    type Put = Upload;
    type Get = Download;

    async fn put(&self, of: Copy<'_>) -> Result<Upload, Error> {
        Upload::new(&self.client, &of)
    }

    async fn get(&self, of: Copy<'_>) -> Result<Download, Error> {
        Download::open(&self.client, &of).await
    }

    async fn remove(&self, of: Copy<'_>) -> Result<(), Error> {
        let key = key_of(self.client.bucket(), &name_of(&of));
        // What has no description is no copy.
        for key in [format!("{key}{ABOUT_SUFFIX}"), key] {
            match self.client.ask(&Ask::new("DELETE", &key)).await {
                Ok(_) | Err(Problem { kind: Kind::NotFound, .. }) => {}
                Err(problem) => return Err(failed(&key, &problem)),
            }
        }
        Ok(())
    }
}
