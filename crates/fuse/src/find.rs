//! Searches that tools ask a mount for, a page at a time.
//!
//! What is asked does not fit into the name of an attribute, and the answer has to be the value of one. So a tool sets
//! `weft.find.TOKEN` to what it asks, and then gets it; both are the messages of `docs/wire.md`, without a header. A page can be got again.

use std::collections::VecDeque;

use bytes::Bytes;
use client::posix::{Errno, Result};
use client::{Caller, Client};
use parking_lot::Mutex;
use proto::wire::messages::Find;
use proto::wire::{Body, Reader};

/// Searches that are remembered; the oldest is forgotten for one more, and its tool asks again.
const QUESTIONS_MAX: usize = 64;
/// Bytes of what is asked at most.
const QUESTION_BYTES_MAX: usize = 48 << 10;
/// Bytes of a token at most.
const TOKEN_BYTES_MAX: usize = 64;

/// What was asked lately.
#[derive(Default)]
pub struct Questions {
    asked: Mutex<VecDeque<Question>>,
}

struct Question {
    uid: u32,
    token: String,
    find: Find,
}

impl Questions {
    /// Takes what `caller` asks.
    pub fn ask(&self, caller: &Caller, token: &str, value: &[u8]) -> Result<()> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || value.len() > QUESTION_BYTES_MAX {
            return Err(Errno::INVALID);
        }
        let mut from = Reader::new(Bytes::copy_from_slice(value));
        let find = Find::take_fields(&mut from).map_err(|_| Errno::INVALID)?;
        let mut asked = self.asked.lock();
        asked.retain(|other| (other.uid, &other.token[..]) != (caller.uid, token));
        if asked.len() >= QUESTIONS_MAX {
            asked.pop_front();
        }
        asked.push_back(Question { uid: caller.uid, token: token.to_owned(), find });
        Ok(())
    }

    /// The page that `caller` has asked for.
    pub async fn answer(&self, client: &Client, caller: &Caller, token: &str) -> Result<Vec<u8>> {
        let find = self.of(caller, token).ok_or(Errno::NO_ATTRIBUTE)?;
        let page = client.names().search(caller, &find).await?;
        let mut bytes = Vec::new();
        page.put_fields(&mut bytes);
        Ok(bytes)
    }

    fn of(&self, caller: &Caller, token: &str) -> Option<Find> {
        let asked = self.asked.lock();
        let question = asked.iter().find(|one| (one.uid, &one.token[..]) == (caller.uid, token))?;
        Some(question.find.clone())
    }
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
        assert_eq!(questions.of(&root, "a"), Some(first));
        assert_eq!(questions.of(&user, "a"), Some(second.clone()));
        assert_eq!(questions.of(&user, "b"), None);
        questions.ask(&root, "a", &other_bytes).expect("the same again");
        assert_eq!(questions.of(&root, "a"), Some(second));
        for n in 0..QUESTIONS_MAX {
            questions.ask(&user, &n.to_string(), &bytes).expect("a question");
        }
        assert_eq!(questions.of(&root, "a"), None, "it was the oldest");
        assert_eq!(questions.ask(&root, "a", b"nonsense"), Err(Errno::INVALID));
        assert_eq!(questions.ask(&root, "", &bytes), Err(Errno::INVALID));
        assert_eq!(questions.ask(&root, "a", &vec![0; QUESTION_BYTES_MAX + 1]), Err(Errno::INVALID));
    }
}
