//! Requests to a bucket: signed, repeated with growing pauses, and bounded in time and memory.
//!
//! Every request may be repeated: an object is always written as a whole, and each copy has a name of its own.

use std::time::Duration;

use bytes::Bytes;
use rt::Rt;
use rt::os::http::{self, Answer, Question};

use super::answers::{Complaint, complaint};
use super::bucket::Bucket;
use super::credentials::Credentials;
use super::sign::{Scope, Signed, authorization, date, digest, encoded, query};

/// Waiting times before a request is made again (milliseconds), and up to half of each at random on top.
const PAUSES_MS: [u64; 4] = [100, 1_000, 3_000, 9_000];
/// How long an answer may take, whatever is sent.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// And for all bytes of a body in either direction: a slower network than this is taken for a broken one.
const BYTES_PER_SEC_MIN: u64 = 256 << 10;
/// Most bytes of an answer that says what is wrong.
const COMPLAINT_BYTES_MAX: usize = 64 << 10;
/// Longer bodies are summed up apart from what else goes on.
const DIGEST_HERE_BYTES_MAX: usize = 64 << 10;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// HTTP's method.
    pub method: &'static str,
    /// Key of an object; empty for the bucket.
    pub key: &'a str,
    /// The query, in the order of its names.
    pub query: &'a [(&'a str, &'a str)],
    /// First and last byte of those that are wanted, if not all are.
    pub range: Option<(u64, u64)>,
    /// What is sent.
    pub body: Bytes,
    /// Most bytes of the answer.
    pub bytes_max: usize,
    /// How long the server may think, besides the time that bytes take.
    pub patience: Duration,
}

impl<'a> Ask<'a> {
    /// One without a query or a body, of an object.
    pub fn new(method: &'static str, key: &'a str) -> Ask<'a> {
        let body = Bytes::new();
        let patience = ANSWER_WAIT;
        Ask { method, key, query: &[], range: None, body, bytes_max: COMPLAINT_BYTES_MAX, patience }
    }

    fn wait(&self) -> Duration {
        let bytes = self.body.len().max(self.bytes_max) as u64;
        self.patience + Duration::from_secs(bytes / BYTES_PER_SEC_MIN)
    }
}

/// Why a request has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it means to whoever waits.
    pub kind: Kind,
    /// For people; it names the server.
    pub why: String,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no such object, or no such upload.
    NotFound,
    /// There is no space left.
    NoSpace,
    /// What there is is not what was written.
    Corrupt,
    /// Anything else, which a person has to mend.
    Failed,
}

/// A way to one bucket.
pub struct Client {
    rt: Rt,
    http: http::Client,
    bucket: Bucket,
    credentials: Credentials,
}

/// What became of one try.
enum Tried {
    Done(Answer),
    /// It makes no sense to ask again.
    Refused(Problem),
    /// It may.
    Again(String),
}

impl Client {
    /// One that has not asked yet.
    pub fn new(rt: &Rt, http: http::Client, bucket: Bucket, credentials: Credentials) -> Client {
        Client { rt: rt.clone(), http, bucket, credentials }
    }

    /// Tasks and time.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Where it asks.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Asks until there is an answer of success, or a reason to give up.
    pub async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, Problem> {
        let body = ask.body.clone();
        let digest = match body.len() <= DIGEST_HERE_BYTES_MAX {
            true => digest(&body),
            false => self.rt.offload(move || digest(&body)).await,
        };
        let mut pauses = PAUSES_MS.iter();
        loop {
            let tried = self.rt.timeout(ask.wait(), self.ask_once(ask, &digest)).await;
            let why = match tried.unwrap_or_else(|| Tried::Again("it does not answer in time".into())) {
                Tried::Done(answer) => return Ok(answer),
                Tried::Refused(problem) => return Err(problem),
                Tried::Again(why) => why,
            };
            let Some(pause) = pauses.next() else {
                return Err(self.failed(Kind::Failed, &format!("{why}, {} times", PAUSES_MS.len() + 1)));
            };
            tracing::debug!(key = ask.key, why, "S3 is asked again");
            let pause = pause + self.rt.random_u64() % (pause / 2);
            self.rt.sleep(Duration::from_millis(pause)).await;
        }
    }

