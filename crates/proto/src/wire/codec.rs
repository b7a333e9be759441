//! The primitive encodings: little endian, length before content, every length bounded.

use bytes::Bytes;

use crate::limits::LIST_MAX;

/// Why bytes are not a message. Input from the wire never does worse than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends inside a field.
    #[error("the message ends inside a field")]
    Truncated,
    /// A length is over its limit.
    #[error("a length is over its limit")]
    TooLong,
    /// A value that its field cannot have.
    #[error("a field has a value that it cannot have")]
    BadValue,
    /// A kind of something that this version does not know.
    #[error("unknown {of} {value}")]
    UnknownValue {
        /// Of what it is a kind.
        of: &'static str,
        /// Its number.
        value: u32,
    },
    /// Not a weft message.
    #[error("not a weft message")]
    BadMagic,
    /// A checksum does not match.
    #[error("a checksum does not match")]
    BadChecksum,
    /// An operation that this version does not know.
    #[error("unknown operation {0}")]
    UnknownOperation(u16),
}

/// Takes values from the front of received bytes. Slices of it share the received buffer.
#[derive(Debug, Clone)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// A reader of all of `bytes`.
    pub fn new(bytes: Bytes) -> Reader {
        Reader { rest: bytes }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes, shared with the input.
    pub fn take_bytes(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(self.rest.split_to(len))
    }

    /// The next `N` bytes.
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let array = *self.rest.first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        let _ = self.rest.split_to(N);
        Ok(array)
    }

    /// The next value.
    pub fn take<T: Wire>(&mut self) -> Result<T, DecodeError> {
        T::take(self)
    }

    /// The next value, or the default if the sender's version ended the message before it.
    pub fn take_or_default<T: Wire + Default>(&mut self) -> Result<T, DecodeError> {
        if self.rest.is_empty() { Ok(T::default()) } else { T::take(self) }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl Reader {
    /// A reader of the next struct that is preceded by its length. What a newer peer has put at its end is skipped with it.
    pub fn take_framed(&mut self) -> Result<Reader, DecodeError> {
        let len = self.take::<u32>()?;
        Ok(Reader::new(self.take_bytes(len as usize)?))
    }
}

/// Appends what `put` appends, preceded by its length: the form of a struct within another one.
pub fn put_framed(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out);
    let len = (out.len() - at - 4) as u32;
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&len.to_le_bytes());
    }
}

/// What the body of a message can be: a struct, of which the frame says the length.
pub trait Body: Sized {
    /// Appends the fields to `out`.
    fn put_fields(&self, out: &mut Vec<u8>);
    /// Takes the fields from `from`; what comes behind them is left there.
    fn take_fields(from: &mut Reader) -> Result<Self, DecodeError>;
}

/// A value that travels.
pub trait Wire: Sized {
    /// Appends the value to `out`.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes a value from `from`.
    fn take(from: &mut Reader) -> Result<Self, DecodeError>;
}

macro_rules! wire_integers {
    ($($type:ty),*) => { $(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut Reader) -> Result<Self, DecodeError> {
                Ok(<$type>::from_le_bytes(from.take_array()?))
            }
        }
    )* };
}

wire_integers!(u8, u16, u32, u64, u128, i32, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut Reader) -> Result<bool, DecodeError> {
        match from.take::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::BadValue),
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(from: &mut Reader) -> Result<Box<T>, DecodeError> {
        T::take(from).map(Box::new)
    }
}

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }
    fn take(from: &mut Reader) -> Result<Bytes, DecodeError> {
        let len = from.take::<u32>()?;
        from.take_bytes(len as usize)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(from: &mut Reader) -> Result<String, DecodeError> {
        let bytes: Bytes = from.take()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::BadValue)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader) -> Result<Option<T>, DecodeError> {
        if from.take::<bool>()? { Ok(Some(from.take()?)) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(from: &mut Reader) -> Result<Vec<T>, DecodeError> {
        let count = from.take::<u32>()? as usize;
        if count > LIST_MAX {
            return Err(DecodeError::TooLong);
        }
        // Every item takes at least a byte: a count beyond that is a lie, and must not reserve memory.
        let mut items = Vec::with_capacity(count.min(from.remaining()));
        for _ in 0..count {
            items.push(from.take()?);
        }
        Ok(items)
    }
}

/// Gives a struct its encodings, from its fields in order: [`Body`], and with its length before it [`Wire`]. Fields behind the
/// semicolon came later: an older peer's struct ends before them, and they have their default then.
#[macro_export]
macro_rules! wire_fields {
    ($name:ident { $($field:ident),* $(; $($later:ident),*)? }) => {
        impl $crate::wire::Body for $name {
            fn put_fields(&self, _out: &mut Vec<u8>) {
                $($crate::wire::Wire::put(&self.$field, _out);)*
                $($($crate::wire::Wire::put(&self.$later, _out);)*)?
            }
            fn take_fields(_from: &mut $crate::wire::Reader) -> Result<Self, $crate::wire::DecodeError> {
                Ok($name { $($field: _from.take()?,)* $($($later: _from.take_or_default()?,)*)? })
            }
        }
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $crate::wire::put_framed(out, |out| $crate::wire::Body::put_fields(self, out));
            }
            fn take(from: &mut $crate::wire::Reader) -> Result<Self, $crate::wire::DecodeError> {
                $crate::wire::Body::take_fields(&mut from.take_framed()?)
            }
        }
    };
}

/// Declares a struct that travels: its fields in order. New fields are added at the end, behind the semicolon, as `Option`s or values
/// with a default.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$fmeta:meta])* pub $field:ident: $type:ty,)*
        $(; $($(#[$lmeta:meta])* pub $later:ident: $ltype:ty,)*)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $type,)*
            $($($(#[$lmeta])* pub $later: $ltype,)*)?
        }
        $crate::wire_fields!($name { $($field),* $(; $($later),*)? });
    };
}
