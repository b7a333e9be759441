//! `lfs getstripe`: prints layouts, byte for byte as Lustre does.

mod composite;
mod detail;

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use fuse::control::{self, DirLayout, FileLayout, Hint, LayoutAnswer};
use proto::Fid;

use self::composite::{Pattern, Value};
use crate::failure::Failure;
use crate::lfs::Outcome;

/// Print where files lie, and what new files in directories get.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the stripe count
    #[arg(short = 'c', long)]
    stripe_count: bool,
    /// Only the stripe size
    #[arg(short = 'S', long)]
    stripe_size: bool,
    /// Only the index of the first OST
    #[arg(short = 'i', long, visible_alias = "stripe-offset")]
    stripe_index: bool,
    /// Only the pool
    #[arg(short = 'p', long)]
    pool: bool,
    /// Only the pattern
    #[arg(short = 'L', long)]
    layout: bool,
    /// Only the generation of the layout
    #[arg(short = 'g', long)]
    generation: bool,
    /// Only where each component ends
    #[arg(short = 'E', long)]
    component_end: bool,
    /// Only where each component starts
    #[arg(long)]
    component_start: bool,
    /// Only by how much the first component that extends itself does so, or with `-I2` that one
    #[arg(short = 'z', long, visible_alias = "ext-size")]
    extension_size: bool,
    /// Only the flags of each component
    #[arg(long)]
    component_flags: bool,
    /// Only the number of components
    #[arg(long)]
    component_count: bool,
    /// Only the ids of the components; with `-I2` only that component
    #[arg(short = 'I', long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    component_id: Option<u32>,
    /// Of a directory only itself, not the files in it
    #[arg(short = 'd', long)]
    directory: bool,
    /// Everything below directories
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Only the objects
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Everything, and how Lustre would keep it
    #[arg(short = 'v', long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print YAML
    #[arg(short = 'y', long)]
    yaml: bool,
    /// Only files with objects on this OST, given by its index or name
    #[arg(short = 'O', long, value_name = "OST")]
    obd: Option<String>,
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    count: bool,
    size: bool,
    pattern: bool,
    generation: bool,
    offset: bool,
    pool: bool,
    objects: bool,
}

impl Fields {
    const ALL: Fields = Fields {
        count: true,
        size: true,
        pattern: true,
        generation: true,
        offset: true,
        pool: true,
        objects: true,
    };

    /// Whether the value stands alone, without its name.
    fn is_single(&self) -> bool {
        let fields =
            [self.count, self.size, self.pattern, self.generation, self.offset, self.pool, self.objects];
        fields.iter().filter(|field| **field).count() == 1
    }
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Style {
    fields: Fields,
    yaml: bool,
    /// Whether paths are printed and the files in a directory too.
    deep: bool,
    /// Only files with objects on this OST.
    only: Option<u32>,
    /// What is printed of components; `None` for all of them.
    composite: Option<Value>,
    /// Only the component with this id; 0 for all.
    id: u32,
    /// The file of which details are printed, too.
    detail: Option<Fid>,
}

impl Style {
    /// The same for a file, whose FID is among its details.
    fn of(self, path: &Path) -> io::Result<Style> {
        let detail = match self.detail {
            Some(_) => Some(crate::control::get_text(path, control::FID)?.parse().unwrap_or(Fid::ZERO)),
            None => None,
        };
        Ok(Style { detail, ..self })
    }
}

/// Sequences below this one are Lustre's reserved ones, which are printed as numbers.
const SEQ_FIRST_PRINTED_IN_HEX: u64 = 12;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let style = style(arguments)?;
    for path in &arguments.paths {
        if let Err(error) = show(path, style, arguments.recursive, Named::ByUser) {
            err!("{error}");
            return Err(Failure::new(format!("error: getstripe failed for {}.", path.display())));
        }
    }
    Ok(0)
}

fn style(arguments: &Arguments) -> Result<Style, Failure> {
    let chosen = Fields {
        count: arguments.stripe_count,
        size: arguments.stripe_size,
        pattern: arguments.layout,
        generation: arguments.generation,
        offset: arguments.stripe_index,
        pool: arguments.pool,
        objects: false,
    };
    let none = Fields { objects: false, ..chosen } == NOTHING;
    let fields = match (arguments.quiet, none || arguments.verbose) {
        (true, _) => Fields { objects: true, ..NOTHING },
        (false, true) => Fields::ALL,
        (false, false) => chosen,
    };
    let only = match &arguments.obd {
        None => None,
        Some(text) => Some(ost_index(text).ok_or_else(|| {
            Failure::usage(format!("error: getstripe: '{text}' is neither an index nor a name of an OST"))
        })?),
    };
    let values = [
        (arguments.component_count, Value::Count),
        (arguments.component_end, Value::End),
        (arguments.component_start, Value::Start),
        (arguments.component_flags, Value::Flags),
        (arguments.extension_size, Value::Extension),
        (arguments.component_id == Some(0), Value::Id),
    ];
    let composite = values.into_iter().find(|(asked, _)| *asked).map(|(_, value)| value);
    let id = arguments.component_id.unwrap_or(0);
    let none = none && composite.is_none();
    let deep = (none || arguments.recursive) && !arguments.directory;
    let detail = arguments.verbose.then_some(Fid::ZERO);
    Ok(Style { fields, yaml: arguments.yaml, deep, only, composite, id, detail })
}

