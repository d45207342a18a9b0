//! Every statement of the store. A new one that is not listed here fails a test; one that is listed and hot fails the
//! plan tests (`runtime/tests/it/plans.rs`) until its plan has been looked at and kept.

use super::{
    Bulk, Sql, apply, change, db, lookup, migrate, position, purge, reemit, route, scan, server, setting,
    shard, source, tasks,
};

/// All statements, by file. A file of statements adds its `QUERIES` here.
pub const ALL: &[&[&Sql]] = &[
    apply::QUERIES,
    change::QUERIES,
    db::QUERIES,
    lookup::QUERIES,
    migrate::QUERIES,
    position::QUERIES,
    purge::QUERIES,
    reemit::QUERIES,
    scan::QUERIES,
    route::QUERIES,
    server::QUERIES,
    setting::QUERIES,
    shard::QUERIES,
    source::QUERIES,
    tasks::QUERIES,
];

/// All bulk inserts, by file. Plain inserts have no plan; they are listed for their names.
pub const BULKS: &[&[&Bulk]] = &[change::BULKS, route::BULKS, shard::BULKS, tasks::BULKS];

/// All statements in one row.
pub fn all() -> impl Iterator<Item = &'static Sql> {
    ALL.iter().flat_map(|file| file.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Plan;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_each_value_has_an_example() {
        let mut names = BTreeSet::new();
        for sql in all() {
            assert!(names.insert(sql.name), "{} stands twice", sql.name);
            if !matches!(sql.plan, Plan::Cold(_)) {
                assert_eq!(
                    sql.text.matches('?').count(),
                    sql.example.len(),
                    "{}: one example value per `?`",
                    sql.name
                );
            }
        }
        for bulk in BULKS.iter().flat_map(|file| file.iter()) {
            assert!(names.insert(bulk.name), "{} stands twice", bulk.name);
        }
    }

    /// An evicted statement costs 43 ms; each bulk insert has four texts.
    #[test]
    fn all_statements_fit_into_the_statement_cache() {
        let bulks: usize = BULKS.iter().map(|file| file.len()).sum();
        let default = toml::from_str::<toml::Table>(crate::config::MYSQL.defaults).unwrap();
        let cache = default["mysql"]["statement_cache"].as_integer().unwrap();
        assert!(all().count() + 4 * bulks < usize::try_from(cache).unwrap());
    }

    /// The registry is complete: every `static X: Sql` and `static X: Bulk` under `store/` is in it.
    #[test]
    fn every_statement_of_the_store_is_listed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
        let mut declared = 0;
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let text = text.split("#[cfg(test)]").next().unwrap();
                    let is_one = |l: &&str| {
                        l.trim_start()
                            .trim_start_matches("pub ")
                            .trim_start_matches("pub(super) ")
                            .starts_with("static ")
                            && (l.contains(": Sql =") || l.contains(": Bulk ="))
                    };
                    declared += text.lines().filter(is_one).count();
                }
            }
        }
        let bulks: usize = BULKS.iter().map(|file| file.len()).sum();
        assert_eq!(
            declared,
            all().count() + bulks,
            "a file's QUERIES or BULKS lacks one, or queries.rs lacks a file"
        );
    }
}
