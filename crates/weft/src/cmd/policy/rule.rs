//! What a policy says: rules, each with the files that it is about and what is done with them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::control::Hint;
use proto::FileKind;
use proto::find::{Expr, LAYOUT_RELEASED, Test, kind_bit};

use super::words;
use crate::cmd::stage::bytes_text;
use crate::failure::Failure;
use crate::lfs::find::Query;

/// All that a file says.
#[derive(Debug, PartialEq)]
pub struct Policy {
    /// In the order of the file.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, PartialEq)]
pub struct Rule {
    /// What it is called.
    pub name: String,
    /// Where its files lie: below the directory of the command line.
    pub below: Option<PathBuf>,
    /// Its files: an expression of `lfs find`, in words as a shell has them.
    pub files: String,
    /// What is done with them.
    pub action: Action,
    /// Which come first.
    pub order: Option<Order>,
    /// When it has something to do at all.
    pub when: Option<When>,
    /// How often it is looked at while somebody watches.
    pub every: Option<Duration>,
    /// How fast it works.
    pub limits: Limits,
}

/// What is done with a file.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Its data goes to other OSTs.
    Migrate {
        /// Where to.
        to: Box<Hint>,
        /// The same as it was written.
        options: String,
    },
    /// A copytool is asked to copy it to the archive, unless the archive has what it has.
    Archive,
    /// Its data goes, if the archive has it.
    Release,
    /// It is removed.
    Purge,
}

impl Action {
    /// Whether it takes time as there is data.
    pub fn copies(&self) -> bool {
        matches!(self, Action::Migrate { .. } | Action::Archive)
    }
}

/// Which files come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Those that were accessed longest ago.
    Accessed,
    /// Those whose data was changed longest ago.
    Modified,
    /// The largest ones.
    Size,
}

/// A rule acts only when something is fuller than `above`, and until it is no fuller than `until`; both in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// What is measured.
    pub of: Measured,
    /// Begins above this.
    pub above: u32,
    /// Ends there.
    pub until: u32,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measured {
    /// The OSTs of a pool together.
    Pool(String),
    /// One OST.
    Ost(u32),
    /// All OSTs together.
    All,
}

/// How fast a rule works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of files that are moved in a second.
    pub bytes_per_second: Option<u64>,
    /// Files in a second.
    pub files_per_second: Option<u64>,
    /// Files at the same time.
    pub at_once: usize,
}

impl Rule {
    /// Which files it is about, at this moment: ages count from now.
    pub fn query(&self) -> Result<Query, Failure> {
        let query = Query::parse(&words::split(&self.files).map_err(Failure::usage)?)?;
        // The directory of the command line itself is none of what lies below it.
        let query = Query { depth_min: query.depth_min.max(1), ..query };
        match self.action {
            // There is nothing to move of what is released, and nothing more to release.
            Action::Migrate { .. } | Action::Archive | Action::Release => {
                let is_released = Expr::Test(Test::Layout(LAYOUT_RELEASED));
                let query = query.and(Expr::Test(Test::Kind(kind_bit(FileKind::File))));
                Ok(query.and(Expr::Not(Box::new(is_released))))
            }
            Action::Purge if asks_for_directories(&query.expr)? => Ok(query),
            Action::Purge => {
                Ok(query.and(Expr::Not(Box::new(Expr::Test(Test::Kind(kind_bit(FileKind::Dir)))))))
            }
        }
    }

    /// What it means, in a sentence.
    pub fn sentence(&self) -> String {
        let dir = Path::new("DIR");
        let place = self.below.as_ref().map_or_else(|| dir.to_owned(), |below| dir.join(below));
        let place = place.display();
        let files = self.files.trim();
        let mut text = match &self.action {
            Action::Migrate { options, .. } => {
                format!(
                    "moves the files below {place} that match \"{files}\" as \"lfs migrate {options}\" does"
                )
            }
            Action::Archive => {
                format!(
                    "has the files below {place} that match \"{files}\" archived as \"lfs hsm_archive\" does"
                )
            }
            Action::Release => format!(
                "releases the files below {place} that match \"{files}\" and are archived, as \"lfs hsm_release\" does"
            ),
            Action::Purge => format!("removes the files below {place} that match \"{files}\""),
        };
        if let Some(order) = self.order {
            text += match order {
                Order::Accessed => ", first those accessed longest ago",
                Order::Modified => ", first those changed longest ago",
                Order::Size => ", first the largest",
            };
        }
        if let Some(When { of, above, until }) = &self.when {
            let (above, until) = (percent(*above), percent(*until));
            text += &format!(", when {} is more than {above} full, until it is {until} full", of.text());
        }
        if let Some(every) = self.every {
            text += &format!(", every {} if it is watched", duration(every));
        }
        text + &self.limits.text(&self.action)
    }
}

