//! The arithmetic of layouts.

use rt::sim::Rng;

use super::*;
use crate::wire::{Reader, Wire};

const ID: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
const TAIL: Fid = Fid { seq: 0x2_0000_0400, oid: 2, ver: 0 };

fn layout(stripe_size: u32, count: u32) -> Layout {
    Component::striped(ID, stripe_size, (0..count).map(OstIndex)).into()
}

/// One object up to `end`, and three behind it.
fn composite(end: u64) -> Layout {
    let head = Component { end, ..Component::striped(ID, 65_536, [OstIndex(4)]) };
    let tail = Component { start: end, ..Component::striped(TAIL, 131_072, (0..3).map(OstIndex)) };
    Layout { generation: 1, components: [head, tail].into_iter().collect() }
}

fn object(layout: Fid, stripe: u32) -> ObjectId {
    ObjectId { layout, stripe }
}

/// FEATURES L1: the mapping equals the formula, and the objects' sizes sum to the file's.
#[test]
fn mapping_matches_the_formula() {
    let mut rng = Rng::new(1);
    for _ in 0..1_000_000 {
        let unit = 65_536 * rng.between(1, 64);
        let count = rng.between(1, 9);
        let l = layout(unit as u32, count as u32);
        let offset = rng.below(1 << 40);
        let (place, object_offset) = l.locate(offset).expect("the layout has no end");
        let stripe = (offset / unit % count) as u32;
        assert_eq!(place, Place { object: object(ID, stripe), target: OstIndex(stripe).into() });
        assert_eq!(object_offset, offset / (unit * count) * unit + offset % unit);
        assert_eq!(l.file_offset(place.object, object_offset), Some(offset));
    }
}

#[test]
fn object_sizes_sum_to_the_file_size() {
    for count in [1, 2, 3, 7] {
        let l = layout(65_536, count);
        for size in [0, 1, 65_535, 65_536, 65_537, 1 << 20, 999_999] {
            let sum: u64 = l.places().map(|place| l.object_size(place.object, size)).sum();
            assert_eq!(sum, size);
            let from = |place: Place| l.file_size_from(place.object, l.object_size(place.object, size));
            assert_eq!(l.places().map(from).max(), Some(size), "{count} stripes, {size} bytes");
            let runs: u64 = l.runs(0, size).map(|run| run.len).sum();
            assert_eq!(runs, size);
        }
    }
}

#[test]
fn components_follow_each_other() {
    let end = 1 << 20;
    let l = composite(end);
    assert!(l.is_sane() && l.is_usable() && l.object_count() == 4);
    let runs: Vec<Run> = l.runs(end - 10, 20).collect();
    assert_eq!(runs.iter().map(|run| run.len).collect::<Vec<_>>(), [10, 10]);
    assert_eq!(runs[0].place, Place { object: object(ID, 0), target: OstIndex(4).into() });
    assert_eq!((runs[0].file_offset, runs[0].object_offset), (end - 10, end - 10));
    // Unit 8 of the file, as if the striping began with the file.
    assert_eq!(runs[1].place, Place { object: object(TAIL, 2), target: OstIndex(2).into() });
    assert_eq!((runs[1].file_offset, runs[1].object_offset), (end, 2 * 131_072));
    for size in [0, 1, end - 1, end, end + 1, 3 << 20] {
        let from = |place: Place| l.file_size_from(place.object, l.object_size(place.object, size));
        assert_eq!(l.places().map(from).max(), Some(size), "{size}");
        for run in l.runs(0, size) {
            let object = run.place.object;
            assert_eq!(l.file_offset(object, run.object_offset), Some(run.file_offset));
            assert!(l.object_size(object, size) >= run.object_offset + run.len, "{size}: {run:?}");
        }
    }
    for run in l.runs(0, 3 << 20) {
        let (start, end) = (run.object_offset, run.object_offset + run.len);
        let back: Vec<_> = l.file_ranges(run.place.object, start..end).collect();
        assert_eq!(back.first().map(|range| range.start), Some(run.file_offset));
        assert_eq!(back.last().map(|range| range.end), Some(run.file_offset + run.len));
    }
    assert_eq!(l.object_size(object(TAIL, 0), end), 0);
    assert_eq!(l.file_offset(object(TAIL, 3), 0), None);
    assert_eq!(l.place(object(Fid::ROOT, 0)), None);
}

