//! The bytes of an expression, as `docs/wire.md#queries` specifies them. They travel inside a message as what they are: an MDT that does
//! not know a test refuses the search, and nothing else.

use bytes::Bytes;

use super::{DEPTH_MAX, Expr, Glob, NODES_MAX, Permissions, Span, Test, TimeOf, TimeSpan};
use crate::ids::OstIndex;
use crate::wire::{DecodeError, Reader, Wire};

/// Bytes of an expression at most.
pub const QUERY_BYTES_MAX: usize = 32 << 10;
/// Numbers in a test at most.
const INDEXES_MAX: usize = 4096;

const ALL: u8 = 0;
const ANY: u8 = 1;
const NOT: u8 = 2;
const NAME: u8 = 16;
const PATH: u8 = 17;
const KIND: u8 = 18;
const SIZE: u8 = 19;
const TIME: u8 = 20;
const PERMISSIONS: u8 = 21;
const UID: u8 = 22;
const GID: u8 = 23;
const LINKS: u8 = 24;
const EMPTY: u8 = 25;
const OSTS: u8 = 26;
const MDTS: u8 = 27;
const STRIPE_COUNT: u8 = 28;
const STRIPE_SIZE: u8 = 29;
const LAYOUT: u8 = 30;
const POOL: u8 = 31;
const PROJECT: u8 = 32;
const COMPONENT_COUNT: u8 = 33;
const COMPONENT_START: u8 = 34;
const COMPONENT_END: u8 = 35;
const COMPONENT_FLAGS: u8 = 36;
const EXTENSION_SIZE: u8 = 37;

/// Why bytes are no expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A test that this version does not know.
    #[error("unknown test {0}")]
    Unknown(u8),
    /// Too deep, too long, or too many tests.
    #[error("the expression is too large")]
    TooLarge,
    /// No expression at all.
    #[error("no expression")]
    Damaged,
}

impl From<DecodeError> for QueryError {
    fn from(_: DecodeError) -> QueryError {
        QueryError::Damaged
    }
}

impl Expr {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        self.put(&mut out);
        out.into()
    }

    fn put(&self, out: &mut Vec<u8>) {
        let (tag, parts) = match self {
            Expr::All(parts) => (ALL, parts),
            Expr::Any(parts) => (ANY, parts),
            Expr::Not(inner) => {
                out.push(NOT);
                return inner.put(out);
            }
            Expr::Test(test) => return test.put(out),
        };
        out.push(tag);
        (parts.len() as u16).put(out);
        parts.iter().for_each(|part| part.put(out));
    }

    /// The inverse of [`Expr::encode`].
    pub fn decode(bytes: Bytes) -> Result<Expr, QueryError> {
        if bytes.len() > QUERY_BYTES_MAX {
            return Err(QueryError::TooLarge);
        }
        let (mut from, mut nodes) = (Reader::new(bytes), NODES_MAX);
        let expr = take(&mut from, DEPTH_MAX, &mut nodes)?;
        if from.is_empty() { Ok(expr) } else { Err(QueryError::Damaged) }
    }
}

/// Takes an expression that nests at most `depth` deep and has at most `nodes` nodes.
fn take(from: &mut Reader, depth: usize, nodes: &mut usize) -> Result<Expr, QueryError> {
    *nodes = nodes.checked_sub(1).ok_or(QueryError::TooLarge)?;
    let depth = depth.checked_sub(1).ok_or(QueryError::TooLarge)?;
    let tag: u8 = from.take()?;
    Ok(match tag {
        ALL | ANY => {
            let count = from.take::<u16>()?;
            let parts = (0..count).map(|_| take(from, depth, nodes)).collect::<Result<_, _>>()?;
            if tag == ALL { Expr::All(parts) } else { Expr::Any(parts) }
        }
        NOT => Expr::Not(Box::new(take(from, depth, nodes)?)),
        tag => Expr::Test(take_test(tag, from)?),
    })
}

