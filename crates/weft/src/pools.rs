//! Pools of OSTs on command lines: how they and their members are named, and what a mount knows of them.

use std::collections::BTreeSet;
use std::io;

use fuse::pools::{POOLS, PoolMembers, PoolNames, members_behind};
use fuse::session::MountEntry;
use proto::limits::TARGETS_MAX;
use proto::pool::{POOL_IGNORE, POOL_NAME_BYTES_MAX, is_pool_name};
use proto::{FsName, TargetId};

use crate::ask;
use crate::failure::Failure;

/// What OSTs may be called.
const OSTS: &str = "write OST0003, w-OST0003, OST[0-3,7], OST0000-OST0003, or indexes as in 0,2-4";

/// A pool as `lctl` names it: `FS.POOL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// File system.
    pub fsname: String,
    /// The pool.
    pub pool: String,
}

impl Named {
    /// Reads `FS.POOL`; `command` stands in messages.
    pub fn parse(command: &str, text: &str) -> Result<Named, Failure> {
        let (fsname, pool) = text
            .split_once('.')
            .ok_or_else(|| Failure::usage(format!("{command}: '{text}': write FS.POOL, as in w.flash")))?;
        if fsname.parse::<FsName>().is_err() {
            return Err(Failure::usage(format!("{command}: '{fsname}' is no name of a file system")));
        }
        check_name(command, pool)?;
        Ok(Named { fsname: fsname.to_owned(), pool: pool.to_owned() })
    }
}

/// A name that a pool can have.
pub fn check_name(command: &str, pool: &str) -> Result<(), Failure> {
    if is_pool_name(pool) {
        return Ok(());
    }
    Err(Failure {
        message: format!(
            "{command}: '{pool}' is no name of a pool: write 1 to {POOL_NAME_BYTES_MAX} letters, digits, _ and -, and not none, inherit or {POOL_IGNORE}"
        ),
        status: libc::EINVAL as u8,
    })
}

/// The pool that a layout is to have: `POOL` or `FS.POOL`. What stands for none is empty, as in Lustre.
pub fn of_layout(command: &str, text: &str) -> Result<String, Failure> {
    let pool = text.rsplit_once('.').map_or(text, |(_, pool)| pool);
    match pool {
        "" | "none" | "inherit" => Ok(String::new()),
        POOL_IGNORE => Ok(pool.to_owned()),
        _ => check_name(&format!("error: {command}"), pool).map(|()| pool.to_owned()),
    }
}

/// How the member of a pool is printed.
pub fn member(fsname: &str, ost: u32) -> String {
    format!("{fsname}-{}_UUID", TargetId::ost(ost))
}

/// The OSTs that `words` name: `OST0003`, `w-OST0003_UUID`, `OST[0-3,7]`, `OST0000-OST0003`, `0,2-4`.
pub fn osts(command: &str, fsname: &str, words: &[String]) -> Result<BTreeSet<u32>, Failure> {
    let mut all = BTreeSet::new();
    for word in words {
        let named = named_by(fsname, word).ok_or_else(|| {
            Failure::usage(format!("{command}: '{word}' names no OSTs of {fsname}: {OSTS}"))
        })?;
        all.extend(named);
    }
    Ok(all)
}

fn named_by(fsname: &str, word: &str) -> Option<Vec<u32>> {
    let is_index = word.starts_with(|first: char| first.is_ascii_digit());
    if is_index {
        return ranges(word, decimal);
    }
    let name = of_file_system(fsname, word)?;
    if let Some(list) = name.strip_prefix('[') {
        return ranges(list.strip_suffix(']')?, hexadecimal);
    }
    match name.split_once('-') {
        Some((first, last)) => range(hexadecimal(first)?, hexadecimal(of_file_system(fsname, last)?)?, 1),
        None => Some(vec![hexadecimal(name)?]),
    }
}

/// What stands behind `OST` in the name of an OST of the file system.
fn of_file_system<'a>(fsname: &str, name: &'a str) -> Option<&'a str> {
    let name = name.strip_suffix("_UUID").unwrap_or(name);
    let name = name.strip_prefix(fsname).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name);
    name.strip_prefix("OST")
}

/// `0-3,7` and `0-6/2`, with numbers as `number` reads them.
fn ranges(list: &str, number: fn(&str) -> Option<u32>) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (part, step) = match part.split_once('/') {
            Some((part, step)) => (part, number(step)?),
            None => (part, 1),
        };
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(range(number(first)?, number(last)?, step)?);
        if all.len() > TARGETS_MAX {
            return None;
        }
    }
    Some(all)
}