const NOTHING: Fields = Fields {
    count: false,
    size: false,
    pattern: false,
    generation: false,
    offset: false,
    pool: false,
    objects: false,
};

/// `3`, `OST0003`, `weft-OST0003_UUID`.
fn ost_index(text: &str) -> Option<u32> {
    let name = text.strip_suffix("_UUID").unwrap_or(text);
    match name.rfind("OST") {
        Some(at) => u32::from_str_radix(&name[at + 3..], 16).ok(),
        None => name.parse().ok(),
    }
}

/// How a path came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// It is an operand.
    ByUser,
    /// It lies in one.
    Within,
}

/// Prints `path`, and what is in it if it is a directory: for `getstripe DIR` one level, with `-r` all.
fn show(path: &Path, style: Style, recursive: bool, named: Named) -> Result<(), String> {
    let error = |error: &io::Error| {
        let number = error.raw_os_error().unwrap_or(0);
        match number {
            libc::ENOTTY => {
                format!("cannot get the layout of {}: Inappropriate ioctl for device (25)", path.display())
            }
            _ => format!("error opening {}: {} ({number})", path.display(), crate::control::describe(error)),
        }
    };
    let metadata = std::fs::symlink_metadata(path).map_err(|e| error(&e))?;
    if !metadata.is_dir() && !metadata.is_file() && named == Named::Within {
        return Ok(());
    }
    match crate::control::get(path, control::LAYOUT) {
        Ok(LayoutAnswer::File(layout)) => {
            let style = style.of(path).map_err(|e| error(&e))?;
            crate::out::print(file(&path.to_string_lossy(), &layout, style));
        }
        Ok(LayoutAnswer::Directory(layout)) => {
            crate::out::print(directory(&path.to_string_lossy(), &layout, style))
        }
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => {
            out!("{} has no stripe info", path.display())
        }
        Err(e) => return Err(error(&e)),
    }
    if metadata.is_dir() && style.deep && (named == Named::ByUser || recursive) {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(|e| error(&e))?;
        entries.sort();
        for entry in entries {
            show(&entry, style, recursive, Named::Within)?;
        }
    }
    Ok(())
}

/// The text for a file; empty if it is not asked for.
fn file(path: &str, layout: &FileLayout, style: Style) -> String {
    let is_on =
        |ost: &u32| layout.osts.contains(ost) || layout.components.iter().any(|c| c.osts.contains(ost));
    if style.only.is_some_and(|ost| !is_on(&ost)) {
        return String::new();
    }
    let mut text = String::new();
    if style.deep && !style.yaml {
        line(&mut text, format_args!("{path}"));
    }
    if composite::is_asked(layout, style) {
        return text + &composite::file(layout, style);
    }
    if let Some(fid) = style.detail {
        detail::component(&mut text, "", &layout.pool, fid, style.yaml);
    }
    let Fields { count, size, pattern, generation, offset, pool, objects } = style.fields;
    let pattern_name = Pattern {
        overstriped: layout.overstriped,
        on_mdt: layout.on_mdt,
        released: layout.released.is_some(),
    }
    .name();
    let first = layout.osts.first().copied().unwrap_or(0);
    let stripes = layout.released.unwrap_or(layout.osts.len() as i32);
    let values = [
        (count, "lmm_stripe_count:  ", stripes.to_string()),
        (size, "lmm_stripe_size:   ", layout.stripe_size.to_string()),
        (pattern, "lmm_pattern:       ", pattern_name.to_owned()),
        (generation, "lmm_layout_gen:    ", layout.generation.to_string()),
        (offset, "lmm_stripe_offset: ", first.to_string()),
        (pool && !layout.pool.is_empty(), "lmm_pool:          ", layout.pool.clone()),
    ];
    for (_, name, value) in values.into_iter().filter(|(wanted, ..)| *wanted) {
        let name = if style.fields.is_single() { "" } else { name };
        line(&mut text, format_args!("{name}{value}"));
    }
    if objects {
        text += &objects_of(layout, style);
    }
    text
}