impl Test {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Test::Name(glob) => put_tagged(out, NAME, glob),
            Test::Path(glob) => put_tagged(out, PATH, glob),
            Test::Kind(kinds) => put_tagged(out, KIND, kinds),
            Test::Size(span) => put_tagged(out, SIZE, span),
            Test::Time(of, span) => {
                out.extend_from_slice(&[TIME, of.to_u8()]);
                span.from.put(out);
                span.until.put(out);
            }
            Test::Permissions(wanted) => {
                let (how, bits) = match wanted {
                    Permissions::Exactly(bits) => (0u8, bits),
                    Permissions::All(bits) => (1, bits),
                    Permissions::Any(bits) => (2, bits),
                };
                out.extend_from_slice(&[PERMISSIONS, how]);
                bits.put(out);
            }
            Test::Uid(span) => put_tagged(out, UID, span),
            Test::Gid(span) => put_tagged(out, GID, span),
            Test::Links(span) => put_tagged(out, LINKS, span),
            Test::Empty => out.push(EMPTY),
            Test::Osts(osts) => put_tagged(out, OSTS, osts),
            Test::Mdts(mdts) => put_tagged(out, MDTS, mdts),
            Test::StripeCount(span) => put_tagged(out, STRIPE_COUNT, span),
            Test::StripeSize(span) => put_tagged(out, STRIPE_SIZE, span),
            Test::Layout(bits) => put_tagged(out, LAYOUT, bits),
            Test::Pool(pool) => put_tagged(out, POOL, pool),
            Test::Project(span) => put_tagged(out, PROJECT, span),
            Test::ComponentCount(span) => put_tagged(out, COMPONENT_COUNT, span),
            Test::ComponentStart(span) => put_tagged(out, COMPONENT_START, span),
            Test::ComponentEnd(span) => put_tagged(out, COMPONENT_END, span),
            Test::ComponentFlags(wanted, unwanted) => {
                put_tagged(out, COMPONENT_FLAGS, wanted);
                unwanted.put(out);
            }
            Test::ExtensionSize(span) => put_tagged(out, EXTENSION_SIZE, span),
        }
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, value: &impl Wire) {
    out.push(tag);
    value.put(out);
}

fn take_test(tag: u8, from: &mut Reader) -> Result<Test, QueryError> {
    Ok(match tag {
        NAME => Test::Name(from.take()?),
        PATH => Test::Path(from.take()?),
        KIND => Test::Kind(from.take()?),
        SIZE => Test::Size(from.take()?),
        TIME => {
            let of = TimeOf::from_u8(from.take()?).ok_or(QueryError::Unknown(tag))?;
            Test::Time(of, TimeSpan { from: from.take()?, until: from.take()? })
        }
        PERMISSIONS => {
            let (how, bits) = (from.take::<u8>()?, from.take()?);
            Test::Permissions(match how {
                0 => Permissions::Exactly(bits),
                1 => Permissions::All(bits),
                2 => Permissions::Any(bits),
                _ => return Err(QueryError::Unknown(tag)),
            })
        }
        UID => Test::Uid(from.take()?),
        GID => Test::Gid(from.take()?),
        LINKS => Test::Links(from.take()?),
        EMPTY => Test::Empty,
        OSTS => Test::Osts(take_indexes(from)?.into_iter().map(OstIndex).collect()),
        MDTS => Test::Mdts(take_indexes(from)?),
        STRIPE_COUNT => Test::StripeCount(from.take()?),
        STRIPE_SIZE => Test::StripeSize(from.take()?),
        LAYOUT => Test::Layout(from.take()?),
        POOL => Test::Pool(from.take()?),
        PROJECT => Test::Project(from.take()?),
        COMPONENT_COUNT => Test::ComponentCount(from.take()?),
        COMPONENT_START => Test::ComponentStart(from.take()?),
        COMPONENT_END => Test::ComponentEnd(from.take()?),
        COMPONENT_FLAGS => Test::ComponentFlags(from.take()?, from.take()?),
        EXTENSION_SIZE => Test::ExtensionSize(from.take()?),
        unknown => return Err(QueryError::Unknown(unknown)),
    })
}

fn take_indexes(from: &mut Reader) -> Result<Vec<u32>, QueryError> {
    let indexes: Vec<u32> = from.take()?;
    if indexes.len() > INDEXES_MAX { Err(QueryError::TooLarge) } else { Ok(indexes) }
}

