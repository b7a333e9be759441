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
        let name = file.display();
        if file.extension().is_some_and(|extension| extension == "key") {
            // What a browser shows travels in the clear.
            return Err(Failure::new(format!(
                "--token {name}: that is the name of a key; name another file"
            )));
        }
        let of_token =
            |failure| Failure::new(format!("--token {name}: {failure}; without the file a new one is made"));
        keys::create(rt, file).map_err(of_token)?;
        // What could be read by others is refused.
        keys::read(file).map_err(of_token)?;
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("the token {} cannot be read: {error}", name)))?;
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
