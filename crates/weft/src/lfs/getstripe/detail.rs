//! What `lfs getstripe -v` prints besides: numbers of the structures in which Lustre keeps layouts.

use proto::Fid;

use super::line;

/// Of a layout of one component.
const MAGIC: u32 = 0x0BD1_0BD0;
/// The same of one that names a pool.
const MAGIC_POOL: u32 = 0x0BD3_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
/// Bytes of what stands before all components.
const COMPOSITE_BYTES: usize = 32;
/// Bytes of what stands there of each of them.
const ENTRY_BYTES: usize = 48;
const LAYOUT_BYTES: usize = 32;
const POOL_BYTES: usize = 16;
const STRIPE_BYTES: usize = 24;

/// Bytes of a component.
fn bytes(pool: &str, stripes: usize) -> usize {
    LAYOUT_BYTES + if pool.is_empty() { 0 } else { POOL_BYTES } + stripes * STRIPE_BYTES
}

/// What is printed first of a component of the file `fid`.
pub(super) fn component(text: &mut String, indent: &str, pool: &str, fid: Fid, yaml: bool) {
    let magic = if pool.is_empty() { MAGIC } else { MAGIC_POOL };
    line(text, format_args!("{indent}lmm_magic:         0x{magic:08X}"));
    line(text, format_args!("{indent}lmm_seq:           {:#x}", fid.seq));
    line(text, format_args!("{indent}lmm_object_id:     {:#x}", fid.oid));
    let shown = fid.to_string();
    let shown = if yaml { shown.trim_matches(['[', ']']) } else { &shown };
    line(text, format_args!("{indent}lmm_fid:           {shown}"));
}

/// Places of components, each with its pool and its stripes.
pub(super) struct Places(Vec<(usize, usize)>);

impl Places {
    pub(super) fn of<'a>(parts: impl ExactSizeIterator<Item = (&'a str, usize)>) -> Places {
        let mut at = COMPOSITE_BYTES + parts.len() * ENTRY_BYTES;
        let place = |(pool, stripes)| {
            let (start, len) = (at, bytes(pool, stripes));
            at += len;
            (start, len)
        };
        Places(parts.map(place).collect())
    }

    /// What is printed before all components; `flags` is what it says of its flags.
    pub(super) fn header(&self, text: &mut String, flags: &str) {
        let size = self.0.last().map_or(COMPOSITE_BYTES, |(start, len)| start + len);
        line(text, format_args!("composite_header:"));
        line(text, format_args!("  lcm_magic:         0x{MAGIC_COMPOSITE:08X}"));
        line(text, format_args!("  lcm_size:          {size}"));
        line(text, format_args!("  lcm_flags:         {flags}"));
    }

    /// What is printed last of component `number`, before its own layout.
    pub(super) fn entry(&self, text: &mut String, number: usize) {
        let Some((start, len)) = self.0.get(number) else { return };
        line(text, format_args!("    lcme_offset:         {start}"));
        line(text, format_args!("    lcme_size:           {len}"));
        line(text, format_args!("    sub_layout:"));
    }
}