/// Whether a purge is about directories, too: only if it asks for empty ones.
fn asks_for_directories(expr: &Expr) -> Result<bool, Failure> {
    let parts = match expr {
        Expr::All(parts) => &parts[..],
        other => std::slice::from_ref(other),
    };
    let names = parts
        .iter()
        .any(|part| matches!(part, Expr::Test(Test::Kind(kinds)) if kinds & kind_bit(FileKind::Dir) != 0));
    let empty = parts.iter().any(|part| matches!(part, Expr::Test(Test::Empty)));
    if names && !empty {
        return Err(Failure::usage("a directory is purged only if it is empty: write -type d -empty"));
    }
    Ok(names)
}

impl Measured {
    /// As it is called in sentences.
    pub fn text(&self) -> String {
        match self {
            Measured::Pool(pool) => format!("the pool {pool}"),
            Measured::Ost(index) => format!("OST {index}"),
            Measured::All => "the file system".to_owned(),
        }
    }
}

impl Limits {
    fn text(&self, action: &Action) -> String {
        let bytes = self.bytes_per_second.filter(|_| action.copies());
        let bytes = bytes.map(|bytes| format!("{}/s", bytes_text(bytes)));
        let files = self.files_per_second.map(|files| format!("{files} files/s"));
        let rates: Vec<String> = bytes.into_iter().chain(files).collect();
        let rates =
            if rates.is_empty() { String::new() } else { format!(", at most {}", rates.join(" and ")) };
        format!("{rates}, {} at once", self.at_once)
    }
}

/// Thousandths as people read them.
pub fn percent(thousandths: u32) -> String {
    match thousandths % 10 {
        0 => format!("{}%", thousandths / 10),
        tenth => format!("{}.{tenth}%", thousandths / 10),
    }
}

fn duration(of: Duration) -> String {
    match of.as_secs() {
        seconds if seconds.is_multiple_of(86_400) => format!("{} d", seconds / 86_400),
        seconds if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        seconds if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(files: &str, action: Action) -> Rule {
        Rule {
            name: "r".to_owned(),
            below: None,
            files: files.to_owned(),
            action,
            order: Some(Order::Size),
            when: Some(When { of: Measured::Pool("flash".to_owned()), above: 855, until: 700 }),
            every: Some(Duration::from_secs(5400)),
            limits: Limits { bytes_per_second: Some(200 << 20), files_per_second: Some(100), at_once: 4 },
        }
    }

    #[test]
    fn a_purge_leaves_directories_alone() {
        let judged = |words: &str| {
            let query = rule(words, Action::Purge).query().map_err(|failure| failure.message)?;
            assert_eq!(query.depth_min, 1, "{words}");
            let is_of_directories = |kind| proto::find::Subject {
                name: b"n",
                path: b"/n",
                kind,
                mdt: 0,
                inode: None,
                is_bare: Some(true),
            };
            let judge = |kind| query.expr.judge(&is_of_directories(kind)) == proto::find::Verdict::Yes;
            Ok::<_, String>((judge(FileKind::Dir), judge(FileKind::Symlink)))
        };
        assert_eq!(judged("-name n"), Ok((false, true)));
        assert_eq!(judged("-name n -o -type d"), Ok((false, true)));
        assert_eq!(judged("! -name x"), Ok((false, true)));
        assert_eq!(judged("-type d -empty"), Ok((true, false)));
        let why = "a directory is purged only if it is empty: write -type d -empty".to_owned();
        assert_eq!(judged("-type d"), Err(why.clone()));
        assert_eq!(judged("-name n -type f,d"), Err(why));
    }

    #[test]
    fn rules_say_what_they_mean() {
        assert_eq!(
            rule("-pool flash", Action::Purge).sentence(),
            "removes the files below DIR that match \"-pool flash\", first the largest, when the pool flash is more than 85.5% full, \
             until it is 70% full, every 90 min if it is watched, at most 100 files/s, 4 at once"
        );
        let to = Box::new(Hint { pool: "disk".to_owned(), ..Hint::default() });
        let text = rule("-size +1M", Action::Migrate { to, options: "-p disk".to_owned() }).sentence();
        assert!(text.starts_with(
            "moves the files below DIR that match \"-size +1M\" as \"lfs migrate -p disk\" does,"
        ));
        assert!(text.ends_with(", at most 200.0 MiB/s and 100 files/s, 4 at once"), "{text}");
    }
}