    /// A failure in which the server is named.
    pub fn failed(&self, kind: Kind, why: &str) -> Problem {
        Problem { kind, why: format!("bucket {} at {}: {why}", self.bucket.name, self.bucket.endpoint()) }
    }

    async fn ask_once(&self, ask: &Ask<'_>, digest: &str) -> Tried {
        let key = if ask.key.is_empty() { "" } else { "/" };
        let path = encoded(&format!("/{}{key}{}", self.bucket.name, ask.key), b"/");
        let query = query(ask.query);
        let date = date(self.rt.wall().secs);
        let host = self.http.authority();
        let range = ask.range.map(|(first, last)| format!("bytes={first}-{last}"));
        // In this order they are signed.
        let mut headers = vec![("host", host.as_str())];
        headers.extend(range.as_deref().map(|range| ("range", range)));
        headers.extend([("x-amz-content-sha256", digest), ("x-amz-date", &date)]);
        headers.extend(self.credentials.token().map(|token| ("x-amz-security-token", token)));
        let scope = Scope { date: &date, region: &self.bucket.region };
        let signed =
            Signed { method: ask.method, path: &path, query: &query, headers: &headers, body: digest };
        let authorization = authorization(&self.credentials, &scope, &signed);
        headers.remove(0);
        headers.push(("authorization", &authorization));
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let bytes_max = ask.bytes_max.max(COMPLAINT_BYTES_MAX);
        let body = ask.body.clone();
        let question = Question { method: ask.method, target: &target, headers: &headers, body, bytes_max };
        match self.http.ask(question).await {
            Ok(answer) => self.judge(ask, answer),
            Err(error) if ask.method == "GET" && error.kind() == std::io::ErrorKind::FileTooLarge => {
                Tried::Refused(
                    self.failed(Kind::Corrupt, &format!("{} is longer than it was", named(ask.key))),
                )
            }
            Err(error) => {
                Tried::Again(format!("it cannot be asked (check --s3-endpoint): {}", describe(&error)))
            }
        }
    }

    fn judge(&self, ask: &Ask<'_>, answer: Answer) -> Tried {
        let refused = |kind, why: &str| Tried::Refused(self.failed(kind, why));
        let said = complaint(&answer, COMPLAINT_BYTES_MAX);
        // A long request may have been answered with success before it failed.
        if matches!(answer.status, 200..=299) && (ask.method != "POST" || said.code.is_empty()) {
            return Tried::Done(answer);
        }
        let Complaint { code, text } = &said;
        match (answer.status, code.as_str()) {
            (429 | 500 | 502 | 503 | 504, _) | (200, "InternalError" | "SlowDown" | "ServiceUnavailable") => {
                Tried::Again(format!("it answers {text}"))
            }
            // It was broken on the way.
            (400, "BadDigest" | "XAmzContentSHA256Mismatch" | "IncompleteBody" | "RequestTimeout")
            | (409, "OperationAborted" | "ConditionalRequestConflict") => {
                Tried::Again(format!("it answers {text}"))
            }
            (404, "NoSuchBucket") => {
                refused(Kind::Failed, "there is no such bucket; make it, or mend --hsm-root")
            }
            (404, "NoSuchKey" | "NoSuchUpload") => {
                refused(Kind::NotFound, &format!("there is no {}", named(ask.key)))
            }
            // It has no body that could say more.
            (404, _) if ask.method == "HEAD" => {
                refused(Kind::NotFound, &format!("there is no {}", named(ask.key)))
            }
            (416, _) => refused(Kind::Corrupt, &format!("{} is shorter than it was", named(ask.key))),
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull") => {
                refused(Kind::NoSpace, &format!("there is no space left: it answers {text}"))
            }
            (_, "RequestTimeTooSkewed") => {
                refused(Kind::Failed, "the clock of this machine is another one than the server's; set it")
            }
            (_, "ExpiredToken" | "TokenRefreshRequired") => refused(
                Kind::Failed,
                "the credentials hold no longer; start the copytool again with new ones",
            ),
            (301 | 307 | 308, _) | (400, "AuthorizationHeaderMalformed") => {
                let region = answer.header("x-amz-bucket-region").unwrap_or("which its owner knows");
                refused(
                    Kind::Failed,
                    &format!(
                        "the bucket is in another region ({region}) or at another endpoint; name it with --s3-region or --s3-endpoint: it answers {text}"
                    ),
                )
            }
            (401 | 403, _) | (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => refused(
                Kind::Failed,
                &format!(
                    "access is denied; check the credentials and what they may do, and start the copytool again if they are new: it answers {text}"
                ),
            ),
            _ => refused(Kind::Failed, &format!("it answers {text}")),
        }
    }
}

