//! What a caller asks of a new layout.

use crate::ids::OstIndex;

/// What a caller asks of a new layout; also a directory's default for new files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutHint {
    /// Stripes: 0 is the default of the directory above, -1 one on every OST, -2 to -32 with `overstripe` that
    /// many on every OST.
    pub stripe_count: i32,
    /// Bytes of one stripe unit; 0 is the default of the directory above.
    pub stripe_size: u32,
    /// Index of the first OST; -1 leaves the choice to the MDT.
    pub start_index: i32,
    /// The OST of each stripe, in order; empty leaves the choice to the MDT.
    pub osts: Vec<OstIndex>,
    /// Whether several stripes may share an OST.
    pub overstripe: bool,
    /// Pool to choose from; empty for none.
    pub pool: String,
    /// For a file of several components, each of them in order; all else but them is left open then. Empty for one component.
    pub parts: Vec<HintPart>,
}

/// What is asked of one of several components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintPart {
    /// First byte of the file behind it; `u64::MAX` for no end.
    pub end: u64,
    /// As in [`LayoutHint`].
    pub stripe_count: i32,
    /// As in [`LayoutHint`].
    pub stripe_size: u32,
    /// As in [`LayoutHint`].
    pub start_index: i32,
    /// As in [`LayoutHint`].
    pub osts: Vec<OstIndex>,
    /// As in [`LayoutHint`].
    pub overstripe: bool,
    /// As in [`LayoutHint`].
    pub pool: String,
    /// Whether the bytes lie on the MDT that has the inode, and not on OSTs; then nothing else is asked for. Only the first one can.
    pub on_mdt: bool,
    /// Bytes that it gets at a time, a multiple of 64 KiB ([`Component::extension`](super::Component::extension)); 0 for all at once.
    pub extension: u64,
}

impl HintPart {
    /// A first part that lies on the MDT.
    pub fn mdt(end: u64) -> HintPart {
        HintPart { on_mdt: true, ..HintPart::new(end, LayoutHint::default()) }
    }

    /// A part that ends at `end`, as `hint` has it for a whole file.
    pub fn new(end: u64, hint: LayoutHint) -> HintPart {
        let LayoutHint { stripe_count, stripe_size, start_index, osts, overstripe, pool, .. } = hint;
        HintPart {
            end,
            stripe_count,
            stripe_size,
            start_index,
            osts,
            overstripe,
            pool,
            on_mdt: false,
            extension: 0,
        }
    }

    /// What it asks for.
    pub fn hint(&self) -> LayoutHint {
        LayoutHint {
            stripe_count: self.stripe_count,
            stripe_size: self.stripe_size,
            start_index: self.start_index,
            osts: self.osts.clone(),
            overstripe: self.overstripe,
            pool: self.pool.clone(),
            parts: Vec::new(),
        }
    }
}

impl Default for LayoutHint {
    fn default() -> LayoutHint {
        LayoutHint {
            stripe_count: 0,
            stripe_size: 0,
            start_index: -1,
            osts: Vec::new(),
            overstripe: false,
            pool: String::new(),
            parts: Vec::new(),
        }
    }
}
