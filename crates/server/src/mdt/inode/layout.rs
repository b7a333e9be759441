//! Layouts and hints on disk. Specified in `docs/disk-mdt.md#layouts`; how they travel is another matter.

use bytes::Bytes;
use proto::layout::{Component, HintPart, LayoutHint, Pattern};
use proto::limits::{COMPONENTS_MAX, STRIPES_MAX};
use proto::wire::{Reader, put_framed};
use proto::{DataTarget, Fid, Layout, MdtIndex, OstIndex};

/// Version of the format of a layout.
const LAYOUT_FORMAT: u8 = 1;
/// Version of the format of a hint.
const HINT_FORMAT: u8 = 1;

/// Several stripes may share a target.
const FLAG_OVERSTRIPED: u8 = 1 << 0;
/// A part of a hint: the bytes lie on the MDT.
const FLAG_ON_MDT: u8 = 1 << 1;

const TARGET_OST: u8 = 1;
const TARGET_MDT: u8 = 2;

/// Appends a layout.
pub(super) fn put_layout(out: &mut Vec<u8>, layout: &Layout) {
    out.push(LAYOUT_FORMAT);
    out.extend_from_slice(&layout.generation.to_le_bytes());
    out.extend_from_slice(&(layout.components.len() as u16).to_le_bytes());
    for component in &layout.components {
        put_framed(out, |out| put_component(out, component));
    }
}

fn put_component(out: &mut Vec<u8>, component: &Component) {
    out.extend_from_slice(&component.id.to_key());
    out.extend_from_slice(&component.start.to_le_bytes());
    out.extend_from_slice(&component.end.to_le_bytes());
    out.extend_from_slice(&component.pattern_number().to_le_bytes());
    out.extend_from_slice(&component.stripe_size.to_le_bytes());
    out.push(if component.overstriped { FLAG_OVERSTRIPED } else { 0 });
    out.extend_from_slice(&(component.targets.len() as u16).to_le_bytes());
    for target in &component.targets {
        let (kind, index) = match target {
            DataTarget::Ost(index) => (TARGET_OST, index.0),
            DataTarget::Mdt(index) => (TARGET_MDT, index.0),
        };
        out.push(kind);
        out.extend_from_slice(&index.to_le_bytes());
    }
    put_text(out, &component.pool);
    if let Some(wanted) = &component.wanted {
        put_hint(out, wanted);
    }
    if component.extension > 0 {
        if component.wanted.is_some() {
            // A hint without parts ends where they are counted.
            out.extend_from_slice(&0_u16.to_le_bytes());
        }
        out.extend_from_slice(&component.extension.to_le_bytes());
    }
}

/// The layout in a record; `None` if it is none of this format.
pub(super) fn take_layout(record: Bytes) -> Option<Layout> {
    let mut from = Reader::new(record);
    if from.take::<u8>().ok()? != LAYOUT_FORMAT {
        return None;
    }
    let generation = from.take().ok()?;
    let count = usize::from(from.take::<u16>().ok()?);
    if count > COMPONENTS_MAX {
        return None;
    }
    let components =
        (0..count).map(|_| take_component(&mut from.take_framed().ok()?)).collect::<Option<_>>()?;
    Some(Layout { generation, components }).filter(Layout::is_sane)
}

fn take_component(from: &mut Reader) -> Option<Component> {
    let id = Fid::from_key(&from.take_array::<16>().ok()?)?;
    let (start, end) = (from.take().ok()?, from.take().ok()?);
    let pattern = Pattern::from_u32(from.take().ok()?);
    let stripe_size = from.take().ok()?;
    let flags = from.take::<u8>().ok()?;
    let count = usize::from(from.take::<u16>().ok()?);
    if count > STRIPES_MAX {
        return None;
    }
    let targets = (0..count).map(|_| take_target(from)).collect::<Option<_>>()?;
    let overstriped = flags & FLAG_OVERSTRIPED != 0;
    let pool = take_text(from)?;
    let wanted = match pattern {
        pattern if pattern.has_wish() => Some(Box::new(take_hint_from(from)?)),
        _ => None,
    };
    // What is shorter is of a version that knows none, or damaged in what a newer one has added.
    let extension = if from.is_empty() { 0 } else { from.take().ok()? };
    Some(Component { id, start, end, pattern, stripe_size, overstriped, targets, pool, wanted, extension })
}

