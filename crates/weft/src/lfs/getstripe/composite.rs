//! Layouts of several components, as Lustre prints them.

use fuse::control::{ComponentLayout, FileLayout, HintPart};

use super::detail::{self, Places};
use super::{Fields, NOTHING, Style, line};

/// The one thing that is printed of each component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// How many there are.
    Count,
    /// Its id.
    Id,
    /// Where it starts.
    Start,
    /// Where it ends.
    End,
    /// Its flags.
    Flags,
    /// By how much it extends another one.
    Extension,
}

/// Whether the components are what is to be printed; otherwise a file is shown like its last one that has objects.
pub(super) fn is_asked(layout: &FileLayout, style: Style) -> bool {
    let is_whole = style.fields == Fields::ALL || style.fields.objects;
    style.composite.is_some() || style.id > 0 || !layout.components.is_empty() && is_whole
}

fn end(end: u64) -> String {
    if end == u64::MAX { "EOF".to_owned() } else { end.to_string() }
}

/// How data is laid out.
pub(super) struct Pattern {
    pub(super) overstriped: bool,
    pub(super) on_mdt: bool,
    pub(super) released: bool,
}

impl Pattern {
    /// Lustre's name of it.
    pub(super) fn name(self) -> &'static str {
        let Pattern { overstriped, on_mdt, released } = self;
        match (overstriped, on_mdt, released) {
            (_, true, _) => "mdt",
            (true, false, false) => "raid0,overstriped",
            (false, false, false) => "raid0",
            (true, false, true) => "raid0,overstriped,released",
            (false, false, true) => "raid0,released",
        }
    }
}

fn flags(component: &ComponentLayout) -> &'static str {
    match (component.extension > 0, component.id.is_some()) {
        (true, _) => "extension",
        (false, true) => "init",
        (false, false) => "0",
    }
}

/// The text for a file.
pub(super) fn file(layout: &FileLayout, style: Style) -> String {
    let mut text = String::new();
    if style.composite == Some(Value::Count) {
        line(&mut text, format_args!("{}", layout.components.len()));
        return text;
    }
    let whole = style.composite.is_none() && style.fields == Fields::ALL;
    let parts = layout.components.iter().map(|part| (part.pool.as_str(), part.osts.len()));
    let places = style.detail.filter(|_| whole).map(|_| Places::of(parts));
    if whole {
        header(&mut text, layout.generation, layout.components.len(), places.as_ref().map(|at| (at, "0")));
    }
    // Without an id it is the first one that has it.
    let extending = layout.components.iter().position(|component| component.extension > 0);
    let extending = extending.filter(|_| style.composite == Some(Value::Extension) && style.id == 0);
    let only = extending.map_or(style.id, |at| at as u32 + 1);
    for (id, component) in (1..).zip(&layout.components) {
        if only != 0 && only != id {
            continue;
        }
        let value = match style.composite {
            Some(Value::Id) => Some(id.to_string()),
            Some(Value::Start) => Some(component.start.to_string()),
            Some(Value::End) => Some(end(component.end)),
            Some(Value::Flags) => Some(flags(component).to_owned()),
            Some(Value::Extension) => Some(component.extension.to_string()),
            Some(Value::Count) | None => None,
        };
        if let Some(value) = value {
            line(&mut text, format_args!("{value}"));
            continue;
        }
        if whole {
            line(&mut text, format_args!("{}lcme_id:             {id}", bullet(places.as_ref())));
            line(&mut text, format_args!("    lcme_mirror_id:      0"));
            line(&mut text, format_args!("    lcme_flags:          {}", flags(component)));
            line(&mut text, format_args!("    lcme_extent.e_start: {}", component.start));
            line(&mut text, format_args!("    lcme_extent.e_end:   {}", end(component.end)));
            places.iter().for_each(|places| places.entry(&mut text, id as usize - 1));
        }
        text += &of_component(layout, component, style);
        if whole {
            text.push('\n');
        }
    }
    text
}

/// What is printed before the components; with where they are, and the flags of all, in detail.
fn header(text: &mut String, generation: u32, count: usize, detail: Option<(&Places, &str)>) {
    if let Some((places, flags)) = detail {
        places.header(text, flags);
    }
    line(text, format_args!("  lcm_layout_gen:    {generation}"));
    line(text, format_args!("  lcm_mirror_count:  1"));
    line(text, format_args!("  lcm_entry_count:   {count}"));
    if detail.is_some() {
        line(text, format_args!("components:"));
    }
}

