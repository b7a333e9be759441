//! Ranges of objects that this client may read or change until it is called back (`docs/locks.md`).
//!
//! [`held`] is the state of one object, pure; [`table`] has all of them, [`spaces`] counts what is held of each OST; [`filling`] keeps what the
//! kernel fills from waiting for what it has to forget, and [`pages`] is what it may have. [`leave`] gives back; [`tokens`] asks and pins;
//! [`change`] is for what is not sent as data; [`unknown`] is for files of which nobody else can know, [`lost`] for what an OST has
//! forgotten; [`rest`] ends sessions that are not used. Each calls those before it only.
//!
//! The locks know nothing of the data under them: whoever uses them is asked to send and to forget it ([`RangeUser`]).

mod change;
mod filling;
mod grants;
mod held;
mod leave;
mod lost;
mod needs;
mod pages;
mod ranges;
mod rest;
mod spaces;
mod table;
mod tokens;
mod unknown;

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use proto::{Fid, ObjectId};
use rt::{BoxFuture, Rt};

use crate::copies::Keepers;
use crate::lease::Lease;
use crate::targets::Targets;

pub(crate) use change::Eras;
pub(crate) use filling::Filling;
pub(crate) use grants::Grants;
pub(crate) use held::Pages;
pub(crate) use leave::Leaver;
pub(crate) use needs::{beyond, needs_of, parts, surely, whole};
pub(crate) use pages::KernelPages;
pub(crate) use rest::Resting;
pub(crate) use spaces::Keep;
pub(crate) use table::{Pins, Table};
pub(crate) use tokens::{Before, Writing};

/// Whoever uses what is locked: it has data that was not sent, and data that was read.
pub(crate) trait RangeUser: Send + Sync {
    /// Sends what was written to a range of an object; done when the OST has it.
    fn flush(&self, fid: Fid, object: ObjectId, range: Range<u64>) -> BoxFuture<'_, ()>;
    /// Forgets what was read of a range of an object.
    fn forget(&self, object: ObjectId, range: Range<u64>);
    /// What was not sent to an object is lost: the lock that it was written under is gone.
    fn discard(&self, fid: Fid, object: ObjectId);
    /// Does something if nobody but this client can know of a file, and as long as that is so.
    fn while_unknown(&self, fid: Fid, hold: &mut dyn FnMut());
    /// Whether an application waits for a truncate of a file.
    fn is_being_cut(&self, fid: Fid) -> bool;
}

/// The user of the locks, once it is there and as long as it is.
#[derive(Default)]
pub(crate) struct Users(OnceLock<Weak<dyn RangeUser>>);

impl Users {
    /// The user.
    fn get(&self) -> Option<Arc<dyn RangeUser>> {
        self.0.get()?.upgrade()
    }

    /// Has the user forget what was read of a range.
    fn forget_read(&self, object: ObjectId, range: Range<u64>) {
        if let Some(user) = self.get() {
            user.forget(object, range);
        }
    }
}

/// The ranges that a client holds.
pub(crate) struct RangeLocks {
    rt: Rt,
    targets: Arc<Targets>,
    lease: Arc<Lease>,
    users: Arc<Users>,
    /// What is held.
    pub(crate) table: Arc<Table>,
    /// What is under way of the kernel's pages.
    pub(crate) filling: Arc<Filling>,
    /// What the kernel may have.
    pub(crate) pages: Arc<KernelPages>,
    /// Gives back what is held.
    pub(crate) leaver: Arc<Leaver>,
}

impl RangeLocks {
    /// Nothing is held yet. Pages are forgotten by `copies`.
    pub(crate) fn new(rt: Rt, targets: Arc<Targets>, lease: Arc<Lease>, copies: Arc<Keepers>) -> RangeLocks {
        let users = Arc::new(Users::default());
        let table = Arc::new(Table::new(rt.memory().clone()));
        let filling = Arc::new(Filling::new(rt.clone(), copies, users.clone()));
        let pages = Arc::new(KernelPages::new(table.clone(), filling.clone()));
        let of_table = table.clone();
        let leaver = Leaver::new(rt.clone(), targets.clone(), users.clone(), of_table, pages.clone());
        RangeLocks { rt, targets, lease, users, table, filling, pages, leaver: Arc::new(leaver) }
    }

    /// Says who uses the locks.
    pub(crate) fn set_user(&self, user: Weak<dyn RangeUser>) {
        let _ = self.users.0.set(user);
    }
}