fn take_target(from: &mut Reader) -> Option<DataTarget> {
    match (from.take::<u8>().ok()?, from.take().ok()?) {
        (TARGET_OST, index) => Some(DataTarget::Ost(OstIndex(index))),
        (TARGET_MDT, index) => Some(DataTarget::Mdt(MdtIndex(index))),
        _ => None,
    }
}

/// Appends what a directory says of new files.
pub(super) fn put_hint(out: &mut Vec<u8>, hint: &LayoutHint) {
    out.push(HINT_FORMAT);
    put_hint_values(out, hint, 0);
    if !hint.parts.is_empty() {
        out.extend_from_slice(&(hint.parts.len() as u16).to_le_bytes());
        for part in &hint.parts {
            out.extend_from_slice(&part.end.to_le_bytes());
            put_hint_values(out, &part.hint(), if part.on_mdt { FLAG_ON_MDT } else { 0 });
        }
        if hint.parts.iter().any(|part| part.extension > 0) {
            hint.parts.iter().for_each(|part| out.extend_from_slice(&part.extension.to_le_bytes()));
        }
    }
}

fn put_hint_values(out: &mut Vec<u8>, hint: &LayoutHint, flags: u8) {
    out.extend_from_slice(&hint.stripe_count.to_le_bytes());
    out.extend_from_slice(&hint.stripe_size.to_le_bytes());
    out.extend_from_slice(&hint.start_index.to_le_bytes());
    out.push(flags | if hint.overstripe { FLAG_OVERSTRIPED } else { 0 });
    out.extend_from_slice(&(hint.osts.len() as u16).to_le_bytes());
    hint.osts.iter().for_each(|ost| out.extend_from_slice(&ost.0.to_le_bytes()));
    put_text(out, &hint.pool);
}

/// The hint in a record; `None` if it is none of this format.
pub(super) fn take_hint(record: Bytes) -> Option<LayoutHint> {
    take_hint_from(&mut Reader::new(record))
}

fn take_hint_from(from: &mut Reader) -> Option<LayoutHint> {
    if from.take::<u8>().ok()? != HINT_FORMAT {
        return None;
    }
    let (mut hint, _) = take_hint_values(from)?;
    if from.is_empty() {
        return Some(hint);
    }
    let count = usize::from(from.take::<u16>().ok()?);
    if count > COMPONENTS_MAX {
        return None;
    }
    let part = |from: &mut Reader| {
        let (end, (hint, flags)) = (from.take().ok()?, take_hint_values(from)?);
        Some(HintPart { on_mdt: flags & FLAG_ON_MDT != 0, ..HintPart::new(end, hint) })
    };
    hint.parts = (0..count).map(|_| part(from)).collect::<Option<_>>()?;
    if count > 0 && !from.is_empty() {
        for part in &mut hint.parts {
            part.extension = from.take().ok()?;
        }
    }
    Some(hint)
}