#[test]
fn what_cannot_be_a_layout_is_known() {
    let spoilt = |spoil: fn(&mut Layout)| {
        let mut layout = composite(1 << 20);
        spoil(&mut layout);
        layout.is_sane()
    };
    assert!(spoilt(|_| {}));
    assert!(!spoilt(|l| l.components.clear()));
    assert!(!spoilt(|l| l.components[1].start += 1));
    assert!(!spoilt(|l| l.components[1].end -= 1));
    assert!(!spoilt(|l| l.components[0].end = 0));
    assert!(!spoilt(|l| l.components[0].stripe_size = 65_537));
    assert!(!spoilt(|l| l.components[0].targets.clear()));
    let unknown = |l: &mut Layout| {
        l.components[0].pattern = Pattern::Unknown(7);
        l.components[0].targets.clear();
    };
    assert!(spoilt(unknown), "what a newer version made is kept");
    let mut layout = composite(1 << 20);
    unknown(&mut layout);
    assert!(!layout.is_usable());
}

/// One object up to `end`, none yet up to twice that, and never any behind it.
fn growing(end: u64) -> Layout {
    let wanted = LayoutHint { stripe_count: 2, stripe_size: 65_536, ..LayoutHint::default() };
    let pending = Component::without_objects(ID, (end, 2 * end), Some(wanted));
    let nothing = Component::without_objects(ID, (2 * end, u64::MAX), None);
    let head = Component { end, ..Component::striped(ID, 65_536, [OstIndex(4)]) };
    Layout { generation: 0, components: [head, pending, nothing].into_iter().collect() }
}

#[test]
fn components_without_objects_are_left_out() {
    let end = 1 << 20;
    let l = growing(end);
    assert!(l.is_sane() && l.is_usable() && l.is_growing());
    assert_eq!((l.object_count(), l.ids().count(), l.runs(0, 4 * end).map(|run| run.len).sum()), (1, 1, end));
    assert!(l.is_placed(0, end) && !l.is_placed(0, end + 1) && !l.is_placed(end, 1) && l.is_placed(end, 0));
    assert_eq!((l.locate(end), l.locate(3 * end)), (None, None));
    let mut grown = l.clone();
    let tail = Component::striped(TAIL, 65_536, (0..2).map(OstIndex));
    grown.components[1] = Component { start: end, end: 2 * end, ..tail };
    assert!(grown.is_sane() && !grown.is_growing() && !grown.lies_as(&l));
    assert_eq!(grown.runs(end, 2 * end).map(|run| run.len).sum::<u64>(), end);
    let mut spoilt = l.clone();
    spoilt.components[1].wanted = None;
    assert!(!spoilt.is_sane());
    let mut spoilt = l;
    spoilt.components[2].targets.push(OstIndex(1).into());
    assert!(!spoilt.is_sane());
}

#[test]
fn layouts_and_wishes_of_several_components_travel() {
    let layout = growing(1 << 20);
    let mut bytes = Vec::new();
    layout.put(&mut bytes);
    assert_eq!(Reader::new(bytes.into()).take(), Ok(layout));
    let mut layout = growing(1 << 20);
    layout.components.iter_mut().take(2).for_each(|component| component.extension = 1 << 20);
    assert!(layout.is_sane());
    let mut bytes = Vec::new();
    layout.put(&mut bytes);
    assert_eq!(Reader::new(bytes.into()).take(), Ok(layout));
    let part = HintPart::new(1 << 20, LayoutHint { stripe_count: -1, ..LayoutHint::default() });
    let hint = LayoutHint { parts: vec![HintPart { extension: 65_536, ..part }], ..LayoutHint::default() };
    let mut bytes = Vec::new();
    hint.put(&mut bytes);
    assert_eq!(Reader::new(bytes.into()).take(), Ok(hint));
}

#[test]
fn what_extends_takes_over_what_has_no_objects() {
    let end = 1 << 20;
    let mut before = growing(end);
    let wish = before.wish();
    before.components.iter_mut().take(2).for_each(|component| component.extension = 65_536);
    let ends: Vec<(u64, u64)> = before.wish().parts.iter().map(|part| (part.end, part.extension)).collect();
    assert_eq!((ends, wish.parts.len()), (vec![(2 * end, 65_536)], 2), "the two are one part");
    // The same objects hold more of the file: a client that knows less must not take the rest for a hole.
    let mut after = before.clone();
    (after.components[0].end, after.components[1].start) = (end + 65_536, end + 65_536);
    assert!(after.is_sane() && after.ids().eq(before.ids()) && !after.lies_as(&before));
    let spoilt = |spoil: &dyn Fn(&mut Layout)| {
        let mut layout = before.clone();
        spoil(&mut layout);
        !layout.is_sane()
    };
    assert!(spoilt(&|layout| layout.components[0].extension = 131_072));
    assert!(spoilt(&|layout| layout.components.iter_mut().take(2).for_each(|of| of.extension = 1000)));
    assert!(spoilt(&|layout| {
        layout.components.remove(1);
        layout.components[1].start = end;
    }));
}
