//! Signatures of requests: AWS Signature Version 4, in the header `Authorization`, over the body, too.

use hmac::{Hmac, Mac};
use proto::time::civil;
use sha2::{Digest, Sha256};

use super::credentials::Credentials;

/// What is signed.
#[derive(Debug)]
pub struct Signed<'a> {
    /// HTTP's method.
    pub method: &'a str,
    /// The path, as it is sent: see [`encoded`].
    pub path: &'a str,
    /// The query, as it is sent: see [`query`].
    pub query: &'a str,
    /// Headers in the order of their names, which are in small letters; `host` is one of them.
    pub headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body, in hexadecimal.
    pub body: &'a str,
}

/// When and where a signature holds.
#[derive(Debug)]
pub struct Scope<'a> {
    /// The time, as the header `x-amz-date` has it: see [`date`].
    pub date: &'a str,
    /// The region.
    pub region: &'a str,
}

/// The header `Authorization`.
pub fn authorization(credentials: &Credentials, scope: &Scope<'_>, signed: &Signed<'_>) -> String {
    let Scope { date, region } = *scope;
    let day = date.split('T').next().unwrap_or_default();
    let of = format!("{day}/{region}/s3/aws4_request");
    let names: Vec<&str> = signed.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String =
        signed.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let Signed { method, path, query, body, .. } = signed;
    let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{body}");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{of}\n{}", digest(canonical.as_bytes()));
    let mut key = mac(format!("AWS4{}", credentials.secret()).as_bytes(), day);
    for part in [region, "s3", "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hexadecimal(&mac(&key, &text));
    let id = credentials.id();
    format!("AWS4-HMAC-SHA256 Credential={id}/{of},SignedHeaders={names},Signature={signature}")
}

/// SHA-256, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// `20130524T000000Z`.
pub fn date(secs: i64) -> String {
    let ((year, month, day), (hour, minute, second)) = civil(secs);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// A text of a path or a query as it is sent and signed. `kept` is left as it is besides letters, digits and `-._~`.
pub fn encoded(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A query as it is sent and signed, of names in their order.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name, b""), encoded(value, b""));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Amazon S3's manual, "Signature Calculations for the Authorization Header".
    fn check(method: &str, path: &str, query: &str, headers: &[(&str, &str)], body: &[u8], signature: &str) {
        let credentials =
            Credentials::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None)
                .expect("they are credentials");
        let body = digest(body);
        let mut headers = headers.to_vec();
        headers.extend([
            ("host", "examplebucket.s3.amazonaws.com"),
            ("x-amz-content-sha256", body.as_str()),
            ("x-amz-date", "20130524T000000Z"),
        ]);
        headers.sort();
        let scope = Scope { date: &date(1_369_353_600), region: "us-east-1" };
        let signed = Signed { method, path, query, headers: &headers, body: &body };
        let value = authorization(&credentials, &scope, &signed);
        assert!(
            value.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            ),
            "{value}"
        );
        assert_eq!(value.split("Signature=").nth(1), Some(signature));
    }

    #[test]
    fn signatures_are_those_of_the_manual() {
        let range = [("range", "bytes=0-9")];
        let get = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        check("GET", "/test.txt", "", &range, b"", get);
        let headers =
            [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        let put = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        check("PUT", &encoded("/test$file.text", b"/"), "", &headers, b"Welcome to Amazon S3.", put);
        let lifecycle = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        check("GET", "/", &query(&[("lifecycle", "")]), &[], b"", lifecycle);
        let list = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        check("GET", "/", &query(&[("max-keys", "2"), ("prefix", "J")]), &[], b"", list);
    }

    #[test]
    fn paths_and_queries_are_encoded() {
        assert_eq!(encoded("/b/a:0x1.ä~", b"/"), "/b/a%3A0x1.%C3%A4~");
        assert_eq!(query(&[("prefix", "a/b c+"), ("uploads", "")]), "prefix=a%2Fb%20c%2B&uploads=");
    }
}
