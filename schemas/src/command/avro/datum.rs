//! Avro's binary encoding, read without copies and without trust: every length is held against the bytes that are there.

use super::shape::Shape;

/// Why bytes do not follow their schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

/// What stands in a place that may hold a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found<'a> {
    Null,
    Boolean(bool),
    Number(i64),
    /// Should be UTF-8.
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Symbol(String),
    /// Epoch milliseconds, rounded up.
    Instant(i64),
    Local,
    /// What no scalar field can be; skipped.
    Other(&'static str),
}

/// What is left of a datum.
pub(super) struct Datum<'a> {
    rest: &'a [u8],
}

impl<'a> Datum<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Datum<'a> {
        Datum { rest: bytes }
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Broken("ends in the middle"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn long(&mut self) -> Result<i64, Broken> {
        let mut zigzag = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(Broken("has a number of more than 64 bits"));
            }
            zigzag |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed()));
            }
        }
        Err(Broken("has a number of more than 64 bits"))
    }

    fn int(&mut self) -> Result<i64, Broken> {
        let number = self.long()?;
        i32::try_from(number).map(i64::from).map_err(|_| Broken("has an int of more than 32 bits"))
    }

    fn boolean(&mut self) -> Result<bool, Broken> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Broken("has a boolean that is neither 0 nor 1")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Broken> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| Broken("has a negative length"))?;
        self.take(length)
    }

    /// The branch of a union that comes next.
    pub(super) fn branch<'s>(&mut self, branches: &'s [Shape]) -> Result<&'s Shape, Broken> {
        let index = self.long()?;
        let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
        branch.ok_or(Broken("has a branch that its union does not have"))
    }

    fn symbol<'s>(&mut self, symbols: &'s [String]) -> Result<&'s str, Broken> {
        let index = self.int()?;
        let symbol = usize::try_from(index).ok().and_then(|index| symbols.get(index));
        symbol.map(String::as_str).ok_or(Broken("has a symbol that its enum does not have"))
    }

    /// The items of an array or the entries of a map: `item` reads one.
    pub(super) fn items(
        &mut self,
        mut item: impl FnMut(&mut Datum<'a>) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            // A negative count is followed by the bytes that its items take.
            let end = if count < 0 {
                let size = usize::try_from(self.long()?).map_err(|_| Broken("has a negative length"))?;
                Some(self.left().checked_sub(size).ok_or(Broken("ends in the middle"))?)
            } else {
                None
            };
            // Every item takes at least a byte (see `Shape`), so this ends with the bytes.
            for _ in 0..count.unsigned_abs() {
                item(self)?;
            }
            if end.is_some_and(|end| end != self.left()) {
                return Err(Broken("has a block of another size than it says"));
            }
        }
    }

    /// Reads a scalar, skips what is none.
    pub(super) fn scalar(&mut self, shape: &Shape) -> Result<Found<'a>, Broken> {
        Ok(match shape {
            Shape::Null => Found::Null,
            Shape::Boolean => Found::Boolean(self.boolean()?),
            Shape::Int => Found::Number(self.int()?),
            Shape::Long => Found::Number(self.long()?),
            Shape::Text => Found::Text(self.bytes()?),
            Shape::Bytes => Found::Bytes(self.bytes()?),
            Shape::Fixed(size) => Found::Bytes(self.take(*size)?),
            Shape::Enum(symbols) => Found::Symbol(self.symbol(symbols)?.to_owned()),
            Shape::Instant { per_ms } => Found::Instant(ceil_div(self.long()?, *per_ms)),
            Shape::Local => {
                self.long()?;
                Found::Local
            }
            Shape::Union(branches) => {
                let branch = self.branch(branches)?;
                self.scalar(branch)?
            }
            Shape::Float => {
                self.take(4)?;
                Found::Other("a float")
            }
            Shape::Double => {
                self.take(8)?;
                Found::Other("a double")
            }
            Shape::Array(items) => {
                self.items(|datum| datum.scalar(items).map(|_| ()))?;
                Found::Other("an array")
            }
            Shape::Map(values) => {
                self.items(|datum| {
                    datum.bytes()?;
                    datum.scalar(values).map(|_| ())
                })?;
                Found::Other("a map")
            }
            Shape::Record(fields) => {
                for (_, shape) in fields {
                    self.scalar(shape)?;
                }
                Found::Other("a record")
            }
            Shape::Other(name, base) => {
                self.scalar(base)?;
                Found::Other(name)
            }
        })
    }
}

/// Towards later: a task may be late but never early.
fn ceil_div(number: i64, by: i64) -> i64 {
    number.div_euclid(by) + i64::from(number.rem_euclid(by) != 0)
}