/// What stands before the id of a component.
fn bullet(places: Option<&Places>) -> &'static str {
    if places.is_some() { "  - " } else { "    " }
}

fn of_component(layout: &FileLayout, component: &ComponentLayout, style: Style) -> String {
    let mut text = String::new();
    if let Some(fid) = style.detail {
        detail::component(&mut text, "      ", &component.pool, fid, style.yaml);
    }
    let Fields { count, size, pattern: shape, generation, offset, pool, objects } = style.fields;
    // A layout has one generation; a component that has no objects has not changed.
    let of_component = if component.id.is_some() && !component.on_mdt { layout.generation } else { 0 };
    let values = [
        (count, "lmm_stripe_count:  ", component.stripe_count.to_string()),
        match component.extension {
            0 => (size, "lmm_stripe_size:   ", component.stripe_size.to_string()),
            extension => (size, "lmm_extension_size: ", extension.to_string()),
        },
        (
            shape,
            "lmm_pattern:       ",
            Pattern {
                overstriped: component.overstriped,
                on_mdt: component.on_mdt,
                released: component.released,
            }
            .name()
            .to_owned(),
        ),
        (generation, "lmm_layout_gen:    ", of_component.to_string()),
        (offset, "lmm_stripe_offset: ", first(component).to_string()),
        (pool && !component.pool.is_empty(), "lmm_pool:          ", component.pool.clone()),
    ];
    let single = style.fields.is_single();
    for (_, name, value) in values.into_iter().filter(|(wanted, ..)| *wanted) {
        if single {
            line(&mut text, format_args!("{value}"));
        } else {
            line(&mut text, format_args!("      {name}{value}"));
        }
    }
    if objects
        && !component.on_mdt
        && let Some(id) = &component.id
    {
        if style.fields != (Fields { objects: true, ..NOTHING }) {
            line(&mut text, format_args!("      lmm_objects:"));
        }
        let shown = (0..).zip(&component.osts);
        for (stripe, ost) in shown.filter(|(_, ost)| style.only.is_none_or(|only| only == **ost)) {
            line(&mut text, format_args!("      - {stripe}: {{ l_ost_idx: {ost}, l_fid: {id} }}"));
        }
    }
    text
}

/// The bytes of a stripe unit: of data on an MDT all there are.
fn size_of(part: &HintPart) -> u64 {
    if part.on_mdt { part.end } else { part.hint.stripe_size.into() }
}

/// What Lustre prints as the first target: 0 of data on an MDT.
fn first(component: &ComponentLayout) -> i32 {
    if component.on_mdt { 0 } else { component.start_index }
}

/// The parts of a layout as Lustre has them, each with where it starts: what extends itself is two.
fn shown(parts: &[HintPart]) -> Vec<(u64, HintPart)> {
    let mut all = Vec::new();
    let mut start = 0;
    for part in parts {
        let mut part = part.clone();
        if part.extension > 0 {
            // Only the first one has bytes from the beginning.
            let end = if start == 0 { part.extension.min(part.end) } else { start };
            all.push((start, HintPart { end, extension: 0, ..part.clone() }));
            start = end;
            part.extension = if end == part.end { 0 } else { part.extension };
        }
        let end = part.end;
        if start < end {
            all.push((start, part));
        }
        start = end;
    }
    all
}

