//! What every archive has, wherever it is: names of copies, what is said beside each, and its checksum.

use client::hsm::Copy;
use client::{Error, Result};
use crc_fast::{CrcAlgorithm, checksum, checksum_combine};
use proto::{Attr, Code, Fid};
use serde::{Deserialize, Serialize};

/// The file that says that this is an archive: what is empty is none, for the archive may be elsewhere.
pub const MARKER: &str = ".weft-archive";
/// What stands in it.
pub const MARKED: &[u8] = b"{\"weft_archive\":1}\n";
/// What the name of a copy's description ends with.
pub const ABOUT_SUFFIX: &str = ".json";

/// The checksum of a copy: over all bytes of the file, those of holes too, wherever holes are.
const SUM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// `1/0002/0000/0400/0000/0002/0000/0x200000400:0x2:0x0.COPY`, as Lustre's `lhsmtool_posix` has it, and the name of the copy.
pub fn name_of(of: &Copy<'_>) -> String {
    let Fid { seq, oid, ver } = of.fid;
    let (archive, oid_of) = (of.archive, |shift: u32| oid >> shift & 0xffff);
    let part = |shift: u32| seq >> shift & 0xffff;
    format!(
        "{archive}/{:04x}/{:04x}/{:04x}/{:04x}/{:04x}/{:04x}/{seq:#x}:{oid:#x}:{ver:#x}.{}",
        oid_of(0),
        oid_of(16),
        part(0),
        part(16),
        part(32),
        part(48),
        own_name(of)
    )
}

fn own_name(of: &Copy<'_>) -> String {
    format!("{:016x}", of.copy)
}

/// What is said beside a copy.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    /// The file.
    pub fid: String,
    /// The copy's own name; the first archives have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copy: Option<String>,
    /// A path of it.
    pub path: String,
    /// Its bytes, those of holes too.
    pub size: u64,
    /// CRC-64/NVME of all bytes, in hexadecimal.
    pub crc64: String,
    uid: u32,
    gid: u32,
    mode: u32,
    mtime: i64,
    /// Offsets and lengths of what is data, if the copy has that alone, one piece after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Vec<(u64, u64)>>,
}

impl About {
    /// Of a copy that begins.
    pub fn new(of: &Copy<'_>) -> Result<About> {
        let (attr, path) = of.about.ok_or(Error::Refused(Code::Invalid))?;
        let Attr { size, uid, gid, mode, mtime, .. } = *attr;
        let (fid, path, crc64) = (of.fid.to_string(), path.to_owned(), String::new());
        let copy = Some(own_name(of));
        Ok(About { fid, copy, path, size, crc64, uid, gid, mode, mtime: mtime.secs, ranges: None })
    }

    /// Whether it is about this copy, and about no other one of the same size.
    pub fn is_of(&self, of: &Copy<'_>) -> bool {
        self.fid == of.fid.to_string() && self.copy.as_ref().is_none_or(|copy| *copy == own_name(of))
    }

    /// The text that is kept.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A sum over bytes that come with holes between them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    crc: u64,
    until: u64,
}

impl Sum {
    /// Bytes that come next, or behind a hole.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.hole_until(offset);
        self.append(checksum(SUM, bytes), bytes.len() as u64);
    }

    /// Zeros up to `end`: as many steps as their number has bits.
    pub fn hole_until(&mut self, end: u64) {
        let mut left = end.saturating_sub(self.until);
        let (mut of_power, mut power) = (checksum(SUM, &[0]), 1u64);
        while left > 0 {
            if left & 1 != 0 {
                self.append(of_power, power);
            }
            left >>= 1;
            if left > 0 {
                of_power = checksum_combine(SUM, of_power, of_power, power);
                power <<= 1;
            }
        }
    }

    /// `len` bytes come next whose sum is `crc`.
    fn append(&mut self, crc: u64, len: u64) {
        self.crc = if self.until == 0 { crc } else { checksum_combine(SUM, self.crc, crc, len) };
        self.until += len;
    }

    /// As a description has it.
    pub fn text(&self) -> String {
        format!("{:016x}", self.crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_count_as_the_zeros_that_they_are() {
        let mut whole = vec![0u8; 200_000];
        whole[5..9].copy_from_slice(b"data");
        whole[150_000..150_007].copy_from_slice(b"further");
        let expected = checksum(SUM, &whole);
        let sum_of = |parts: &[(usize, usize)]| {
            let mut sum = Sum::default();
            parts.iter().for_each(|(from, until)| sum.add(*from as u64, &whole[*from..*until]));
            sum.hole_until(whole.len() as u64);
            sum.crc
        };
        assert_eq!(sum_of(&[(0, 200_000)]), expected);
        assert_eq!(sum_of(&[(5, 9), (150_000, 150_007)]), expected);
        assert_eq!(sum_of(&[(0, 4096), (149_504, 150_016)]), expected);
        assert_ne!(sum_of(&[(5, 8), (150_000, 150_007)]), expected);
        let mut zeros = Sum::default();
        zeros.hole_until(77_777);
        assert_eq!(zeros.crc, checksum(SUM, &vec![0; 77_777]));
        assert_eq!(Sum::default().crc, checksum(SUM, &[]));
    }

    #[test]
    fn a_copy_has_a_name_of_its_own() {
        let fid = Fid { seq: 0x2_0000_0400, oid: 0x1_0002, ver: 0 };
        let name = name_of(&Copy { fid, archive: 1, copy: 0xab, about: None });
        assert_eq!(name, "1/0002/0001/0400/0000/0002/0000/0x200000400:0x10002:0x0.00000000000000ab");
    }

    #[test]
    fn a_description_is_about_one_copy() {
        let fid = Fid { seq: 1, oid: 2, ver: 0 };
        let of = |fid, copy| Copy { fid, archive: 1, copy, about: None };
        let text = r#"{"fid":"[0x1:0x2:0x0]","copy":"00000000000000ab","path":"/a","size":7,"crc64":"0","uid":0,"gid":0,"mode":420,"mtime":0}"#;
        let about: About = serde_json::from_str(text).expect("it is one");
        assert!(about.is_of(&of(fid, 0xab)) && !about.is_of(&of(fid, 0xac)));
        assert!(!about.is_of(&of(Fid { oid: 3, ..fid }, 0xab)));
    }

    #[test]
    fn descriptions_of_directories_have_no_ranges() {
        let text = br#"{"fid":"[0x1:0x2:0x0]","path":"/a","size":7,"crc64":"0","uid":0,"gid":0,"mode":420,"mtime":0}"#;
        let about: About = serde_json::from_slice(text).expect("it is one");
        assert_eq!((about.ranges.as_ref(), about.text().as_slice()), (None, &text[..]));
    }
}
