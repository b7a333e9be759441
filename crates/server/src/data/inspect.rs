//! Looking at all objects, for a check of the file system (`docs/operations.md#lfsck`).

use proto::Code;
use proto::wire::Reply;
use proto::wire::messages::{ByteRange, InspectObjects, InspectedObject, InspectedPage, ObjectPlace};
use service::{Ctx, Done, code_of};
use store::StoreError;
use store::object::inspect::{Inspected, Inspection, Position};

use super::Data;

/// Objects of one page.
const OBJECTS_MAX: usize = 1024;
/// Bytes that are read for one page, about.
const BYTES_MAX: u64 = 16 << 20;

impl Data {
    /// Looks at some objects of the target itself.
    ///
    /// # Errors
    /// The store cannot be read. Data that cannot be read is in the answer.
    pub async fn inspect_here(&self, asked: &InspectObjects) -> Result<InspectedPage, StoreError> {
        let inspection = Inspection {
            from: Position { object: asked.from.object, offset: asked.from.offset },
            until: asked.until,
            objects_max: OBJECTS_MAX,
            bytes_max: asked.verifies.then_some(BYTES_MAX),
        };
        let page = self.objects.inspect(inspection).await?;
        let shown = |seen: Inspected| InspectedObject {
            object: seen.object,
            size: seen.size,
            damaged: seen
                .damaged
                .iter()
                .map(|range| ByteRange { start: range.start, end: range.end })
                .collect(),
        };
        Ok(InspectedPage {
            objects: page.objects.into_iter().map(shown).collect(),
            next: page.next.map(|next| ObjectPlace { object: next.object, offset: next.offset }),
            bytes: page.bytes,
        })
    }

    /// The same for a session of the MDT.
    pub(super) async fn inspect<S>(&self, ctx: &Ctx<S>, asked: &InspectObjects) -> Result<Done, Code> {
        ctx.only_servers()?;
        let page = self.inspect_here(asked).await.map_err(|error| code_of(&error))?;
        Ok(Done::unchanged(Reply::InspectObjects(page)))
    }
}
