//! The token that a browser has to show. Its file is like that of a key: nobody else can read it.

use std::path::Path;
use std::sync::Arc;

use rt::Rt;

use crate::failure::Failure;
use crate::keys;

/// A token.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// The token in `file`, which is made if it is not there.
    pub fn of(rt: &Rt, file: &Path) -> Result<Token, Failure> {
        keys::create(rt, file).map_err(|failure| Failure::new(format!("{failure}, as a token")))?;
        // What could be read by others is refused.
        keys::read(file)?;
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("the token {} cannot be read: {error}", file.display())))?;
        Ok(Token(text.trim().into()))
    }

    /// Whether `authorization` shows it.
    pub fn is_shown(&self, authorization: Option<&str>) -> bool {
        let shown = authorization.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        let (shown, token) = (shown.as_bytes(), self.0.as_bytes());
        // As long for a wrong one that begins like it as for any other.
        shown.len() == token.len() && shown.iter().zip(token).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
    }
}
