//! docs/CONTRACT.md against the code. `UPDATE=1` rewrites its tables.

use std::fmt::Write;
use std::path::PathBuf;

use super::*;
use crate::delivery::{self, DeadReason, dead, rejected};
use crate::reply::{self, Answer};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/CONTRACT.md")
}

/// Compares what stands between the marks of a table with what the code says.
fn check_table(table: &str, rows: &str) {
    let text = std::fs::read_to_string(path()).unwrap();
    let (begin, end) = (format!("<!-- begin {table} -->\n"), format!("<!-- end {table} -->"));
    let start = text.find(&begin).expect("the table begins") + begin.len();
    let stop = start + text[start..].find(&end).expect("the table ends");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path(), [&text[..start], rows, &text[stop..]].concat()).unwrap();
    } else {
        assert_eq!(
            &text[start..stop],
            rows,
            "docs/CONTRACT.md is behind the code: UPDATE=1 rewrites its tables"
        );
    }
}

// One test for all tables: each rewrites the file.
#[test]
fn the_tables_of_codes_are_those_of_the_code() {
    let mut rows = String::from("| code | refused when | remedy |\n|---|---|---|\n");
    for code in ReasonCode::ALL {
        let capital = |text: &str| text[..1].to_uppercase() + &text[1..];
        writeln!(rows, "| `{code}` | {} | {}. |", code.rule(), capital(code.remedy())).unwrap();
    }
    check_table("reason codes", &rows);

    let mut rows = String::from("| code | buried because |\n|---|---|\n");
    for reason in DeadReason::ALL {
        writeln!(rows, "| `{}` | {} |", reason.as_str(), reason.meaning()).unwrap();
    }
    check_table("dead reasons", &rows);

    let mut rows = String::from("| answer | means |\n|---|---|\n");
    for answer in Answer::ALL {
        writeln!(rows, "| `{}` | {} |", answer.as_str(), answer.meaning()).unwrap();
    }
    check_table("answers", &rows);
}

#[test]
fn every_name_of_the_contract_is_documented() {
    let text = std::fs::read_to_string(path()).unwrap();
    let fields = field::Field::ALL.iter().flat_map(|field| [field.header(), field.json()]);
    let json_only = ["value", "value_base64", "key_base64", "headers"];
    let added = [
        delivery::TASK_ID,
        delivery::SHARD_KEY,
        delivery::ATTEMPT,
        delivery::DUE_AT,
        delivery::ASKED_AT,
        delivery::DELIVERED_AT,
        delivery::DELIVERY_ID,
        delivery::PROGRESS,
        dead::TOPIC,
        dead::KEY,
        dead::PARTITION,
        dead::EXPIRES_AT,
        dead::DEAD_REASON,
        dead::DEAD_MESSAGE,
        dead::DEAD_AT,
        dead::HISTORY,
        rejected::REASON,
        rejected::FIELD,
        rejected::MESSAGE,
        rejected::SOURCE_TOPIC,
        rejected::SOURCE_PARTITION,
        rejected::SOURCE_OFFSET,
        rejected::SOURCE_TIMESTAMP,
        rejected::VALUE_BYTES,
        rejected::VALUE_SHA256,
        reply::ANSWER,
        reply::CORRELATION,
        reply::TASK_ID,
        reply::SHARD_KEY,
        reply::DUE_AT,
        reply::REASON,
        reply::FIELD,
        reply::MESSAGE,
        reply::SOURCE_TOPIC,
        reply::SOURCE_PARTITION,
        reply::SOURCE_OFFSET,
    ];
    for name in fields.chain(json_only).chain(added) {
        assert!(text.contains(&format!("`{name}`")), "{name} is missing in docs/CONTRACT.md");
    }
}
