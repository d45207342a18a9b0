//! Templates of `--map`: text with `{column}` and `{line}` in it.

use super::rows::{Cell, Row};

/// A template, ready to be filled from rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Column(String),
    /// Number of the row's line in the file.
    Line,
}

impl Template {
    /// Text that stands for itself.
    pub(crate) fn literal(text: &str) -> Template {
        Template { parts: vec![Part::Text(text.to_owned())] }
    }

    /// `{column}`, `{line}`, text; `{{` and `}}` are braces.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = match (brace, rest.split_once('}')) {
                ("{", Some((name, after))) if !name.is_empty() && !name.contains('{') => (name, after),
                _ => {
                    return Err(format!(
                        "{text:?}: a brace without its partner; write {{column}}, or {{{{ for a brace"
                    ));
                }
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(if name == "line" { Part::Line } else { Part::Column(name.to_owned()) });
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() || parts.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Template { parts })
    }

    /// Columns that it takes.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Column(name) => Some(name.as_str()),
            Part::Text(_) | Part::Line => None,
        })
    }

    /// Fills it. `None`: it is one column, which this row does not have or which is null.
    pub(crate) fn fill(&self, row: &Row) -> Result<Option<String>, String> {
        if let [Part::Column(name)] = &self.parts[..] {
            return Ok(match row.cell(name) {
                Cell::Absent => None,
                Cell::Text(text) => Some(text),
            });
        }
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Line => out.push_str(&row.line.to_string()),
                Part::Column(name) => match row.cell(name) {
                    Cell::Absent => return Err(format!("has no {name}")),
                    Cell::Text(text) => out.push_str(&text),
                },
            }
        }
        Ok(Some(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row::from_json(7, r#"{"a":"x","n":3,"nothing":null}"#).unwrap()
    }

    fn fill(template: &str) -> Result<Option<String>, String> {
        Template::parse(template).unwrap().fill(&row())
    }

    #[test]
    fn columns_line_and_text_are_joined() {
        assert_eq!(fill("{line}-{a}-{n}"), Ok(Some("7-x-3".into())));
        assert_eq!(fill("{a}"), Ok(Some("x".into())));
        assert_eq!(fill("plain"), Ok(Some("plain".into())));
        assert_eq!(fill(""), Ok(Some(String::new())));
        assert_eq!(fill("{{a}} {{{a}}}"), Ok(Some("{a} {x}".into())));
    }

    #[test]
    fn a_missing_column_alone_is_no_value_and_within_text_an_error() {
        assert_eq!(fill("{b}"), Ok(None));
        assert_eq!(fill("{nothing}"), Ok(None));
        assert_eq!(fill("x{b}"), Err("has no b".into()));
    }

    #[test]
    fn a_brace_without_its_partner_is_refused() {
        for text in ["{a", "a}", "{}", "{a{b}", "{"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_literal_is_never_filled() {
        assert_eq!(Template::literal("{a}").fill(&row()), Ok(Some("{a}".into())));
    }
}
