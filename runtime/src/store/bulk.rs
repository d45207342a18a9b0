//! Inserts of many rows with a fixed set of texts.

use super::sql::Call;
use sqlx::mysql::MySqlArguments;
use std::sync::OnceLock;

/// Rows per statement. Past 500 only the latency grows; free row counts would evict prepared statements.
const SIZES: [usize; 4] = [500, 100, 10, 1];

/// Cut here: far below `max_allowed_packet`, and a lock is held no longer than it takes to send this.
const MAX_BYTES: usize = 4 << 20;

/// `INSERT INTO table (columns) VALUES (…),(…)…` in chunks of 500, 100, 10 and 1 rows. Always a `static`.
#[derive(Debug)]
pub struct Bulk {
    /// Labels errors and metrics; unique.
    pub name: &'static str,
    table: &'static str,
    columns: &'static [&'static str],
    texts: OnceLock<[String; 4]>,
}

impl Bulk {
    /// A plain insert into `table` (quoted where needed).
    pub const fn insert(name: &'static str, table: &'static str, columns: &'static [&'static str]) -> Bulk {
        Bulk { name, table, columns, texts: OnceLock::new() }
    }

    /// How many values a row has.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    fn text(&'static self, size: usize) -> &'static str {
        let texts = self.texts.get_or_init(|| SIZES.map(|rows| self.render(rows)));
        let at = SIZES.iter().position(|s| *s == size).expect("a size of SIZES");
        &texts[at]
    }

    fn render(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns.len()].join(","));
        format!(
            "INSERT INTO {} ({}) VALUES {}",
            self.table,
            self.columns.join(", "),
            vec![row; rows].join(",")
        )
    }

    /// The statement for the next rows and how many of `rows` it takes. `bytes` is about what a row weighs,
    /// `bind` adds its values in the order of the columns.
    pub(super) fn next<T>(
        &'static self,
        rows: &[T],
        bytes: &impl Fn(&T) -> usize,
        bind: &impl Fn(Call, &T) -> Call,
    ) -> (Call, usize) {
        let size = SIZES
            .into_iter()
            .find(|size| *size <= rows.len() && rows[..*size].iter().map(bytes).sum::<usize>() <= MAX_BYTES)
            .unwrap_or(1);
        let call = Call { name: self.name, text: self.text(size), arguments: Ok(MySqlArguments::default()) };
        (rows[..size].iter().fold(call, bind), size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TWO: Bulk = Bulk::insert("two", "t", &["a", "b"]);

    fn sizes(weights: &[usize]) -> Vec<usize> {
        let (mut rest, mut out) = (weights, Vec::new());
        while !rest.is_empty() {
            let (_, taken) = TWO.next(rest, &|w| *w, &|call, _| call.bind(1).bind(2));
            out.push(taken);
            rest = &rest[taken..];
        }
        out
    }

    #[test]
    fn any_number_of_rows_is_cut_into_the_fixed_sizes() {
        assert_eq!(sizes(&[1; 612]), [500, 100, 10, 1, 1]);
        assert_eq!(TWO.text(10).matches("(?,?)").count(), 10);
    }

    #[test]
    fn a_statement_stays_below_four_mebibytes_where_a_row_does() {
        assert_eq!(sizes(&[900 << 10; 5]), [1; 5]);
        assert_eq!(sizes(&[400 << 10; 12]), [10, 1, 1]);
        assert_eq!(sizes(&[5 << 20]), [1]);
    }
}