/// The values, and the flags that say more of a part.
fn take_hint_values(from: &mut Reader) -> Option<(LayoutHint, u8)> {
    let (stripe_count, stripe_size) = (from.take().ok()?, from.take().ok()?);
    let (start_index, flags) = (from.take().ok()?, from.take::<u8>().ok()?);
    let count = usize::from(from.take::<u16>().ok()?);
    if count > STRIPES_MAX {
        return None;
    }
    let osts = (0..count).map(|_| from.take().ok()).collect::<Option<_>>()?;
    let overstripe = flags & FLAG_OVERSTRIPED != 0;
    let (pool, parts) = (take_text(from)?, Vec::new());
    Some((LayoutHint { stripe_count, stripe_size, start_index, osts, overstripe, pool, parts }, flags))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn take_text(from: &mut Reader) -> Option<String> {
    let len = usize::from(from.take::<u16>().ok()?);
    String::from_utf8(from.take_bytes(len).ok()?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let id = |oid| Fid { seq: 0x2_0000_0400, oid, ver: 0 };
        let inline = Component::on_mdt(id(1), 65_536, MdtIndex(0));
        let striped = Component {
            start: 65_536,
            overstriped: true,
            pool: "flash".into(),
            ..Component::striped(id(2), 1 << 20, [3, 1, 3].map(OstIndex))
        };
        Layout { generation: 7, components: [inline, striped].into_iter().collect() }
    }

    /// The bytes are pinned: targets that were written before have to be read.
    #[test]
    fn a_layout_has_these_bytes() {
        let mut record = Vec::new();
        put_layout(&mut record, &layout());
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        let head = "01 07000000 0200";
        let inline = "32000000 0000000200000400 00000001 00000000 0000000000000000 0000010000000000 00010000 00000100 \
                      00 0100 0200000000 0000";
        let striped = "41000000 0000000200000400 00000002 00000000 0000010000000000 ffffffffffffffff 01000000 00001000 \
                       01 0300 0103000000 0101000000 0103000000 0500 666c617368";
        assert_eq!(hex, [head, inline, striped].concat().replace(' ', ""));
        assert_eq!(take_layout(record.into()), Some(layout()));
    }

    #[test]
    fn a_hint_gives_itself_back() {
        let osts = [9, 4].map(OstIndex).to_vec();
        let hint =
            LayoutHint { stripe_count: -2, start_index: 3, osts, overstripe: true, ..LayoutHint::default() };
        let mut record = Vec::new();
        put_hint(&mut record, &hint);
        assert_eq!(take_hint(record.clone().into()), Some(hint));
        for len in 0..record.len() {
            assert_eq!(take_hint(record[..len].to_vec().into()), None, "{len}");
        }
    }

    #[test]
    fn components_without_objects_and_hints_with_parts_give_themselves_back() {
        let part = HintPart::new(1 << 20, LayoutHint { stripe_count: -1, ..LayoutHint::default() });
        let extending = HintPart { extension: 1 << 26, ..part.clone() };
        let hint =
            LayoutHint { parts: vec![HintPart::mdt(65_536), part, extending], ..LayoutHint::default() };
        let mut record = Vec::new();
        put_hint(&mut record, &hint);
        assert_eq!(take_hint(record.into()), Some(hint));
        let first = layout().components[0].id;
        let wanted = LayoutHint { stripe_size: 65_536, stripe_count: 4, ..LayoutHint::default() };
        let mut grows = layout();
        let extension = 1 << 26;
        (grows.components[1].end, grows.components[1].extension) = (1 << 30, extension);
        let space = Component::without_objects(first, (1 << 30, 1 << 40), Some(wanted));
        grows.components.push(Component { extension, ..space });
        grows.components.push(Component::without_objects(first, (1 << 40, u64::MAX), None));
        let mut record = Vec::new();
        put_layout(&mut record, &grows);
        assert_eq!(take_layout(record.clone().into()), Some(grows));
        for len in 0..record.len() {
            assert_eq!(take_layout(record[..len].to_vec().into()), None, "{len}");
        }
    }

    #[test]
    fn what_a_newer_version_added_is_skipped_and_damage_is_refused() {
        let mut record = Vec::new();
        put_layout(&mut record, &layout());
        for len in 0..record.len() {
            assert_eq!(take_layout(record[..len].to_vec().into()), None, "{len}");
        }
        // One byte more in the first component, behind how it extends.
        let mut longer = record.clone();
        let (len, end) = (7, 11 + 0x32);
        longer[len] += 9;
        longer.splice(end..end, [0, 0, 0, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(take_layout(longer.into()), Some(layout()));
        let mut other = record;
        other[0] = 2;
        assert_eq!(take_layout(other.into()), None);
    }
}