/// The text for a directory whose new files have `parts`.
pub(super) fn directory(parts: &[HintPart], style: Style) -> String {
    let parts = &shown(parts);
    let mut text = String::new();
    let whole = style.composite.is_none() && style.fields == Fields::ALL;
    if style.composite == Some(Value::Count) {
        line(&mut text, format_args!("{}", parts.len()));
        return text;
    }
    let sizes = parts.iter().map(|(_, part)| (part.hint.pool.as_str(), part.hint.osts.len()));
    let places = style.detail.filter(|_| whole).map(|_| Places::of(sizes));
    if whole {
        header(&mut text, 0, parts.len(), places.as_ref().map(|at| (at, "")));
    }
    for (number, (start, part)) in parts.iter().enumerate() {
        let hint = &part.hint;
        let flags = if part.extension > 0 { "extension" } else { "0" };
        match style.composite {
            Some(Value::Start) => line(&mut text, format_args!("{start}")),
            Some(Value::End) => line(&mut text, format_args!("{}", end(part.end))),
            Some(Value::Id) => line(&mut text, format_args!("N/A")),
            Some(Value::Flags) => line(&mut text, format_args!("{flags}")),
            Some(Value::Extension) => line(&mut text, format_args!("{}", part.extension)),
            Some(Value::Count) => {}
            None => {
                if whole {
                    line(&mut text, format_args!("{}lcme_id:             N/A", bullet(places.as_ref())));
                    line(&mut text, format_args!("    lcme_mirror_id:      N/A"));
                    line(&mut text, format_args!("    lcme_flags:          {flags}"));
                    line(&mut text, format_args!("    lcme_extent.e_start: {start}"));
                    line(&mut text, format_args!("    lcme_extent.e_end:   {}", end(part.end)));
                    places.iter().for_each(|places| places.entry(&mut text, number));
                }
                let values = [
                    (style.fields.count, "stripe_count:  ", hint.stripe_count.to_string()),
                    match part.extension {
                        0 => (style.fields.size, "stripe_size:   ", size_of(part).to_string()),
                        extension => (style.fields.size, "extension_size: ", extension.to_string()),
                    },
                    (
                        style.fields.pattern,
                        "pattern:       ",
                        Pattern { overstriped: hint.overstripe, on_mdt: part.on_mdt, released: false }
                            .name()
                            .to_owned(),
                    ),
                    (style.fields.offset, "stripe_offset: ", hint.start_index.to_string()),
                ];
                let single = style.fields.is_single();
                let shown = values.into_iter().filter(|(wanted, ..)| *wanted);
                let values: Vec<String> = shown
                    .map(|(_, name, value)| if single { value } else { format!("{name}{value}") })
                    .collect();
                let indent = if whole { "      " } else { "" };
                line(&mut text, format_args!("{indent}{}", values.join("       ")));
                if whole {
                    text.push('\n');
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style {
        fields: Fields::ALL,
        yaml: false,
        deep: true,
        only: None,
        composite: None,
        id: 0,
        detail: None,
    };

    fn layout() -> FileLayout {
        let first = ComponentLayout {
            start: 0,
            end: 1 << 20,
            id: Some("[0x200000401:0x3:0x0]".into()),
            stripe_count: 1,
            stripe_size: 1 << 20,
            start_index: 5,
            overstriped: false,
            osts: vec![5],
            pool: String::new(),
            on_mdt: false,
            released: false,
            extension: 0,
        };
        let second = ComponentLayout {
            start: 1 << 20,
            end: u64::MAX,
            id: None,
            stripe_count: -1,
            start_index: -1,
            osts: Vec::new(),
            ..first.clone()
        };
        FileLayout {
            id: "[0x200000401:0x3:0x0]".into(),
            generation: 2,
            stripe_size: 1 << 20,
            overstriped: false,
            osts: vec![5],
            pool: String::new(),
            on_mdt: false,
            released: None,
            components: vec![first, second],
        }
    }

    #[test]
    fn a_file_of_two_components() {
        let expected = [
            "  lcm_layout_gen:    2",
            "  lcm_mirror_count:  1",
            "  lcm_entry_count:   2",
            "    lcme_id:             1",
            "    lcme_mirror_id:      0",
            "    lcme_flags:          init",
            "    lcme_extent.e_start: 0",
            "    lcme_extent.e_end:   1048576",
            "      lmm_stripe_count:  1",
            "      lmm_stripe_size:   1048576",
            "      lmm_pattern:       raid0",
            "      lmm_layout_gen:    2",
            "      lmm_stripe_offset: 5",
            "      lmm_objects:",
            "      - 0: { l_ost_idx: 5, l_fid: [0x200000401:0x3:0x0] }",
            "",
            "    lcme_id:             2",
            "    lcme_mirror_id:      0",
            "    lcme_flags:          0",
            "    lcme_extent.e_start: 1048576",
            "    lcme_extent.e_end:   EOF",
            "      lmm_stripe_count:  -1",
            "      lmm_stripe_size:   1048576",
            "      lmm_pattern:       raid0",
            "      lmm_layout_gen:    0",
            "      lmm_stripe_offset: -1",
            "",
            "",
        ];
        assert_eq!(file(&layout(), PLAIN), expected.join("\n"));
    }

    /// The numbers are those of the example in Lustre's source: two components of one and two stripes.
    #[test]
    fn a_file_of_two_components_with_its_details() {
        let mut layout = layout();
        layout.components[1] = ComponentLayout {
            id: Some("[0x200000401:0x4:0x0]".into()),
            stripe_count: 2,
            start_index: 1,
            osts: vec![1, 0],
            ..layout.components[1].clone()
        };
        let expected = [
            "composite_header:",
            "  lcm_magic:         0x0BD60BD0",
            "  lcm_size:          264",
            "  lcm_flags:         0",
            "  lcm_layout_gen:    2",
            "  lcm_mirror_count:  1",
            "  lcm_entry_count:   2",
            "components:",
            "  - lcme_id:             1",
            "    lcme_mirror_id:      0",
            "    lcme_flags:          init",
            "    lcme_extent.e_start: 0",
            "    lcme_extent.e_end:   1048576",
            "    lcme_offset:         128",
            "    lcme_size:           56",
            "    sub_layout:",
            "      lmm_magic:         0x0BD10BD0",
            "      lmm_seq:           0x200000401",
            "      lmm_object_id:     0x1",
            "      lmm_fid:           [0x200000401:0x1:0x0]",
            "      lmm_stripe_count:  1",
            "      lmm_stripe_size:   1048576",
            "      lmm_pattern:       raid0",
            "      lmm_layout_gen:    2",
            "      lmm_stripe_offset: 5",
            "      lmm_objects:",
            "      - 0: { l_ost_idx: 5, l_fid: [0x200000401:0x3:0x0] }",
            "",
            "  - lcme_id:             2",
            "    lcme_mirror_id:      0",
            "    lcme_flags:          init",
            "    lcme_extent.e_start: 1048576",
            "    lcme_extent.e_end:   EOF",
            "    lcme_offset:         184",
            "    lcme_size:           80",
            "    sub_layout:",
            "      lmm_magic:         0x0BD10BD0",
            "      lmm_seq:           0x200000401",
            "      lmm_object_id:     0x1",
            "      lmm_fid:           [0x200000401:0x1:0x0]",
            "      lmm_stripe_count:  2",
            "      lmm_stripe_size:   1048576",
            "      lmm_pattern:       raid0",
            "      lmm_layout_gen:    2",
            "      lmm_stripe_offset: 1",
            "      lmm_objects:",
            "      - 0: { l_ost_idx: 1, l_fid: [0x200000401:0x4:0x0] }",
            "      - 1: { l_ost_idx: 0, l_fid: [0x200000401:0x4:0x0] }",
            "",
            "",
        ];
        let detail = Some(proto::Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 });
        assert_eq!(file(&layout, Style { detail, ..PLAIN }), expected.join("\n"));
    }

    #[test]
    fn a_directory_of_two_components_with_their_details() {
        let hint = |pool: &str| fuse::control::Hint {
            stripe_count: 1,
            stripe_size: 1 << 20,
            pool: pool.into(),
            ..Default::default()
        };
        let parts = [
            HintPart { end: 1 << 20, hint: hint("flash"), on_mdt: false, extension: 0 },
            HintPart { end: u64::MAX, hint: hint(""), on_mdt: false, extension: 0 },
        ];
        let text = directory(&parts, Style { detail: Some(proto::Fid::ZERO), ..PLAIN });
        let head = [
            "composite_header:",
            "  lcm_magic:         0x0BD60BD0",
            "  lcm_size:          208",
            "  lcm_flags:         ",
            "  lcm_layout_gen:    0",
            "  lcm_mirror_count:  1",
            "  lcm_entry_count:   2",
            "components:",
            "  - lcme_id:             N/A",
            "    lcme_mirror_id:      N/A",
            "    lcme_flags:          0",
            "    lcme_extent.e_start: 0",
            "    lcme_extent.e_end:   1048576",
            "    lcme_offset:         128",
            "    lcme_size:           48",
            "    sub_layout:",
            "      stripe_count:  1 ",
        ];
        assert!(text.starts_with(&head.join("\n")), "{text}");
        assert!(text.contains("    lcme_offset:         176\n    lcme_size:           32\n"), "{text}");
    }

    #[test]
    fn a_file_whose_first_bytes_lie_on_the_mdt() {
        let mut layout = layout();
        layout.components[0] = ComponentLayout {
            end: 65_536,
            stripe_count: 0,
            stripe_size: 65_536,
            start_index: -1,
            osts: Vec::new(),
            on_mdt: true,
            released: false,
            ..layout.components[0].clone()
        };
        let text = file(&layout, Style { id: 1, ..PLAIN });
        let expected = [
            "    lcme_extent.e_end:   65536",
            "      lmm_stripe_count:  0",
            "      lmm_stripe_size:   65536",
            "      lmm_pattern:       mdt",
            "      lmm_layout_gen:    0",
            "      lmm_stripe_offset: 0",
            "",
        ];
        assert!(text.contains(&expected.join("\n")), "{text}");
        assert!(!text.contains("lmm_objects"), "{text}");
    }

    /// The values are those of the example in Lustre's manual.
    #[test]
    fn what_extends_itself_has_two_components() {
        let mut layout = layout();
        let first = ComponentLayout { end: 64 << 20, ..layout.components[0].clone() };
        let space = ComponentLayout { stripe_count: 0, ..layout.components[1].clone() };
        let empty = ComponentLayout { start: 1 << 30, end: 1 << 30, stripe_count: 1, ..space.clone() };
        layout.components = vec![
            first,
            ComponentLayout { start: 64 << 20, end: 1 << 30, extension: 64 << 20, ..space.clone() },
            empty,
            ComponentLayout { start: 1 << 30, extension: 256 << 20, ..space },
        ];
        let get = |composite, id| file(&layout, Style { composite, id, ..PLAIN });
        assert_eq!(get(Some(Value::Flags), 0), "init\nextension\n0\nextension\n");
        assert_eq!(
            (get(Some(Value::Extension), 0), get(Some(Value::Extension), 4)),
            ("67108864\n".into(), "268435456\n".into())
        );
        let expected = [
            "    lcme_id:             2",
            "    lcme_mirror_id:      0",
            "    lcme_flags:          extension",
            "    lcme_extent.e_start: 67108864",
            "    lcme_extent.e_end:   1073741824",
            "      lmm_stripe_count:  0",
            "      lmm_extension_size: 67108864",
            "      lmm_pattern:       raid0",
            "      lmm_layout_gen:    0",
            "      lmm_stripe_offset: -1",
            "",
        ];
        let text = get(None, 2);
        assert!(text.contains(&expected.join("\n")), "{text}");
        let hint = fuse::control::Hint { stripe_count: 1, stripe_size: 1 << 20, ..Default::default() };
        let part = |end, extension| HintPart { end, hint: hint.clone(), on_mdt: false, extension };
        let parts = [part(1 << 30, 64 << 20), part(u64::MAX, 256 << 20)];
        let of = |composite| directory(&parts, Style { composite: Some(composite), ..PLAIN });
        assert_eq!(of(Value::Flags), "0\nextension\n0\nextension\n");
        assert_eq!(of(Value::Start), "0\n67108864\n1073741824\n1073741824\n");
        assert_eq!(of(Value::End), "67108864\n1073741824\n1073741824\nEOF\n");
        let text = directory(&parts, PLAIN);
        let line = "      stripe_count:  1       extension_size: 67108864       pattern:       raid0       stripe_offset: -1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn single_values() {
        let get = |composite, id| file(&layout(), Style { composite, id, ..PLAIN });
        assert_eq!(get(Some(Value::Id), 0), "1\n2\n");
        assert_eq!(get(Some(Value::End), 0), "1048576\nEOF\n");
        assert_eq!(get(Some(Value::Start), 2), "1048576\n");
        assert_eq!(get(Some(Value::Flags), 1), "init\n");
        assert_eq!(get(Some(Value::Count), 0), "2\n");
        let count = Style { fields: Fields { count: true, ..NOTHING }, id: 2, ..PLAIN };
        assert_eq!(file(&layout(), count), "-1\n");
        assert!(is_asked(&layout(), count) && !is_asked(&layout(), Style { id: 0, ..count }));
    }
}
