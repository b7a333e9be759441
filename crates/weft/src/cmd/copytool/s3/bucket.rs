//! `--hsm-root s3://BUCKET/PREFIX` and the options about it: which bucket, where, and whom to trust there.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rt::os::Node;
use rt::os::http::{Client, Tls};

use crate::control::describe;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// What the root of an archive in S3 begins with.
const SCHEME: &str = "s3://";
/// Most bytes of a prefix: keys have at most 1024, and copies need some of them.
const PREFIX_BYTES_MAX: usize = 512;
/// The variable that names certificates of authorities, as OpenSSL knows it.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";
/// Where systems have them.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Most bytes of them.
const AUTHORITIES_BYTES_MAX: u64 = 16 << 20;

/// Options about an archive in S3.
#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Where S3 is, with --hsm-root s3://BUCKET/PREFIX
    #[arg(long, value_name = "http(s)://HOST:PORT")]
    s3_endpoint: Option<String>,
    /// The region of the bucket [default: us-east-1]
    #[arg(long, value_name = "NAME")]
    s3_region: Option<String>,
    /// File with the credentials, in its section "default", which nobody else can read
    /// [default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment]
    #[arg(long, value_name = "FILE")]
    pub s3_credentials: Option<PathBuf>,
    /// Certificates of the authorities that sign the server's (PEM) [default: those of the system]
    #[arg(long, value_name = "FILE")]
    s3_ca: Option<PathBuf>,
}

/// Where copies are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Name of the bucket.
    pub name: String,
    /// What all keys begin with: empty, or with `/` at its end.
    pub prefix: String,
    /// The region.
    pub region: String,
    /// The server.
    server: Endpoint,
}

impl Options {
    /// Those of a test.
    #[cfg(test)]
    pub fn at(endpoint: &str) -> Options {
        Options { s3_endpoint: Some(endpoint.into()), s3_region: None, s3_credentials: None, s3_ca: None }
    }

    /// An option that was given, if any was.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            (self.s3_endpoint.is_some(), "--s3-endpoint"),
            (self.s3_region.is_some(), "--s3-region"),
            (self.s3_credentials.is_some(), "--s3-credentials"),
            (self.s3_ca.is_some(), "--s3-ca"),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| *option)
    }

    /// The bucket of a root; `None` if it is a directory's.
    pub fn bucket(&self, root: &Path) -> Result<Option<Bucket>, Failure> {
        let Some(rest) = root.to_str().and_then(|root| root.strip_prefix(SCHEME)) else { return Ok(None) };
        let (name, prefix) = parse(rest).map_err(|why| Failure::usage(format!("--hsm-root: {why}")))?;
        let endpoint = self.s3_endpoint.as_ref().ok_or_else(|| {
            Failure::usage(
                "an archive in S3 needs --s3-endpoint, for example https://s3.us-east-1.amazonaws.com",
            )
        })?;
        let server =
            Endpoint::parse(endpoint, None).map_err(|why| Failure::usage(format!("--s3-endpoint: {why}")))?;
        if self.s3_ca.is_some() && !server.tls {
            return Err(Failure::usage("--s3-ca is for an endpoint with https://"));
        }
        let region = self.s3_region.clone().unwrap_or_else(|| "us-east-1".into());
        let is_sane = |c: char| c.is_ascii_alphanumeric() || ['-', '_'].contains(&c);
        if region.is_empty() || !region.chars().all(is_sane) {
            return Err(Failure::usage("--s3-region: a region has letters, digits and \"-\""));
        }
        Ok(Some(Bucket { name, prefix, region, server }))
    }

    /// A client of the server of `bucket`, without credentials.
    pub fn client(&self, node: &Node, bucket: &Bucket) -> Result<Client, Failure> {
        let tls = match bucket.server.tls {
            true => Some(self.tls()?),
            false => None,
        };
        Ok(Client::new(node, bucket.server.place.clone(), tls))
    }

    fn tls(&self) -> Result<Tls, Failure> {
        let failed = |file: &Path, why: &str| {
            Failure::new(format!(
                "certificates of authorities in {}: {why}; name others with --s3-ca",
                file.display()
            ))
        };
        if let Some(file) = &self.s3_ca {
            return Tls::new(&read(file).map_err(|why| failed(file, &why))?, None)
                .map_err(|why| failed(file, &why));
        }
        let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
        let usual = || AUTHORITIES.iter().map(PathBuf::from).find(|file| file.exists());
        let file = named.or_else(usual).ok_or_else(|| {
            Failure::new("this system has no certificates of authorities; install its package ca-certificates, or name a file with --s3-ca")
        })?;
        Tls::of_system(&read(&file).map_err(|why| failed(&file, &why))?).map_err(|why| failed(&file, &why))
    }
}

impl Bucket {
    /// The server, for people.
    pub fn endpoint(&self) -> String {
        let Endpoint { tls, place } = &self.server;
        let scheme = if *tls { "https" } else { "http" };
        let host = if place.host.contains(':') { format!("[{}]", place.host) } else { place.host.clone() };
        format!("{scheme}://{host}:{}", place.port)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(AUTHORITIES_BYTES_MAX).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| describe(&error))
}

/// Name and prefix.
fn parse(rest: &str) -> Result<(String, String), String> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_sane = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    if !(3..=255).contains(&name.len()) || !name.chars().all(is_sane) || name == "..." {
        return Err("write it as s3://BUCKET or s3://BUCKET/PREFIX".into());
    }
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        return Ok((name.into(), String::new()));
    }
    // Servers and what is on the way to them take these for other names.
    let is_bad = |part: &str| part.is_empty() || part == "." || part == "..";
    if prefix.split('/').any(is_bad) || prefix.chars().any(char::is_control) {
        return Err("a prefix has no empty parts, \".\" or \"..\"".into());
    }
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(format!("a prefix has at most {PREFIX_BYTES_MAX} bytes"));
    }
    Ok((name.into(), format!("{prefix}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(root: &str, endpoint: Option<&str>) -> Result<Option<Bucket>, Failure> {
        let s3_endpoint = endpoint.map(str::to_owned);
        let options = Options { s3_endpoint, s3_region: None, s3_credentials: None, s3_ca: None };
        options.bucket(Path::new(root))
    }

    #[test]
    fn roots_are_directories_or_buckets() {
        let at = Some("https://[::1]:9000/");
        assert_eq!(bucket("/archive", None), Ok(None));
        let found = bucket("s3://lab-1/a/b/", at).expect("it is good").expect("it is a bucket");
        assert_eq!((found.name.as_str(), found.prefix.as_str()), ("lab-1", "a/b/"));
        assert_eq!((found.endpoint().as_str(), found.region.as_str()), ("https://[::1]:9000", "us-east-1"));
        for root in ["s3://lab", "s3://lab/", "s3://lab//"] {
            let found = bucket(root, at).expect("it is good").expect("it is a bucket");
            assert_eq!((found.name.as_str(), found.prefix.as_str()), ("lab", ""), "{root}");
        }
        for root in
            ["s3://", "s3:///a", "s3://a", "s3://a b c", "s3://lab/a//b", "s3://lab/../b", "s3://lab/a\nb"]
        {
            assert!(bucket(root, at).is_err(), "{root}");
        }
        let long = format!("s3://lab/{}", "a".repeat(600));
        assert!(bucket(&long, at).is_err());
        assert!(bucket("s3://lab", None).is_err());
        assert!(bucket("s3://lab", Some("http://a:secret@b")).is_err());
    }
}
