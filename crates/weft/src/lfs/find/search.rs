//! Searches as such, for `lfs find` and for those who act on what is found: an expression, its pages one after the other, and whether one
//! file is still one of those.

use std::ffi::OsString;

use bytes::Bytes;
use proto::find::{Expr, path_below};
use proto::wire::messages::{FIND_ENTRY, Find, Found, FoundPage};
use proto::{Cred, Fid};

use super::ask::{Asked, Error};
use super::{Action, numbers, parse};
use crate::failure::Failure;

/// Which files are looked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Query {
    /// What is asked of each.
    pub(crate) expr: Expr,
    /// Names below the start that a path has at least.
    pub(crate) depth_min: u32,
    /// Names below the start that a path has at most.
    pub(crate) depth_max: u32,
}

/// A search below one place, page by page.
pub(crate) struct Search {
    asked: Asked,
    find: Find,
    is_over: bool,
}

impl Query {
    /// What an expression of `lfs find` means at this moment: words without places, and without an action.
    pub(crate) fn parse(words: &[OsString]) -> Result<Query, Failure> {
        if let Some(place) = words.first().filter(|word| !parse::begins_expression(word)) {
            return Err(Failure::usage(format!("'{}' is no test of lfs find", place.display())));
        }
        let plan = parse::plan(words, &mut numbers::Outside)?;
        if plan.tells_matched || plan.action != Action::Print(b'\n') {
            return Err(Failure::usage("it has an action of lfs find, and only tests are wanted"));
        }
        Ok(plan.query)
    }

    /// Of those only the ones for which `expr` holds, too.
    pub(crate) fn and(self, expr: Expr) -> Query {
        // Not deeper than it is, since that is limited.
        let mut parts = vec![expr];
        match self.expr {
            Expr::All(tests) => parts.extend(tests),
            other => parts.push(other),
        }
        Query { expr: Expr::All(parts), ..self }
    }
}

impl Search {
    /// Begins at the place that is asked about, whose path is `start` as its user wrote it. `wants`: `FIND_*` bits.
    pub(crate) fn new(asked: Asked, query: &Query, start: &[u8], wants: u32) -> Search {
        let find = Find { wants, ..question(query, asked.fid, start) };
        Search { asked, find, is_over: false }
    }

    /// What is found next; `None` at the end.
    ///
    /// # Errors
    /// After [`Error::Ended`] it goes on with the file system as it is then: what was moved meanwhile may be missing, or come twice.
    pub(crate) fn next_page(&mut self) -> Result<Option<FoundPage>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let page = self.asked.page(&mut self.find);
        if matches!(page, Err(Error::Ended)) {
            self.find.snapshot = 0;
        }
        let mut page = page?;
        self.find.snapshot = page.snapshot;
        self.find.behind = page.next.take();
        self.is_over = self.find.behind.is_none();
        Ok(Some(page))
    }
}

/// The file, with its attributes, if it is there and still one of those that `query` found with the path `below` below `start`. Where it
/// lies now, the MDT does not look at: who acts on a path compares the FID.
pub(crate) fn look_again(
    asked: &mut Asked,
    query: &Query,
    fid: Fid,
    (start, below): (&[u8], &[u8]),
) -> Result<Option<Found>, Error> {
    // The depth was right, and does not change as long as the path does not.
    let query = Query { depth_min: 0, depth_max: 0, ..query.clone() };
    let mut find = Find { wants: FIND_ENTRY, ..question(&query, fid, &path_below(start, below)) };
    match asked.page(&mut find) {
        Ok(mut page) => Ok(page.found.pop()),
        Err(Error::Gone) => Ok(None),
        Err(error) => Err(error),
    }
}

fn question(query: &Query, fid: Fid, path: &[u8]) -> Find {
    Find {
        start: fid,
        path: Bytes::copy_from_slice(path),
        query: query.expr.encode(),
        depth_min: query.depth_min,
        depth_max: query.depth_max,
        wants: 0,
        bytes_max: 0,
        snapshot: 0,
        behind: None,
        // The mount says who asks.
        cred: Cred { uid: u32::MAX, gid: u32::MAX, groups: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<(), &str>) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let parsed = Query::parse(&words).map(|_| ()).map_err(|failure| failure.message);
        assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn expressions_have_neither_places_nor_actions() {
        check("-name a -o ( ! -size +1M )", Ok(()));
        check("/tmp -name a", Err("'/tmp' is no test of lfs find"));
        check("-name a -print0", Err("it has an action of lfs find, and only tests are wanted"));
        check("-name a --matched", Err("it has an action of lfs find, and only tests are wanted"));
        check("-nam a", Err("lfs find: unknown test or action '-nam'"));
    }
}
