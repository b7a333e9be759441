//! Who asks S3: from the environment, or from a file that nobody else reads. Shows nothing of what is secret.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::control::describe;
use crate::failure::Failure;

/// Variables of the environment, as AWS's own programs know them.
const ID_VARIABLE: &str = "AWS_ACCESS_KEY_ID";
const SECRET_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN_VARIABLE: &str = "AWS_SESSION_TOKEN";
/// The section of a file that counts.
const SECTION: &str = "[default]";
/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What requests are signed with.
#[derive(Clone)]
pub struct Credentials {
    id: String,
    secret: String,
    token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Checks that they can be sent. An error says nothing of what they are.
    pub fn new(id: &str, secret: &str, token: Option<&str>) -> Result<Credentials, &'static str> {
        let is_good = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_good(id) {
            return Err("the access key ID is empty, or has letters that none has");
        }
        if !is_good(secret) {
            return Err("the secret access key is empty, or has letters that none has");
        }
        let token = token.filter(|token| !token.is_empty());
        if token.is_some_and(|token| !is_good(token)) {
            return Err("the session token has letters that none has");
        }
        Ok(Credentials { id: id.into(), secret: secret.into(), token: token.map(Into::into) })
    }

    /// Those of a file, or without one those of the environment.
    pub fn find(file: Option<&Path>) -> Result<Credentials, Failure> {
        match file {
            Some(file) => of_file(file),
            None => of_environment(),
        }
    }

    /// Names them; no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key of signatures.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// What goes along with each request, if they hold for a while only.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

fn of_environment() -> Result<Credentials, Failure> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let (Some(id), Some(secret)) = (variable(ID_VARIABLE), variable(SECRET_VARIABLE)) else {
        return Err(Failure::new(format!(
            "there are no credentials for S3; set {ID_VARIABLE} and {SECRET_VARIABLE}, or name a file with --s3-credentials"
        )));
    };
    Credentials::new(&id, &secret, variable(TOKEN_VARIABLE).as_deref())
        .map_err(|why| Failure::new(format!("credentials of the environment: {why}")))
}

fn of_file(file: &Path) -> Result<Credentials, Failure> {
    let name = file.display();
    let failed = |error: io::Error| {
        Failure::new(format!(
            "the credentials {name} cannot be read: {}; name another file with --s3-credentials",
            describe(&error)
        ))
    };
    let opened = File::open(file).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::new(format!(
            "others can read the credentials {name}; run \"chmod 600 {name}\""
        )));
    }
    let mut text = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    parse(&String::from_utf8_lossy(&text)).map_err(|why| Failure::new(format!("{name}: {why}")))
}

/// The section `default` of a file as AWS's own programs have it. An error says nothing of what stands there.
fn parse(text: &str) -> Result<Credentials, String> {
    let (mut is_meant, mut is_there) = (false, false);
    let (mut id, mut secret, mut token) = (None, None, None);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            is_meant = line == SECTION;
            is_there |= is_meant;
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {} is neither a section nor NAME = VALUE", at + 1))?;
        match name.trim() {
            _ if !is_meant => {}
            "aws_access_key_id" => id = Some(value.trim()),
            "aws_secret_access_key" => secret = Some(value.trim()),
            "aws_session_token" => token = Some(value.trim()),
            // Others have settings there that are of no use here.
            _ => {}
        }
    }
    match (is_there, id, secret) {
        (true, Some(id), Some(secret)) => Credentials::new(id, secret, token).map_err(Into::into),
        (true, ..) => Err(format!("the section {SECTION} needs aws_access_key_id and aws_secret_access_key")),
        _ => Err(format!("there is no section {SECTION}, with aws_access_key_id and aws_secret_access_key")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_default_section_counts() {
        let text = "# mine\n[other]\naws_access_key_id = X\n[default]\naws_access_key_id=ID\n aws_secret_access_key = a/b+c=\nregion = x\n";
        let found = parse(text).expect("they are there");
        assert_eq!((found.id(), found.secret(), found.token()), ("ID", "a/b+c=", None));
        let with_token = parse(&format!("{text}aws_session_token = T==\n")).expect("they are there");
        assert_eq!(with_token.token(), Some("T=="));
        assert!(!format!("{found:?}").contains("a/b"), "{found:?}");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for text in [
            "",
            "secret",
            "[default]\nsecret\n",
            "[default]\naws_secret_access_key = secret\n",
            "[a]\naws_access_key_id=secret\naws_secret_access_key=secret\n",
            "[default]\naws_access_key_id=A\naws_secret_access_key=sec ret\n",
            "[default]\naws_access_key_id=A\naws_secret_access_key=\n",
        ] {
            let why = parse(text).expect_err(text);
            assert!(!why.contains("sec ret") && !why.contains("secret\n"), "{why}");
        }
    }

    #[test]
    fn a_file_that_others_read_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "[default]\naws_access_key_id=A\naws_secret_access_key=B\n").expect("written");
        for (mode, is_good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(of_file(file.path()).is_ok(), is_good, "{mode:o}");
        }
    }
}
