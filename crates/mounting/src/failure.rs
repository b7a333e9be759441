//! Why something could not be done.

/// One sentence for a person: what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// What was given is not understood.
    #[error("{0}")]
    Usage(String),
    /// It was understood, and cannot be done.
    #[error("{0}")]
    Failed(String),
}

/// What this crate's functions give.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// It cannot be done.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// It is not understood.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }
}
