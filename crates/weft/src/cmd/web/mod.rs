//! `weft web`: a page that shows how the file systems of this host are. It changes nothing.
//!
//! The page and what belongs to it are in the program. What it shows comes from `/state.json`, and only to who shows the token; so the token is
//! in no address, and in no log of a proxy.

mod space;
mod state;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rt::os::web::{Asked, Page};

use crate::daemon::Place;
use crate::failure::Outcome;
use crate::lctl::reach::Reach;
use crate::turns::{self, Turn};
use crate::{keys, serving};
use space::Owners;
use token::Token;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
/// So long an answer serves others, too: however many look, everybody is asked once a second.
const FRESH: Duration = Duration::from_secs(1);

/// Show on a page in a browser how the file systems of this host are: health, targets, space, pools, owners, rates, jobs, clients, long work.
/// The page changes nothing.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:32222")]
    listen: SocketAddr,
    /// The servers' key: ask the servers of every file system that is mounted here, too
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The token that a browser has to show; the file is made if it is not there
    #[arg(long, value_name = "FILE", default_value = "/etc/weft/web.token")]
    token: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(key) = &arguments.key {
        // A wrong one is told of now, and not when there is something to use it for.
        keys::read(key)?;
    }
    let mut reach = Reach::new(arguments.key.as_deref())?;
    Place::Foreground.enter()?;
    let (node, rt) = serving::start_runtime()?;
    let token = Token::of(&rt, &arguments.token)?;
    let (server, addr) = turns::listen(&node, arguments.listen)?;
    let (turn, asked) = turns::turns();
    node.spawn_apart(Box::pin(server.run(move |asked| answer(asked, token.clone(), turn.clone()))));
    let file = arguments.token.display();
    Place::Foreground.ready(&format!("page at http://{addr}/; it asks for the token in {file}"));
    let mut owners = Owners::default();
    let mut last: Option<(Instant, Page)> = None;
    for question in asked {
        let page = match last.take().filter(|(since, _)| since.elapsed() < FRESH) {
            Some(page) => page,
            None => {
                // An answer that took long is as fresh as any.
                let page = page(&mut reach, &mut owners, arguments);
                (Instant::now(), page)
            }
        };
        // The browser may have gone.
        let _ = question.send(page.1.clone());
        last = Some(page);
    }
    Ok(0)
}

fn page(reach: &mut Reach, owners: &mut Owners, arguments: &Arguments) -> Page {
    let state = reach.look_again(arguments.key.as_deref()).and_then(|()| state::collect(reach, owners));
    match state {
        Ok(body) => Page { status: 200, kind: JSON, body },
        Err(failure) => Page { status: 500, kind: TEXT, body: format!("{}\n", failure.message) },
    }
}

async fn answer(asked: Asked, token: Token, turn: Turn) -> Page {
    let shown = |kind, body: &str| Page { status: 200, kind, body: body.to_owned() };
    match asked.path.as_str() {
        "/" => shown(HTML, include_str!("page.html")),
        "/page.js" => shown(SCRIPT, include_str!("page.js")),
        "/page.css" => shown(STYLE, include_str!("page.css")),
        "/state.json" if token.is_shown(asked.authorization.as_deref()) => turn.ask().await,
        "/state.json" => Page { status: 401, kind: TEXT, body: "the token is missing or wrong\n".to_owned() },
        _ => Page { status: 404, kind: TEXT, body: "there is no such page\n".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_for_who_shows_the_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let node = rt::os::Node::start(1).expect("a node");
        let file = dir.path().join("token");
        let token = Token::of(&rt::Rt::os(node.clone()), &file).expect("it is made");
        let text = std::fs::read_to_string(&file).expect("it is there");
        let (turn, asked) = turns::turns();
        let ask = |path: &str, authorization: Option<String>| {
            let asked = Asked { path: path.to_owned(), authorization };
            node.block_on(answer(asked, token.clone(), turn.clone())).status
        };
        for wrong in [None, Some(String::new()), Some("Bearer ".into()), Some("Bearer 00".into())] {
            assert_eq!(ask("/state.json", wrong), 401);
        }
        assert_eq!(ask("/", None), 200);
        assert_eq!(ask("/../etc/passwd", None), 404);
        drop(asked);
        // Nobody answers any more, but the question was let through.
        assert_eq!(ask("/state.json", Some(format!("Bearer {}", text.trim()))), 503);
        node.stop(Duration::from_secs(1));
    }
}
