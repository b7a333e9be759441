//! An answer, and what of it the kernel may keep.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use proto::Attr;

use super::gate::Filling;

/// Has to be held until the answer has reached the kernel: a callback for what it says waits for it.
///
/// Whoever holds it must not wait for a server: that may wait for just this callback (two clients that each hold an
/// answer and wait for the other one would wait for ever). So it is not `Send`, which keeps it out of what a task has
/// in hand across an `.await`; [`Fill::send`] is the last step.
///
/// ```compile_fail,E0277
/// fn may_cross_an_await<T: Send>() {}
/// may_cross_an_await::<weft_client::Told>();
/// ```
#[derive(Clone, Default)]
pub struct Fill(Option<Arc<Filling>>, PhantomData<*const ()>);

/// An answer on its way to its keeper, to be dropped when it has arrived.
#[derive(Clone)]
pub struct OnItsWay(#[allow(dead_code)] Option<Arc<Filling>>);

impl Fill {
    pub(super) fn new(gate: Arc<Filling>) -> Fill {
        Fill(Some(gate), PhantomData)
    }

    /// The answer is sent to its keeper now: nothing is waited for any more but its arrival.
    pub fn send(self) -> OnItsWay {
        OnItsWay(self.0)
    }
}

/// A guard says nothing of its own.
impl PartialEq for Fill {
    fn eq(&self, _other: &Fill) -> bool {
        true
    }
}

impl Eq for Fill {}

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fill")
    }
}

/// What a name means, or what a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Attributes, with the true size.
    pub attr: Attr,
    /// How long the name may be kept, unless [`crate::Forget::NamesOf`] comes before: it does not outlive the lease. Nothing is zero.
    pub keep_name: Duration,
    /// Whether the attributes may be kept until [`crate::Forget::Attributes`].
    pub keep_attr: bool,
    /// To be held until the answer has reached its keeper.
    pub fill: Fill,
}

impl Told {
    /// An answer of which nothing may be kept.
    pub(crate) fn once(attr: Attr) -> Told {
        Told { attr, keep_name: Duration::ZERO, keep_attr: false, fill: Fill::default() }
    }
}

impl std::ops::Deref for Told {
    type Target = Attr;
    fn deref(&self) -> &Attr {
        &self.attr
    }
}

impl From<Told> for Attr {
    fn from(told: Told) -> Attr {
        told.attr
    }
}