/// An object, for people: the name without the directories above it.
fn named(key: &str) -> &str {
    key.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("such thing")
}

/// All that an error says, and what those below it say.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        below = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    /// Asks for `p/a:b` at a server that has these answers. Gives what came of it, and how often it was asked.
    fn ask(method: &'static str, answers: &[&'static str]) -> (Result<Vec<u8>, Problem>, usize) {
        let fake = Fake::new(answers);
        let asked = Ask { bytes_max: 10, ..Ask::new(method, "p/a:b") };
        let result = fake.block_on(fake.client.ask(&asked)).map(|answer| answer.body.to_vec());
        let questions = fake.end();
        for question in &questions {
            assert!(question.contains("/lab/p/a%3ab http/1.1\r\n"), "{question}");
            assert!(question.contains("signedheaders=host;x-amz-content-sha256;x-amz-date"), "{question}");
            assert!(!question.contains("hush"), "{question}");
        }
        (result, questions.len())
    }

    const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata";

    #[test]
    fn what_fails_for_a_while_is_asked_again() {
        for bad in [
            "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 500 Error\r\nContent-Length: 4\r\n\r\noops",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nda",
            "HTTP/1.1 400 Bad\r\nContent-Length: 37\r\n\r\n<Error><Code>BadDigest</Code></Error>\n",
            "nonsense\r\n\r\n",
            "",
        ] {
            assert_eq!(ask("GET", &[bad, GOOD]), (Ok(b"data".to_vec()), 2), "{bad}");
        }
        // The end of a multipart upload may fail after all.
        let late = "HTTP/1.1 200 OK\r\nContent-Length: 41\r\n\r\n<Error><Code>InternalError</Code></Error>";
        assert_eq!(ask("POST", &[late, GOOD]), (Ok(b"data".to_vec()), 2));
    }

    #[test]
    fn what_a_person_has_to_mend_is_said_at_once() {
        for (answer, kind, said) in [
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 37\r\n\r\n<Error><Code>NoSuchKey</Code></Error>",
                Kind::NotFound,
                "there is no a:b",
            ),
            // A server that is no S3 has nothing to say about copies.
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Kind::Failed, "it answers 404"),
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 40\r\n\r\n<Error><Code>NoSuchBucket</Code></Error>",
                Kind::Failed,
                "bucket lab at http://127.0.0.1",
            ),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", Kind::Failed, "check the credentials"),
            ("HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n", Kind::NoSpace, "no space left"),
            ("HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n", Kind::Corrupt, "shorter"),
            (
                "HTTP/1.1 301 Moved\r\nx-amz-bucket-region: eu-1\r\nContent-Length: 0\r\n\r\n",
                Kind::Failed,
                "(eu-1)",
            ),
            ("HTTP/1.1 418 Tea\r\nContent-Length: 0\r\n\r\n", Kind::Failed, "it answers 418"),
        ] {
            let (result, _) = ask("GET", &[answer]);
            let problem = result.expect_err(answer);
            assert!(problem.kind == kind && problem.why.contains(said), "{problem:?}");
            assert!(!problem.why.contains("hush"), "{problem:?}");
        }
    }
}