impl TimeOf {
    fn to_u8(self) -> u8 {
        match self {
            TimeOf::Access => 0,
            TimeOf::Modification => 1,
            TimeOf::Change => 2,
            TimeOf::Birth => 3,
        }
    }

    fn from_u8(number: u8) -> Option<TimeOf> {
        [TimeOf::Access, TimeOf::Modification, TimeOf::Change, TimeOf::Birth]
            .get(usize::from(number))
            .copied()
    }
}

impl Wire for Glob {
    fn put(&self, out: &mut Vec<u8>) {
        self.ignores_case.put(out);
        self.pattern.put(out);
    }
    fn take(from: &mut Reader) -> Result<Glob, DecodeError> {
        Ok(Glob { ignores_case: from.take()?, pattern: from.take()? })
    }
}

impl Wire for Span {
    fn put(&self, out: &mut Vec<u8>) {
        self.min.put(out);
        self.max.put(out);
    }
    fn take(from: &mut Reader) -> Result<Span, DecodeError> {
        Ok(Span { min: from.take()?, max: from.take()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn of_each() -> Expr {
        let span = Span { min: 1, max: 9 };
        let glob = || Glob { pattern: Bytes::from_static(b"*01*"), ignores_case: true };
        let time = |secs| Timestamp { secs, nanos: 5 };
        let tests = [
            Test::Name(glob()),
            Test::Path(glob()),
            Test::Kind(3),
            Test::Size(span),
            Test::Time(TimeOf::Change, TimeSpan { from: time(1), until: time(2) }),
            Test::Permissions(Permissions::Exactly(0o644)),
            Test::Permissions(Permissions::All(0o044)),
            Test::Permissions(Permissions::Any(0o002)),
            Test::Uid(span),
            Test::Gid(span),
            Test::Links(span),
            Test::Empty,
            Test::Osts(vec![OstIndex(3), OstIndex(0x1f)]),
            Test::Mdts(vec![0]),
            Test::StripeCount(span),
            Test::StripeSize(span),
            Test::ComponentCount(span),
            Test::ComponentStart(span),
            Test::ComponentEnd(span),
            Test::ComponentFlags(1, 2),
            Test::ExtensionSize(span),
            Test::Project(span),
            Test::Layout(1),
            Test::Pool(Bytes::from_static(b"flash")),
        ];
        let tests = tests.into_iter().map(Expr::Test).collect();
        Expr::Any(vec![Expr::Not(Box::new(Expr::All(tests))), Expr::All(vec![])])
    }

    #[test]
    fn bytes_give_their_expression_back() {
        let bytes = of_each().encode();
        assert_eq!(Expr::decode(bytes.clone()), Ok(of_each()));
        for len in 0..bytes.len() {
            assert!(Expr::decode(bytes.slice(..len)).is_err(), "cut after {len} bytes");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut changed = bytes.to_vec();
                changed[at] = value;
                // Whatever it is then, it says so and ends.
                if let Ok(expr) = Expr::decode(Bytes::from(changed.clone())) {
                    assert_eq!(expr.encode(), changed);
                }
            }
        }
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let nested = |depth: usize| [vec![NOT; depth], vec![EMPTY]].concat();
        assert!(Expr::decode(nested(DEPTH_MAX - 1).into()).is_ok());
        assert_eq!(Expr::decode(nested(DEPTH_MAX).into()), Err(QueryError::TooLarge));
        let wide = |count: usize| Expr::Any(vec![Expr::Test(Test::Empty); count]).encode();
        assert!(Expr::decode(wide(NODES_MAX - 1)).is_ok());
        assert_eq!(Expr::decode(wide(NODES_MAX)), Err(QueryError::TooLarge));
        assert_eq!(Expr::decode(vec![0; QUERY_BYTES_MAX + 1].into()), Err(QueryError::TooLarge));
        assert_eq!(Expr::decode(vec![99].into()), Err(QueryError::Unknown(99)));
        assert_eq!(Expr::decode(vec![EMPTY, EMPTY].into()), Err(QueryError::Damaged));
    }
}
