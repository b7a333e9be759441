//! The job that a request belongs to, as whoever runs programs calls it: `4711`, `dd.0`.

use std::fmt;

/// Bytes that it takes in a header.
pub const JOB_BYTES: usize = 32;
/// Longest name; the last byte in a header is zero.
pub const JOB_NAME_BYTES_MAX: usize = JOB_BYTES - 1;

/// Stands in a name for what is not printed, or blank.
const UNPRINTABLE: u8 = b'_';

/// The name of a job: printable ASCII without blanks, or nothing for what belongs to none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct JobId([u8; JOB_BYTES]);

impl JobId {
    /// No job.
    pub const NONE: JobId = JobId([0; JOB_BYTES]);

    /// The job with this name, which programs may have chosen: what is behind [`JOB_NAME_BYTES_MAX`] is left out, and what is no
    /// printable character is replaced.
    pub fn named(name: &[u8]) -> JobId {
        let mut bytes = [0; JOB_BYTES];
        for (to, from) in bytes.iter_mut().zip(name).take(JOB_NAME_BYTES_MAX) {
            *to = if from.is_ascii_graphic() { *from } else { UNPRINTABLE };
        }
        JobId(bytes)
    }

    /// The job in the bytes of a header; `None` if there cannot be one like that.
    pub fn from_bytes(bytes: [u8; JOB_BYTES]) -> Option<JobId> {
        let len = bytes.iter().position(|byte| *byte == 0)?;
        let (name, rest) = bytes.split_at(len);
        let is_name = name.iter().all(u8::is_ascii_graphic) && rest.iter().all(|byte| *byte == 0);
        is_name.then_some(JobId(bytes))
    }

    /// The bytes of a header.
    pub fn to_bytes(self) -> [u8; JOB_BYTES] {
        self.0
    }

    /// Whether there is no job.
    pub fn is_none(&self) -> bool {
        self.0.first() == Some(&0)
    }

    /// Its name; empty for none.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(JOB_NAME_BYTES_MAX);
        std::str::from_utf8(&self.0[..len]).expect("the name of a job is ASCII")
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        for (given, name) in [
            (&b"dd.0"[..], "dd.0"),
            (b"Web Content\n", "Web_Content_"),
            (b"\xc3\xa9", "__"),
            (b"", ""),
            (b"0123456789012345678901234567890123456789", "0123456789012345678901234567890"),
        ] {
            let job = JobId::named(given);
            assert_eq!((job.as_str(), job.is_none()), (name, name.is_empty()));
            assert_eq!(JobId::from_bytes(job.to_bytes()), Some(job));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let bytes = |change: fn(&mut [u8; JOB_BYTES])| {
            let mut bytes = JobId::named(b"dd.0").to_bytes();
            change(&mut bytes);
            JobId::from_bytes(bytes)
        };
        assert!(bytes(|_| ()).is_some());
        assert_eq!(bytes(|bytes| bytes[0] = 0), None, "something behind the end");
        assert_eq!(bytes(|bytes| bytes[1] = b' '), None, "a blank");
        assert_eq!(bytes(|bytes| bytes[1] = 0x80), None, "no ASCII");
        assert_eq!(bytes(|bytes| bytes.fill(b'a')), None, "no end");
    }
}
