//! What a client has open for reading, for an MDT that restarted.

use std::collections::BTreeMap;

use proto::wire::messages::{OpenHeld, RestateOpens};
use rpc::Restate;

use crate::files::Reopening;

/// Open files in one message.
const RESTATED_AT_ONCE: usize = 8192;

impl Reopening {
    /// States the files and directories again that are open for reading; of those that are open for writing the MDT knows. No file
    /// may be opened, or closed, without the MDT any more: it would not be stated, or not closed.
    pub(crate) async fn restate_opens(&self, restate: &Restate) {
        let opens = &self.names.meta.opens;
        // Several handles of here may be one of the MDT.
        let mut held: BTreeMap<u64, OpenHeld> = self
            .handles
            .all_open()
            .filter(|open| !open.flags.write && !opens.is_bare(open.fid, open.mdt_handle()))
            .map(|open| (open.mdt_handle(), OpenHeld { fid: open.fid, handle: open.mdt_handle() }))
            .collect();
        let in_use = opens.in_use();
        held.extend(in_use.into_iter().map(|(fid, handle)| (handle, OpenHeld { fid, handle })));
        let held: Vec<OpenHeld> = held.into_values().collect();
        for some in held.chunks(RESTATED_AT_ONCE) {
            if let Err(error) = restate.call(RestateOpens { opens: some.to_vec() }).await {
                tracing::error!(
                    %error, count = some.len(),
                    "the restarted MDT does not take open files: they are lost once their last names are removed"
                );
            }
        }
    }
}
