//! Rows of a CSV or JSONL file.

use crate::cli::Format;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where rows come from. Read twice: once to check every row, once to submit.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(PathBuf),
    /// stdin, kept.
    Memory(Arc<[u8]>),
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Number of its (first) line in the file, from 1.
    pub(crate) line: u64,
    columns: Columns,
}

#[derive(Clone, Debug)]
enum Columns {
    Csv { names: Arc<csv::StringRecord>, values: csv::StringRecord },
    Json { text: String, object: Map<String, Value> },
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The row does not have it, or it is null.
    Absent,
    Text(String),
}

type Rows = Box<dyn Iterator<Item = Result<Row, String>>>;

impl Source {
    pub(crate) fn of(path: &Path) -> std::io::Result<Source> {
        if path.as_os_str() != "-" {
            return Ok(Source::File(path.to_owned()));
        }
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        Ok(Source::Memory(bytes.into()))
    }

    /// The form that the name of the file tells.
    pub(crate) fn format(&self) -> Option<Format> {
        let Source::File(path) = self else { return None };
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            _ => None,
        }
    }

    fn open(&self) -> std::io::Result<Box<dyn Read>> {
        Ok(match self {
            Source::File(path) => Box::new(File::open(path)?),
            Source::Memory(bytes) => Box::new(Cursor::new(bytes.clone())),
        })
    }

    /// Names of the columns, of a CSV file.
    pub(crate) fn header(&self) -> Result<Vec<String>, String> {
        let mut reader = csv::Reader::from_reader(self.open().map_err(|e| e.to_string())?);
        Ok(reader.headers().map_err(|e| e.to_string())?.iter().map(str::to_owned).collect())
    }

    /// The rows. One that cannot be read comes as a problem that names its line.
    pub(crate) fn rows(&self, format: Format) -> Result<Rows, String> {
        let read = self.open().map_err(|e| e.to_string())?;
        match format {
            Format::Csv => csv_rows(read),
            Format::Jsonl => Ok(json_rows(read)),
        }
    }
}

fn csv_rows(read: Box<dyn Read>) -> Result<Rows, String> {
    let mut reader = csv::Reader::from_reader(read);
    let names = Arc::new(reader.headers().map_err(|e| e.to_string())?.clone());
    Ok(Box::new(reader.into_records().map(move |record| match record {
        Ok(values) => {
            let line = values.position().map_or(0, csv::Position::line);
            Ok(Row { line, columns: Columns::Csv { names: names.clone(), values } })
        }
        Err(error) => {
            let line = error.position().map_or(0, csv::Position::line);
            Err(format!("line {line}: {error}"))
        }
    })))
}

fn json_rows(read: Box<dyn Read>) -> Rows {
    let lines = BufReader::new(read).lines().zip(1..);
    Box::new(lines.filter_map(|(text, line)| match text {
        Ok(text) if text.trim().is_empty() => None,
        Ok(text) => Some(Row::from_json(line, &text)),
        Err(error) => Some(Err(format!("line {line}: {error}"))),
    }))
}

impl Row {
    /// The one row of a submission that has no file.
    pub(crate) fn none() -> Row {
        Row { line: 1, columns: Columns::Json { text: String::new(), object: Map::new() } }
    }

    /// A line of JSONL.
    pub(crate) fn from_json(line: u64, text: &str) -> Result<Row, String> {
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => {
                Ok(Row { line, columns: Columns::Json { text: text.trim().to_owned(), object } })
            }
            Ok(_) => Err(format!("line {line}: is no JSON object")),
            Err(error) => Err(format!("line {line}: {error}")),
        }
    }

    pub(crate) fn cell(&self, name: &str) -> Cell {
        match &self.columns {
            Columns::Csv { names, values } => names
                .iter()
                .position(|column| column == name)
                .and_then(|at| values.get(at))
                .map_or(Cell::Absent, |text| Cell::Text(text.to_owned())),
            Columns::Json { object, .. } => match object.get(name) {
                None | Some(Value::Null) => Cell::Absent,
                Some(Value::String(text)) => Cell::Text(text.clone()),
                Some(other) => Cell::Text(other.to_string()),
            },
        }
    }

    /// The whole row as a JSON object: of JSONL the line as it stands.
    pub(crate) fn json(&self) -> String {
        match &self.columns {
            Columns::Csv { names, values } => {
                // By hand, because a map would sort the columns.
                let fields = names
                    .iter()
                    .zip(values)
                    .map(|(name, value)| format!("{}:{}", Value::from(name), Value::from(value)));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
            Columns::Json { text, .. } => text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::Memory(text.as_bytes().into())
    }

    #[test]
    fn csv_rows_have_their_line_and_become_json_in_column_order() {
        let source = source("z,a\n1,\"two\nlines\"\n3,\"say \"\"hi\"\"\"\n");
        let rows: Vec<Row> = source.rows(Format::Csv).unwrap().map(Result::unwrap).collect();
        assert_eq!(source.header().unwrap(), ["z", "a"]);
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(rows[0].json(), r#"{"z":"1","a":"two\nlines"}"#);
        assert_eq!(rows[1].cell("a"), Cell::Text("say \"hi\"".into()));
        assert_eq!(rows[1].cell("b"), Cell::Absent);
    }

    #[test]
    fn json_lines_are_kept_as_they_stand_and_empty_ones_passed_over() {
        let source = source("{\"b\": 1, \"a\": true}\n\n{\"a\":{\"x\":[1]}}\n");
        let rows: Vec<Row> = source.rows(Format::Jsonl).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(rows[0].json(), r#"{"b": 1, "a": true}"#);
        assert_eq!(rows[0].cell("a"), Cell::Text("true".into()));
        assert_eq!(rows[1].cell("a"), Cell::Text(r#"{"x":[1]}"#.into()));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named_by_its_line() {
        let problems: Vec<String> =
            source("a,b\n1,2\n3\n").rows(Format::Csv).unwrap().filter_map(Result::err).collect();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("line 3: "), "{problems:?}");
        let problems: Vec<String> =
            source("{}\n[1]\nx\n").rows(Format::Jsonl).unwrap().filter_map(Result::err).collect();
        assert_eq!(problems[0], "line 2: is no JSON object");
        assert!(problems[1].starts_with("line 3: expected value"), "{problems:?}");
    }
}
