//! Servers of others that are named by a URL: etcd's, and those of S3.

use rt::os::http::Place;

/// A server that is asked by HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it is asked by https.
    pub tls: bool,
    /// Where it is.
    pub place: Place,
}

impl Endpoint {
    /// Parses `http://HOST:PORT` or `https://...`. `port` is used if none is named; without it, that of the scheme. What is wrong with a
    /// URL is said without the URL if that may hold a password.
    pub fn parse(url: &str, port: Option<u16>) -> Result<Endpoint, String> {
        if url.contains('@') {
            return Err("a URL names no user".into());
        }
        let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(format!("\"{url}\" is no URL that begins with http:// or https://")),
        };
        let usual = port.unwrap_or(if tls { 443 } else { 80 });
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let bad = || format!("\"{url}\" is not written like http://HOST:PORT");
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or_else(bad)?;
                (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':').ok_or_else(bad)?) })
            }
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let sane = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_', ':', '%'].contains(&c);
        if host.is_empty() || !host.chars().all(sane) {
            return Err(bad());
        }
        let port = port.map_or(Ok(usual), |port| port.parse().map_err(|_| bad()))?;
        Ok(Endpoint { tls, place: Place { host: host.to_owned(), port } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_has_a_port() {
        let parsed = |url| Endpoint::parse(url, None).map(|e| (e.tls, e.place.host, e.place.port));
        assert_eq!(parsed("http://a"), Ok((false, "a".into(), 80)));
        assert_eq!(parsed("https://a/"), Ok((true, "a".into(), 443)));
        assert_eq!(parsed("https://[::1]:9000"), Ok((true, "::1".into(), 9000)));
        for bad in ["a", "ftp://a", "http://a/b", "http://a:b", "http://a?b"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        let error = parsed("http://root:secret@a").expect_err("it has a password");
        assert!(!error.contains("secret"), "{error}");
    }
}
