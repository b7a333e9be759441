//! `--owners`: where it is kept who owns targets that several servers may serve; and the way to an etcd cluster.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use proto::FsName;
use rt::os::http::{Client, Tls};
use rt::{BoxFuture, Rt};
use server::owner::{Credentials, EtcdOwners, OwnerStore, Transport};

use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// etcd's port for its clients.
const PORT_DEFAULT: u16 = 2379;
/// Most members of a cluster that may be named.
const MEMBERS_MAX: usize = 16;
/// Most bytes of a file with certificates, a key or a password.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Options about the store of owners.
#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Who keeps which server owns a target that several may serve: the MGS, or an etcd cluster, as
    /// etcd:http://HOST:2379,http://HOST:2379,... (or https). All servers of a target have to be told the same
    #[arg(long, value_name = "mgs|etcd:URL,...", default_value = "mgs")]
    owners: String,
    /// Certificates of the authorities that sign those of etcd's members (PEM); needed for https
    #[arg(long, value_name = "FILE")]
    owners_ca: Option<PathBuf>,
    /// This server's certificate for etcd (PEM)
    #[arg(long, value_name = "FILE", requires = "owners_key")]
    owners_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "owners_cert")]
    owners_key: Option<PathBuf>,
    /// User of etcd, if it asks for one
    #[arg(long, value_name = "NAME", requires = "owners_password_file")]
    owners_user: Option<String>,
    /// File with that user's password in its first line
    #[arg(long, value_name = "FILE", requires = "owners_user")]
    owners_password_file: Option<PathBuf>,
}

/// Where owners are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owners {
    Mgs,
    Etcd(Vec<Endpoint>),
}

impl FromStr for Owners {
    type Err = String;

    fn from_str(text: &str) -> Result<Owners, String> {
        if text == "mgs" {
            return Ok(Owners::Mgs);
        }
        let list =
            text.strip_prefix("etcd:").ok_or("write mgs, or etcd:http://HOST:2379,http://HOST:2379")?;
        if list.contains('@') {
            return Err("a URL names no user: use --owners-user and --owners-password-file".into());
        }
        let member = |url| Endpoint::parse(url, Some(PORT_DEFAULT));
        let members: Vec<Endpoint> = list.split(',').map(member).collect::<Result<_, _>>()?;
        if members.len() > MEMBERS_MAX {
            return Err(format!("more than {MEMBERS_MAX} members"));
        }
        match members.first() {
            Some(first) if members.iter().any(|member| member.tls != first.tls) => {
                Err("http and https are mixed".into())
            }
            _ => Ok(Owners::Etcd(members)),
        }
    }
}

impl Options {
    /// The etcd cluster; `None` if the MGS keeps the owners.
    pub fn etcd(
        &self,
        node: &rt::os::Node,
        rt: &Rt,
        fsname: &FsName,
    ) -> Result<Option<Arc<dyn OwnerStore>>, Failure> {
        // Not by clap, which would repeat what may hold a password.
        let owners: Owners = self.owners.parse().map_err(|why| Failure::usage(format!("--owners: {why}")))?;
        let Owners::Etcd(members) = &owners else {
            return match self.first_of_etcd() {
                Some(option) => Err(Failure::usage(format!("{option} is for --owners etcd:..."))),
                None => Ok(None),
            };
        };
        let tls = match members.first() {
            Some(Endpoint { tls: true, .. }) => Some(self.tls()?),
            _ if self.owners_ca.is_some() || self.owners_cert.is_some() => {
                return Err(Failure::usage("certificates are for members with https:// in --owners"));
            }
            _ => None,
        };
        let names =
            members.iter().map(|member| format!("{}:{}", member.place.host, member.place.port)).collect();
        let clients =
            members.iter().map(|member| Client::new(node, member.place.clone(), tls.clone())).collect();
        let credentials = match (&self.owners_user, &self.owners_password_file) {
            (Some(user), Some(file)) => {
                let text = String::from_utf8(read(file)?)
                    .map_err(|_| Failure::new(format!("{} holds no text", file.display())))?;
                let password = text.lines().next().unwrap_or_default().to_owned();
                Some(Credentials { user: user.clone(), password })
            }
            _ => None,
        };
        let transport = Arc::new(Members { names, clients });
        Ok(Some(Arc::new(EtcdOwners::new(rt, fsname, transport, credentials))))
    }

    fn first_of_etcd(&self) -> Option<&'static str> {
        let given = [
            (self.owners_ca.is_some(), "--owners-ca"),
            (self.owners_cert.is_some(), "--owners-cert"),
            (self.owners_user.is_some(), "--owners-user"),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| *option)
    }

    fn tls(&self) -> Result<Tls, Failure> {
        let ca = self.owners_ca.as_ref().ok_or_else(|| {
            Failure::usage("https in --owners needs --owners-ca FILE, the certificates of who signs etcd's")
        })?;
        let authorities = read(ca)?;
        let identity = match (&self.owners_cert, &self.owners_key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        let identity = identity.as_ref().map(|(cert, key)| (cert.as_slice(), key.as_slice()));
        Tls::new(&authorities, identity).map_err(|why| {
            Failure::new(format!("TLS with etcd (--owners-ca, --owners-cert, --owners-key): {why}"))
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed =
        |error: io::Error| Failure::new(format!("{}: {}", path.display(), crate::control::describe(&error)));
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(failed)?;
    Ok(bytes)
}

/// The members of a cluster, each with its own connections.
struct Members {
    names: Vec<String>,
    clients: Vec<Client>,
}

impl Transport for Members {
    fn members(&self) -> &[String] {
        &self.names
    }

    fn post<'a>(
        &'a self,
        member: usize,
        path: &'a str,
        token: Option<&'a str>,
        body: Bytes,
        bytes_max: usize,
    ) -> BoxFuture<'a, io::Result<(u16, Bytes)>> {
        Box::pin(async move {
            let client = self.clients.get(member).ok_or(io::ErrorKind::NotFound)?;
            let answer = client.post(path, token, body, bytes_max).await?;
            Ok((answer.status, answer.body))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(text: &str) -> Result<Vec<(bool, String, u16)>, String> {
        match text.parse()? {
            Owners::Mgs => Ok(vec![]),
            Owners::Etcd(members) => {
                Ok(members.into_iter().map(|m| (m.tls, m.place.host, m.place.port)).collect())
            }
        }
    }

    #[test]
    fn members_are_named_by_urls() {
        assert_eq!(owners("mgs"), Ok(vec![]));
        assert_eq!(
            owners("etcd:http://a:1,http://10.0.0.1,http://[::1]:7/,http://[::2]"),
            Ok(vec![
                (false, "a".into(), 1),
                (false, "10.0.0.1".into(), 2379),
                (false, "::1".into(), 7),
                (false, "::2".into(), 2379)
            ])
        );
        assert_eq!(owners("etcd:https://e.example"), Ok(vec![(true, "e.example".into(), 2379)]));
        for bad in [
            "",
            "etcd",
            "etcd:",
            "etcd:a:1",
            "etcd:http://",
            "etcd:http://a:x",
            "etcd:http://a:1/v3",
            "etcd:http://a,https://b",
            "etcd:http://[::1",
            "etcd:http://[::1]7",
            "etcd:http://a b",
        ] {
            assert!(owners(bad).is_err(), "{bad}");
        }
        let error = owners("etcd:http://root:secret@a:1").expect_err("it has a password");
        assert!(!error.contains("secret"), "{error}");
    }
}
