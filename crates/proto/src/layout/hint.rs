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
        }
    }
}
