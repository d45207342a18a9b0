//! Statements with a fixed text, a name and example values.

use super::error::StoreError;
use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySql, MySqlArguments};

/// A statement. Always a `static` listed in [`super::queries::ALL`].
#[derive(Debug)]
pub struct Sql {
    /// Labels errors and metrics; unique.
    pub name: &'static str,
    /// The text, with `?` for values and no `?` anywhere else.
    pub text: &'static str,
    /// Example values, one per `?`: the plan tests explain the statement with them.
    pub example: &'static [Bind],
    /// What its plan must look like.
    pub plan: Plan,
}

/// What the plan tests demand of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Run per batch, page or row: reads stored tables by key only, joins by `eq_ref`, sorts nothing. Held by snapshot.
    Hot,
    /// Reads a range of a key that is meant to be read, such as a page. As hot, but a range (and nothing wider) is right.
    Range,
    /// Run at start, or over a table of a few hundred rows. Says why it needs no plan.
    Cold(&'static str),
}

/// An example value.
#[derive(Clone, Copy, Debug)]
pub enum Bind {
    /// An unsigned number.
    U(u64),
    /// A signed number.
    I(i64),
    /// Bytes.
    B(&'static [u8]),
    /// Text, such as the JSON of a set of keys.
    S(&'static str),
    /// NULL.
    Null,
}

impl Sql {
    /// A statement that reads by key.
    pub const fn hot(name: &'static str, text: &'static str, example: &'static [Bind]) -> Sql {
        Sql { name, text, example, plan: Plan::Hot }
    }

    /// A statement that reads a bounded range of a key.
    pub const fn range(name: &'static str, text: &'static str, example: &'static [Bind]) -> Sql {
        Sql { name, text, example, plan: Plan::Range }
    }

    /// A statement that needs no plan, and why.
    pub const fn cold(name: &'static str, text: &'static str, why: &'static str) -> Sql {
        Sql { name, text, example: &[], plan: Plan::Cold(why) }
    }

    /// A call without values.
    pub fn call(&'static self) -> Call {
        Call { name: self.name, text: self.text, arguments: Ok(MySqlArguments::default()) }
    }

    /// A call with its first value.
    pub fn bind<'q, T: sqlx::Encode<'q, MySql> + sqlx::Type<MySql>>(&'static self, value: T) -> Call {
        self.call().bind(value)
    }
}

/// A statement with its values, ready for [`super::Session`].
#[derive(Debug)]
pub struct Call {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) arguments: Result<MySqlArguments, BoxDynError>,
}

impl Call {
    /// Adds the next value.
    #[must_use]
    pub fn bind<'q, T: sqlx::Encode<'q, MySql> + sqlx::Type<MySql>>(mut self, value: T) -> Call {
        self.arguments = self.arguments.and_then(|mut arguments| {
            arguments.add(value)?;
            Ok(arguments)
        });
        self
    }
    pub(super) fn into_parts(self) -> Result<(&'static str, &'static str, MySqlArguments), StoreError> {
        let Call { name, text, arguments } = self;
        let arguments =
            arguments.map_err(|e| StoreError::Other { op: name, source: sqlx::Error::Encode(e) })?;
        Ok((name, text, arguments))
    }
}