fn objects_of(layout: &FileLayout, style: Style) -> String {
    let mut text = String::new();
    let id: Fid = layout.id.parse().unwrap_or(Fid::ZERO);
    let shown = layout.osts.iter().filter(|ost| style.only.is_none_or(|only| only == **ost));
    if style.yaml {
        line(&mut text, format_args!("lmm_objects:"));
        for ost in shown {
            line(&mut text, format_args!("      - l_ost_idx: {ost}"));
            line(&mut text, format_args!("        l_fid:     {:#x}:{:#x}:{:#x}", id.seq, id.oid, id.ver));
        }
        return text;
    }
    line(&mut text, format_args!("\tobdidx\t\t objid\t\t objid\t\t group"));
    let mark = if style.only.is_some() { " *" } else { "" };
    for ost in shown {
        let (oid, hex) = (id.oid, format!("{:#x}", id.oid));
        let group =
            if id.seq < SEQ_FIRST_PRINTED_IN_HEX { id.seq.to_string() } else { format!("{:#x}", id.seq) };
        line(&mut text, format_args!("\t{ost:6}\t{oid:14}\t{hex:>13}\t{group:>14}{mark}"));
    }
    text.push('\n');
    text
}

/// The text for a directory; empty if files on one OST are asked for.
fn directory(path: &str, layout: &DirLayout, style: Style) -> String {
    let Fields { count, size, pattern, offset, pool, .. } = style.fields;
    if style.only.is_some() || !(count || size || pattern || offset || pool) {
        return String::new();
    }
    let mut text = String::new();
    if style.deep && !style.yaml {
        line(&mut text, format_args!("{path}"));
    }
    let hint = &layout.effective;
    if !hint.parts.is_empty() {
        return text + &composite::directory(&hint.parts, style);
    }
    let shown_pattern = match &layout.own {
        None => "0",
        Some(Hint { overstripe: true, .. }) => "raid0,overstriped",
        Some(_) => "raid0",
    };
    let values = [
        (count, "stripe_count:  ", hint.stripe_count.to_string()),
        (size, "stripe_size:   ", hint.stripe_size.to_string()),
        (pattern, "pattern:       ", shown_pattern.to_owned()),
        (offset, "stripe_offset: ", hint.start_index.to_string()),
        (pool && !hint.pool.is_empty(), "pool:          ", hint.pool.clone()),
    ];
    let single = style.fields.is_single();
    let values: Vec<String> = values
        .into_iter()
        .filter(|(wanted, ..)| *wanted)
        .map(|(_, name, value)| if single { value } else { format!("{name}{value}") })
        .collect();
    line(&mut text, format_args!("{}", values.join(if style.yaml { "\n" } else { " " })));
    if style.fields.objects {
        if let Some(own) = layout.own.as_ref().filter(|own| !own.osts.is_empty() && !style.yaml) {
            line(&mut text, format_args!("\tobdidx\t\t objid\t\t objid\t\t group"));
            for ost in &own.osts {
                line(&mut text, format_args!("\t{ost:6}\t{:>14}\t{:>13}\t{:>14}", "N/A", "N/A", "N/A"));
            }
        }
        if !style.yaml {
            text.push('\n');
        }
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{arguments}");
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

    fn layout(osts: &[u32]) -> FileLayout {
        FileLayout {
            id: "[0x200000401:0x3:0x0]".into(),
            generation: 0,
            stripe_size: 1 << 20,
            overstriped: false,
            osts: osts.to_vec(),
            pool: String::new(),
            on_mdt: false,
            released: None,
            components: Vec::new(),
        }
    }

    #[test]
    fn a_plain_file() {
        let expected = "/mnt/f\n\
            lmm_stripe_count:  1\n\
            lmm_stripe_size:   1048576\n\
            lmm_pattern:       raid0\n\
            lmm_layout_gen:    0\n\
            lmm_stripe_offset: 5\n\
            \tobdidx\t\t objid\t\t objid\t\t group\n\
            \t     5\t             3\t          0x3\t   0x200000401\n\
            \n";
        assert_eq!(file("/mnt/f", &layout(&[5]), PLAIN), expected);
    }

    #[test]
    fn a_plain_file_with_its_details() {
        let fid = Some(Fid { seq: 0x2_0000_0401, oid: 0x2a, ver: 0 });
        let expected = "/mnt/f\n\
            lmm_magic:         0x0BD10BD0\n\
            lmm_seq:           0x200000401\n\
            lmm_object_id:     0x2a\n\
            lmm_fid:           [0x200000401:0x2a:0x0]\n\
            lmm_stripe_count:  1\n\
            lmm_stripe_size:   1048576\n\
            lmm_pattern:       raid0\n\
            lmm_layout_gen:    0\n\
            lmm_stripe_offset: 5\n\
            \tobdidx\t\t objid\t\t objid\t\t group\n\
            \t     5\t             3\t          0x3\t   0x200000401\n\
            \n";
        let detailed = Style { detail: fid, ..PLAIN };
        assert_eq!(file("/mnt/f", &layout(&[5]), detailed), expected);
        let pooled = FileLayout { pool: "flash".into(), ..layout(&[5]) };
        assert!(file("/f", &pooled, detailed).starts_with("/f\nlmm_magic:         0x0BD30BD0\nlmm_seq:"));
        let yaml = file("/f", &layout(&[5]), Style { yaml: true, ..detailed });
        assert!(yaml.contains("lmm_fid:           0x200000401:0x2a:0x0\nlmm_stripe_count:  1\n"), "{yaml}");
        // Of a directory there are none.
        let effective = Hint { stripe_count: 1, stripe_size: 1 << 20, ..Hint::default() };
        let empty = DirLayout { own: None, effective };
        assert_eq!(directory("/d", &empty, detailed), directory("/d", &empty, PLAIN));
    }

    #[test]
    fn details_are_of_everything() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let read = |line: &str| {
            let line = <Line as clap::Parser>::try_parse_from(line.split(' ')).expect("a line");
            style(&line.arguments).expect("a style")
        };
        assert_eq!(read("g f"), PLAIN);
        let detailed = Style { detail: Some(Fid::ZERO), ..PLAIN };
        assert_eq!((read("g -v f"), read("g -v -c f").fields), (detailed, Fields::ALL));
        assert_eq!(read("g -v -d f"), Style { deep: false, ..detailed });
    }

    #[test]
    fn an_overstriped_file_of_a_pool() {
        let layout = FileLayout { overstriped: true, pool: "flash".into(), ..layout(&[0, 2, 0, 2]) };
        let text = file("/f", &layout, PLAIN);
        assert!(text.contains("lmm_pattern:       raid0,overstriped\n"), "{text}");
        assert!(text.contains("lmm_stripe_offset: 0\nlmm_pool:          flash\n\tobdidx"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("\t     2\t")).count(), 2);
        let only = Style { only: Some(2), ..PLAIN };
        assert!(file("/f", &layout, only).ends_with("   0x200000401 *\n\n"));
        assert_eq!(file("/f", &layout, Style { only: Some(1), ..PLAIN }), "");
    }

    #[test]
    fn single_fields_and_yaml() {
        let count = Style { fields: Fields { count: true, ..NOTHING }, deep: false, ..PLAIN };
        assert_eq!(file("/f", &layout(&[1, 3]), count), "2\n");
        let two = Style { fields: Fields { count: true, size: true, ..NOTHING }, deep: false, ..PLAIN };
        assert_eq!(file("/f", &layout(&[1, 3]), two), "lmm_stripe_count:  2\nlmm_stripe_size:   1048576\n");
        let yaml = file("/f", &layout(&[1]), Style { yaml: true, ..PLAIN });
        let objects = "lmm_objects:\n      - l_ost_idx: 1\n        l_fid:     0x200000401:0x3:0x0\n";
        assert!(yaml.starts_with("lmm_stripe_count:  1\n") && yaml.ends_with(objects), "{yaml}");
    }

    #[test]
    fn directories() {
        let effective = Hint { stripe_count: 1, stripe_size: 1 << 20, ..Hint::default() };
        let layout = DirLayout { own: None, effective };
        let shallow = Style { deep: false, ..PLAIN };
        let expected = "stripe_count:  1 stripe_size:   1048576 pattern:       0 stripe_offset: -1\n\n";
        assert_eq!(directory("/d", &layout, shallow), expected);
        assert_eq!(directory("/d", &layout, PLAIN), format!("/d\n{expected}"));
        let own = DirLayout { own: Some(layout.effective.clone()), ..layout };
        assert!(directory("/d", &own, shallow).contains("pattern:       raid0 "));
        let count = Style { fields: Fields { count: true, ..NOTHING }, deep: false, ..PLAIN };
        assert_eq!(directory("/d", &own, count), "1\n");
    }

    #[test]
    fn osts_have_names() {
        for (text, index) in
            [("3", Some(3)), ("weft-OST001f_UUID", Some(31)), ("OST0003", Some(3)), ("x", None)]
        {
            assert_eq!(ost_index(text), index, "{text}");
        }
    }
}
