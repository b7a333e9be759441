//! Projects: for what a file counts besides its user and group, and what the files of a directory may take (`docs/operations.md#projects`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use client::posix::{Errno, Result};
use client::{AttrChange, Caller, Client};
use proto::wire::messages::{QUOTA_PROJECT, QuotaUse, ReadQuota, Space};
use proto::{Attr, Fid, TargetId};

/// How long the MDT may take to say what a project has; `df` shows the whole file system after that.
const READ_WAIT: Duration = Duration::from_secs(3);

/// The project of a file or a directory, as text: `1000 P`, or `1000 -` if what is made in it does not get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Project {
    /// Its number; 0 for none.
    pub id: u32,
    /// Whether what is made in the directory gets it.
    pub inherits: bool,
}

impl Project {
    /// What attributes say.
    pub fn of(attr: &Attr) -> Project {
        Project { id: attr.project, inherits: attr.inherits }
    }
}

impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, if self.inherits { 'P' } else { '-' })
    }
}

impl FromStr for Project {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Project> {
        let (id, inherits) = text.split_once(' ').ok_or(Errno::INVALID)?;
        let inherits = match inherits {
            "P" => true,
            "-" => false,
            _ => return Err(Errno::INVALID),
        };
        Ok(Project { id: id.parse().map_err(|_| Errno::INVALID)?, inherits })
    }
}

/// Says for which project a file counts.
pub(crate) async fn set(client: &Client, caller: &Caller, fid: Fid, text: &str) -> Result<()> {
    let Project { id, inherits } = text.parse()?;
    let change = AttrChange { project: Some(id), inherits: Some(inherits), ..AttrChange::default() };
    client.files().setattr(caller, fid, change, None).await?;
    Ok(())
}

/// The space that `df` shows for `fid`: of a directory whose project has limits, these, as Lustre's `statfs_project` has it.
pub(crate) async fn space(client: &Client, fid: Fid, all: Space) -> Space {
    let project = match client.names().getattr(fid).await {
        Ok(told) => Project::of(&told.attr),
        Err(_) => return all,
    };
    if project.id == 0 || !project.inherits {
        return all;
    }
    let read = ReadQuota { kind: QUOTA_PROJECT, id: project.id, pool: String::new() };
    match client.admin().order(TargetId::mdt(0), read, READ_WAIT).await {
        Ok(state) => within(all, state.bytes.as_ref(), &state.inodes),
        Err(_) => all,
    }
}

fn within(all: Space, bytes: Option<&QuotaUse>, files: &QuotaUse) -> Space {
    let mut space = all;
    if let Some((total, left)) = bytes.and_then(limits) {
        space.bytes_total = space.bytes_total.min(total);
        space.bytes_free = space.bytes_free.min(left);
        space.bytes_available = space.bytes_available.min(left);
    }
    if let Some((total, left)) = limits(files) {
        space.files_total = space.files_total.min(total);
        space.files_free = space.files_free.min(left);
    }
    space
}

/// The limit of something, and what is left of it; none if there is no limit.
fn limits(of: &QuotaUse) -> Option<(u64, u64)> {
    let limit = if of.soft != 0 { of.soft } else { of.hard };
    (limit != 0).then(|| (limit, limit.saturating_sub(of.used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_text() {
        for (text, id, inherits) in [("0 -", 0, false), ("4294967294 P", 4_294_967_294, true)] {
            let project: Project = text.parse().expect("a project");
            assert_eq!((project, project.to_string()), (Project { id, inherits }, text.to_owned()));
        }
        for text in ["", "1", "1 p", "x P", "-1 P", "1  P"] {
            assert!(text.parse::<Project>().is_err(), "{text}");
        }
    }

    #[test]
    fn df_shows_the_limits_of_a_project() {
        let all = Space {
            bytes_total: 1000,
            bytes_free: 500,
            bytes_available: 400,
            files_total: 90,
            files_free: 80,
            ..Space::default()
        };
        let of = |used, soft, hard| QuotaUse {
            used,
            soft,
            hard,
            deadline_s: 0,
            left_s: 0,
            grace_s: 0,
            is_default: false,
        };
        let none = of(5, 0, 0);
        assert_eq!(within(all, None, &none), all);
        let space = within(all, Some(&of(60, 0, 100)), &of(9, 7, 12));
        assert_eq!((space.bytes_total, space.bytes_free, space.bytes_available), (100, 40, 40));
        assert_eq!((space.files_total, space.files_free), (7, 0));
        let space = within(all, Some(&of(60, 0, 1 << 40)), &none);
        assert_eq!((space.bytes_total, space.bytes_free, space.bytes_available), (1000, 500, 400));
    }
}
