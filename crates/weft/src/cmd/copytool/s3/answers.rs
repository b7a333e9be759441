//! What S3 says, in XML. It comes from the network: all of it is bounded, and may be anything.

use roxmltree::Document;
use rt::os::http::Answer;

/// Most letters of a code and of a sentence that people are shown.
const TEXT_CHARS_MAX: usize = 200;

/// What the server finds wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// S3's word for it; empty if there is none.
    pub code: String,
    /// For people.
    pub text: String,
}

/// Reads what is wrong out of an answer, of which `bytes_max` bytes at most are looked at.
pub fn complaint(answer: &Answer, bytes_max: usize) -> Complaint {
    let status = answer.status;
    let text = (answer.body.len() <= bytes_max).then(|| std::str::from_utf8(&answer.body).ok()).flatten();
    let document = text.and_then(document);
    let root = document.as_ref().map(Document::root_element).filter(|root| root.tag_name().name() == "Error");
    let element = |name: &str| {
        let found = root.and_then(|root| root.children().find(|child| child.tag_name().name() == name));
        shown(found.and_then(|found| found.text()).unwrap_or_default())
    };
    let (code, message) = (element("Code"), element("Message"));
    let text = match (code.as_str(), message.as_str()) {
        ("", "") => format!("{status}"),
        (code, "") => format!("{status} {code}"),
        (code, message) => format!("{status} {code} ({message})"),
    };
    Complaint { code, text }
}

/// The identity of an upload that was begun.
pub fn upload_id(body: &[u8]) -> Option<String> {
    let document = document(std::str::from_utf8(body).ok()?)?;
    let found = document.descendants().find(|node| node.tag_name().name() == "UploadId")?;
    found.text().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Whether a list has an object; `None` if it is no list.
pub fn has_objects(body: &[u8]) -> Option<bool> {
    let document = document(std::str::from_utf8(body).ok()?)?;
    let root = document.root_element();
    (root.tag_name().name() == "ListBucketResult")
        .then(|| root.children().any(|child| child.tag_name().name() == "Contents"))
}

/// The list of parts that ends an upload, of their tags in order.
pub fn parts(tags: &[String]) -> String {
    let part = |(at, tag): (usize, &String)| {
        let tag = tag.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        format!("<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag></Part>", at + 1)
    };
    let parts: String = tags.iter().enumerate().map(part).collect();
    format!(
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{parts}</CompleteMultipartUpload>"
    )
}

/// Servers that take a while send blanks meanwhile.
fn document(text: &str) -> Option<Document<'_>> {
    Document::parse(text.trim_start()).ok()
}

fn shown(text: &str) -> String {
    text.trim().chars().filter(|letter| !letter.is_control()).take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8], code: &str, text: &str) {
        let answer = Answer::new(403, body.to_vec().into());
        assert_eq!(complaint(&answer, 1000), Complaint { code: code.into(), text: text.into() });
    }

    #[test]
    fn what_is_wrong_is_read() {
        check(
            b"<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Access\n Denied</Message></Error>",
            "AccessDenied",
            "403 AccessDenied (Access Denied)",
        );
        check(b"<Error><Code>SlowDown</Code></Error>", "SlowDown", "403 SlowDown");
        for body in
            ["", "<html><Code>a</Code></html>", "<Error>", "no XML", "<!DOCTYPE a [<!ENTITY b 'c'>]><Error/>"]
        {
            check(body.as_bytes(), "", "403");
        }
        check(&[0xff; 10], "", "403");
        check(b"  \n<?xml version=\"1.0\"?><Error><Code>A</Code></Error>", "A", "403 A");
        check("<a>".repeat(300).as_bytes(), "", "403");
        let long = format!("<Error><Code>{}</Code></Error>", "a".repeat(900));
        check(long.as_bytes(), &"a".repeat(200), &format!("403 {}", "a".repeat(200)));
        check(format!("{long}{long}").as_bytes(), "", "403");
    }

    #[test]
    fn uploads_and_lists_are_read() {
        let begun = b"<InitiateMultipartUploadResult xmlns=\"x\"><Bucket>b</Bucket><UploadId>a-1 </UploadId></InitiateMultipartUploadResult>";
        assert_eq!(upload_id(begun), Some("a-1".into()));
        assert_eq!(upload_id(b"<A><UploadId/></A>"), None);
        assert_eq!(upload_id(b"nonsense"), None);
        let list =
            |inside| format!("<ListBucketResult xmlns=\"x\"><Name>b</Name>{inside}</ListBucketResult>");
        assert_eq!(has_objects(list("").as_bytes()), Some(false));
        assert_eq!(has_objects(list("<Contents><Key>a</Key></Contents>").as_bytes()), Some(true));
        assert_eq!(has_objects(b"<html></html>"), None);
        let text = parts(&["\"a\"".into(), "b<&".into()]);
        assert!(text.contains("<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>"), "{text}");
        assert!(Document::parse(&text).is_ok(), "{text}");
    }
}