fn range(first: u32, last: u32, step: u32) -> Option<Vec<u32>> {
    let fits = first <= last && (last as usize) < TARGETS_MAX && step > 0;
    fits.then(|| (first..=last).step_by(step as usize).collect())
}

fn decimal(digits: &str) -> Option<u32> {
    digits.parse().ok()
}

/// A target's name has four digits, or as many as it needs.
fn hexadecimal(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digits = digits.strip_suffix("_UUID").unwrap_or(digits);
    if is_plain { u32::from_str_radix(digits, 16).ok() } else { None }
}

/// The pools that a mount knows.
pub fn names(mount: &MountEntry) -> io::Result<PoolNames> {
    ask::get(mount, POOLS)
}

/// The members of a pool that a mount knows; `None` if there is no such pool.
pub fn members(mount: &MountEntry, pool: &str) -> io::Result<Option<Vec<u32>>> {
    all_members(pool, |attribute| ask::get(mount, attribute))
}

/// The same, page by page.
pub fn all_members(
    pool: &str,
    page: impl Fn(&str) -> io::Result<PoolMembers>,
) -> io::Result<Option<Vec<u32>>> {
    let mut all: Vec<u32> = Vec::new();
    loop {
        match page(&members_behind(pool, all.last().copied())) {
            Ok(page) => {
                let is_last = !page.more || page.osts.is_empty() || all.len() > TARGETS_MAX;
                all.extend(page.osts);
                if is_last {
                    return Ok(Some(all));
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The pools of a file system, as Lustre prints them.
pub fn list(fsname: &str, names: &[String]) -> String {
    let lines: String = names.iter().map(|name| format!("{fsname}.{name}\n")).collect();
    format!("Pools from {fsname}:\n{lines}")
}

/// A pool, as Lustre prints it.
pub fn one(fsname: &str, pool: &str, osts: &[u32]) -> String {
    let lines: String = osts.iter().map(|ost| member(fsname, *ost) + "\n").collect();
    format!("Pool: {fsname}.{pool}\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osts_are_named_as_in_lustre() {
        let check = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            osts("pool_add", "w", &words).ok().map(|osts| osts.into_iter().collect::<Vec<_>>())
        };
        for (line, wanted) in [
            ("w-OST0003", Some(vec![3])),
            ("OST001f", Some(vec![31])),
            ("OST001f_UUID w-OST0000_UUID", Some(vec![0, 31])),
            ("OST[0-3]", Some(vec![0, 1, 2, 3])),
            ("w-OST[0000-0003,a]", Some(vec![0, 1, 2, 3, 10])),
            ("OST[0-6/2]", Some(vec![0, 2, 4, 6])),
            ("OST[0-3]_UUID", Some(vec![0, 1, 2, 3])),
            ("OST0000-OST0003", Some(vec![0, 1, 2, 3])),
            ("w-OST0001-w-OST0002_UUID", Some(vec![1, 2])),
            ("8 10 12-14", Some(vec![8, 10, 12, 13, 14])),
            ("0,2-4", Some(vec![0, 2, 3, 4])),
            ("x-OST0000", None),
            ("OST", None),
            ("OST[0-3", None),
            ("OST[3-0]", None),
            ("OST[0-99999999]", None),
            ("OST0000-3x", None),
            ("w-MDT0000", None),
            ("", None),
        ] {
            assert_eq!(check(line), wanted, "{line}");
        }
    }

    #[test]
    fn pools_have_names() {
        let parse = |text| Named::parse("pool_new", text).map_err(|failure| failure.status);
        let flash = Named { fsname: "w".into(), pool: "flash".into() };
        assert_eq!(parse("w.flash"), Ok(flash));
        for bad in ["w", "w.", "w.none", "w.sixteen-bytes-12", "w.a.b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let of = |text| of_layout("setstripe", text).ok();
        assert_eq!((of("flash"), of("w.flash")), (Some("flash".into()), Some("flash".into())));
        assert_eq!(
            (of(""), of("none"), of("inherit")),
            (Some(String::new()), Some(String::new()), Some(String::new()))
        );
        assert_eq!((of("ignore"), of("a b")), (Some("ignore".into()), None));
    }

    #[test]
    fn lists_are_lustres() {
        assert_eq!(list("w", &["disk".into(), "flash".into()]), "Pools from w:\nw.disk\nw.flash\n");
        assert_eq!(one("w", "flash", &[0, 31]), "Pool: w.flash\nw-OST0000_UUID\nw-OST001f_UUID\n");
    }
}
