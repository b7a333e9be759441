//! Searches that tools ask a mount for, a page at a time.
//!
//! What is asked does not fit into the name of an attribute, and the answer has to be the value of one. So a tool sets
//! `weft.find.TOKEN` to what it asks, and then gets it; both are the messages of `docs/wire.md`, without a header. A page can be got again.
//! Who may not set attributes of the root directory gets `weft.find.TOKEN=HEX` instead, which begins the question with these bytes, and
//! `weft.find.TOKEN+HEX`, which adds some.

use bytes::Bytes;
use client::posix::{Errno, Result};
use client::{Caller, Client};
use proto::wire::messages::Find;
use proto::wire::{Body, Reader};

use crate::remembered::Remembered;

/// Searches that are remembered. The tool of one that was forgotten asks again.
const QUESTIONS_MAX: usize = 64;
/// Bytes of what is asked at most.
const QUESTION_BYTES_MAX: usize = 48 << 10;
/// Bytes of a token at most.
const TOKEN_BYTES_MAX: usize = 64;

/// What was asked lately, by token.
pub struct Questions {
    asked: Remembered<String, Vec<u8>>,
}

impl Default for Questions {
    fn default() -> Questions {
        Questions { asked: Remembered::new(QUESTIONS_MAX) }
    }
}

impl Questions {
    /// Takes what `caller` asks.
    pub fn ask(&self, caller: &Caller, token: &str, value: &[u8]) -> Result<()> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || value.len() > QUESTION_BYTES_MAX {
            return Err(Errno::INVALID);
        }
        self.asked.put(caller.uid, token.to_owned(), value.to_vec());
        Ok(())
    }

    /// Adds to what `caller` asks.
    fn add(&self, caller: &Caller, token: &str, value: &[u8]) -> Result<()> {
        let added = self.asked.with(caller.uid, &token.to_owned(), |bytes| {
            let fits = bytes.len() + value.len() <= QUESTION_BYTES_MAX;
            fits.then(|| bytes.extend_from_slice(value)).ok_or(Errno::INVALID)
        });
        added.ok_or(Errno::NO_ATTRIBUTE)?
    }

    /// The page that `caller` has asked for, if `name` is a token; else it is a part of a question.
    pub async fn answer(&self, client: &Client, caller: &Caller, name: &str) -> Result<Vec<u8>> {
        if let Some((token, digits)) = name.split_once('=') {
            return self.ask(caller, token, &bytes_of(digits)?).map(|()| Vec::new());
        }
        if let Some((token, digits)) = name.split_once('+') {
            return self.add(caller, token, &bytes_of(digits)?).map(|()| Vec::new());
        }
        let find = self.of(caller, name)?;
        let page = client.names().search(caller, &find).await?;
        if page.next.is_none() {
            self.asked.take(caller.uid, &name.to_owned());
        }
        let mut bytes = Vec::new();
        page.put_fields(&mut bytes);
        Ok(bytes)
    }

    fn of(&self, caller: &Caller, token: &str) -> Result<Find> {
        let asked = self.asked.with(caller.uid, &token.to_owned(), |bytes| Bytes::copy_from_slice(bytes));
        let bytes = asked.ok_or(Errno::NO_ATTRIBUTE)?;
        Find::take_fields(&mut Reader::new(bytes)).map_err(|_| Errno::INVALID)
    }
}

/// The bytes that hexadecimal digits say.
fn bytes_of(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect::<Option<_>>().ok_or(Errno::INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::find::Expr;
    use proto::{Cred, Fid};

    fn question(depth_max: u32) -> (Find, Vec<u8>) {
        let find = Find {
            start: Fid::ROOT,
            path: Bytes::from_static(b"/mnt"),
            query: Expr::All(vec![]).encode(),
            depth_min: 0,
            depth_max,
            wants: 0,
            bytes_max: 1,
            snapshot: 0,
            behind: None,
            cred: Cred::root(),
        };
        let mut bytes = Vec::new();
        find.put_fields(&mut bytes);
        (find, bytes)
    }

    #[test]
    fn questions_are_of_their_user_and_bounded() {
        let questions = Questions::default();
        let (root, user) = (Caller::root(), Caller { uid: 5, ..Caller::root() });
        let (first, bytes) = question(1);
        let (second, other_bytes) = question(2);
        questions.ask(&root, "a", &bytes).expect("a question");
        questions.ask(&user, "a", &other_bytes).expect("a question");
        assert_eq!(questions.of(&root, "a"), Ok(first));
        assert_eq!(questions.of(&user, "a"), Ok(second.clone()));
        assert_eq!(questions.of(&user, "b"), Err(Errno::NO_ATTRIBUTE));
        questions.ask(&root, "a", &other_bytes).expect("the same again");
        assert_eq!(questions.of(&root, "a"), Ok(second.clone()));
        for n in 0..QUESTIONS_MAX {
            questions.ask(&user, &n.to_string(), &bytes).expect("a question");
        }
        assert_eq!(questions.of(&user, "a"), Err(Errno::NO_ATTRIBUTE), "it was the oldest of who asks most");
        assert!(questions.of(&root, "a").is_ok());
        questions.ask(&root, "a", b"nonsense").expect("that is seen later");
        assert_eq!(questions.of(&root, "a"), Err(Errno::INVALID));
        let (begin, rest) = other_bytes.split_at(20);
        questions.ask(&root, "b", begin).expect("the beginning");
        questions.add(&root, "b", rest).expect("the rest");
        assert_eq!(questions.of(&root, "b"), Ok(second));
        assert_eq!(questions.add(&root, "c", rest), Err(Errno::NO_ATTRIBUTE));
        assert_eq!(
            (bytes_of("00ff"), bytes_of("0"), bytes_of("xy")),
            (Ok(vec![0, 255]), Err(Errno::INVALID), Err(Errno::INVALID))
        );
        assert_eq!(questions.ask(&root, "", &bytes), Err(Errno::INVALID));
        assert_eq!(questions.ask(&root, "a", &vec![0; QUESTION_BYTES_MAX + 1]), Err(Errno::INVALID));
    }
}
