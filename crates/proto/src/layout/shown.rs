//! The components of a layout as Lustre's tools show them.

use super::{Component, Layout, Pattern};

/// A component as it is shown. Space to extend into is one of its own behind what extends into it; if nothing does so yet, one without
/// bytes stands there.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// What it is of.
    pub component: &'a Component,
    /// First byte of the file behind it; it starts where `component` does.
    pub end: u64,
    /// Of space to extend into: bytes that are taken over at a time; 0 for all else.
    pub extension: u64,
}

impl Shown<'_> {
    /// Whether it has objects.
    pub fn is_init(&self) -> bool {
        self.component.is_placed()
    }
}

impl Layout {
    /// The components in their order, but for the part of the file that never has data.
    pub fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        let mut extends = false;
        let asked = self.components.iter().filter(|component| component.pattern != Pattern::Nothing);
        asked.flat_map(move |component| {
            let is_space = component.pattern == Pattern::Pending && component.extension > 0;
            let begins = is_space && !extends;
            extends = component.extends();
            let extension = if is_space { component.extension } else { 0 };
            let empty = begins.then_some(Shown { component, end: component.start, extension: 0 });
            empty.into_iter().chain([Shown { component, end: component.end, extension }])
        })
    }
}
