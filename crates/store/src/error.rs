//! Why a store does not do what it was asked.

/// What went wrong, and so what the caller has to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no space for it; nothing was changed.
    #[error("no space left on the target")]
    NoSpace,
    /// A sum would be above its limit; nothing was changed.
    #[error("the limit is reached")]
    OverLimit,
    /// It comes to more changes than one batch may carry; nothing was changed.
    #[error("too many changes at once")]
    TooBig,
    /// The object was destroyed before.
    #[error("the object was destroyed")]
    Gone,
    /// Whoever it was done for was given up; nothing was changed.
    #[error("whoever asked for it was given up")]
    Over,
    /// Stored bytes do not match their checksum.
    #[error("{what} does not match its checksum")]
    Corrupt {
        /// What was read.
        what: String,
    },
    /// Something that was durable in the log is not there any more, or was changed. What is affected is said.
    #[error("{0}")]
    Damaged(String),
    /// The directory holds no target, or one of another version.
    #[error("{0}")]
    NotATarget(String),
    /// The snapshot has ended: the store was closed, or was short of space.
    #[error("the snapshot has ended")]
    Ended,
    /// A write or sync failed earlier: nothing is accepted until the target has been opened again.
    #[error("an earlier write failed, the target has to be restarted")]
    Poisoned,
    /// Another server owns the target: nothing is accepted any more.
    #[error("the target has another owner")]
    NotOwner,
    /// The disk failed.
    #[error("disk: {0}")]
    Io(#[from] std::io::Error),
}
