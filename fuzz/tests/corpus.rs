//! The corpus without libFuzzer: what was found once is looked for in every test run.

use fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn names(folder: &Path, suffix: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    names.filter_map(|name| name.strip_suffix(suffix).map(str::to_owned)).collect()
}

// One test and not one per target: the memory that they take is measured for the whole process.
#[test]
fn every_file_of_the_corpus_keeps_the_properties_of_its_target() {
    for target in TARGETS {
        let folder = folder("corpus").join(target.name);
        let files = names(&folder, "");
        assert!(files.len() >= 5, "{} has only {} files", folder.display(), files.len());
        for file in files {
            let path = folder.join(file);
            let data = fs::read(&path).expect("a file of the corpus");
            // Named before, not after: a panic says what was wrong, not with which file.
            println!("{}", path.display());
            (target.run)(&data);
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_a_libfuzzer_program() {
    let known: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names(&folder("corpus"), ""), known);
    assert_eq!(names(&folder("fuzz_targets"), ".rs"), known);
}
