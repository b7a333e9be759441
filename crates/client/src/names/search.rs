//! Searching the name space: pages that the MDT finds, and what it cannot know of files that somebody writes.

use std::time::Duration;

use proto::find::{Expr, Subject, Verdict, last_part, path_below};
use proto::wire::messages::{Entry, FIND_ENTRY, Find, Found, FoundPage};
use proto::{Attr, Code, Cred, FileKind};
use rt::wait::join_all;

use crate::names::Names;
use crate::{Caller, Error, Result};

/// Files whose objects are asked at the same time.
const TOGETHER_MAX: usize = 32;
/// How often a page is asked for while the MDT has too many searches, and the pause between.
const TRIES_MAX: usize = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(200);

impl Names {
    /// A page of a search. Nothing in it is open: of files that somebody writes, size and times are those of this call, and they are
    /// judged by them.
    pub async fn search(&self, caller: &Caller, find: &Find) -> Result<FoundPage> {
        let query = Expr::decode(find.query.clone()).map_err(|_| Error::Refused(Code::Invalid))?;
        let mut page = self.ask_for_page(caller, find).await?;
        let (written, mut found): (Vec<Found>, Vec<Found>) = page.found.into_iter().partition(is_written);
        let mut written = written.into_iter().peekable();
        while written.peek().is_some() {
            let some = written.by_ref().take(TOGETHER_MAX);
            for file in join_all(some.map(|file| self.settle(find, &query, file))).await {
                found.extend(file?);
            }
        }
        page.found = found;
        Ok(page)
    }

    async fn ask_for_page(&self, caller: &Caller, find: &Find) -> Result<FoundPage> {
        // A page that has to be asked for again with them would have been looked for in vain.
        let groups = if caller.uid == 0 { Vec::new() } else { (caller.groups)() };
        let with_groups = |cred| Find { cred: Cred { groups: Some(groups.clone()), ..cred }, ..find.clone() };
        for _ in 0..TRIES_MAX {
            self.ahead.all_settled().await;
            let asked = self.targets.ask(find.start, caller, with_groups).await;
            match asked {
                Err(Error::Refused(Code::Busy)) => self.data.rt.sleep(BUSY_PAUSE).await,
                asked => return Ok(asked?.reply),
            }
        }
        Err(Error::Refused(Code::Busy))
    }

    /// The file, unless its objects show that it is none of those, or it is gone.
    async fn settle(&self, find: &Find, query: &Expr, found: Found) -> Result<Option<Found>> {
        let mut found = found;
        let Some(entry) = found.entry.take() else { return Ok(None) };
        let (layout, xattrs, lock) = (entry.layout.clone(), entry.xattrs, entry.lock);
        let attr = match self.sizes.complete_as_far(&entry).await {
            Err(Error::Refused(Code::Stale)) => return Ok(None),
            attr => Attr { size_known: true, ..attr? },
        };
        let path = path_below(&find.path, &found.path);
        let subject = Subject {
            name: last_part(&path),
            path: &path,
            kind: attr.kind(),
            mdt: 0,
            inode: Some((&attr, layout.as_ref())),
            is_bare: None,
        };
        if found.open && query.judge(&subject) != Verdict::Yes {
            return Ok(None);
        }
        found.open = false;
        if find.wants & FIND_ENTRY != 0 {
            found.entry = Some(Box::new(Entry { attr, layout, xattrs, lock }));
        }
        Ok(Some(found))
    }
}

/// Whether the MDT does not know all of it.
fn is_written(found: &Found) -> bool {
    found.entry.as_ref().is_some_and(|entry| entry.attr.kind() == FileKind::File && !entry.attr.size_known)
}
