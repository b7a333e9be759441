//! What an administrator sees and sets of a client, by Lustre's names: what a mount caches (`llite.*`), what it has written to each
//! OST (`osc.*`), what it holds of each target (`ldlm.namespaces.*`), how long answers take, and which configuration it knows.
//! What is set holds for as long as the mount does.

use std::future::Future;
use std::pin::Pin;

use proto::parameters::{ClientTree, Parameter, size};

use super::sessions::OfSessions;
use super::{Admin, answers};
use crate::Result;

/// What setting a parameter of a client gives: something that has to be waited for.
pub type Setting<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

impl Admin {
    /// Registers all that a client has.
    pub fn parameters<'a>(&'a self, tree: &mut ClientTree<'a, Setting<'a>>) {
        self.memory.parameters(tree);
        self.read_ahead_in(tree);
        self.statahead_in(tree);
        self.ahead_in(tree);
        self.counting_in(tree);
        OfSessions { admin: self }.parameters(tree);
        tree.of_mgs(Parameter::text("ir_state", || {
            self.with_config(|config| answers::ir_state(config.fsname(), config.version()))
        }));
    }
}

/// In MiB, rounded up.
pub(super) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// A number of bytes: `64` is in MiB, `1G` says its unit, `10%` is a part of `most`. A name before it, as in what is printed, is left out.
pub(super) fn bytes(text: &str, most: u64) -> Option<u64> {
    let text = text.trim().trim_start_matches("max_cached_mb:").trim();
    if let Some(part) = text.strip_suffix('%') {
        let part: u64 = part.parse().ok().filter(|part| *part <= 100)?;
        return Some(most / 100 * part);
    }
    size(text, 20)
}
