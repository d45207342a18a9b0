//! The schemas of headers are documents: these tests hold them to the headers that the code writes.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use super::samples;
use crate::avro::SHIPPED;
use crate::command::{ReasonCode, Refusal};
use crate::delivery::{AddedHeader, Origin, dead_headers, delivered_headers, rejected, rejected_headers};
use crate::due::{Deliver, DueKind, DueRecord};

/// Header names of the newest version of a document, and whether they may be absent.
fn documented(record: &str) -> BTreeMap<String, bool> {
    let (_, versions) = SHIPPED.iter().find(|(name, _)| *name == record).unwrap();
    let schema: Value = serde_json::from_str(versions.last().unwrap()).unwrap();
    let fields = schema["fields"].as_array().unwrap().iter();
    fields
        .map(|field| {
            let header = field["header"].as_str().unwrap();
            let name = header.strip_prefix("duestream-").unwrap().replace('-', "_");
            assert_eq!(field["name"], name, "a field is named after its header");
            (header.to_owned(), field["type"].is_array())
        })
        .collect()
}

/// Holds a document to the least and the most that is written.
#[track_caller]
fn check(record: &str, least: &[AddedHeader], most: &[AddedHeader]) {
    let documented = documented(record);
    let names = |headers: &[AddedHeader]| -> BTreeSet<String> {
        headers.iter().map(|header| header.name.to_owned()).collect()
    };
    assert_eq!(names(most), documented.keys().cloned().collect(), "{record}: all headers");
    let required: BTreeSet<String> =
        documented.iter().filter(|(_, optional)| !**optional).map(|(name, _)| name.clone()).collect();
    let given = least.iter().filter(|header| header.value.is_some()).map(|header| header.name.to_owned());
    assert_eq!(given.collect::<BTreeSet<_>>(), required, "{record}: headers that are always there");
}

fn deliver(due: &DueRecord) -> &Deliver {
    match &due.kind {
        DueKind::Deliver(deliver) => deliver,
        DueKind::Withdraw => panic!("a delivery"),
    }
}

#[test]
fn the_headers_of_a_callback_record_are_documented() {
    let headers = |due: &DueRecord| delivered_headers(due, deliver(due), 1);
    check(
        "callback_headers",
        &headers(&samples::due_deliver_least()),
        &headers(&samples::due_deliver_most()),
    );
}

#[test]
fn the_headers_of_a_dead_letter_are_documented() {
    let headers = |due: &DueRecord| dead_headers(due, deliver(due), "expired", "It expired.", 1);
    check("dead_headers", &headers(&samples::due_deliver_least()), &headers(&samples::due_deliver_most()));
}

#[test]
fn the_headers_of_a_rejected_command_are_documented() {
    let origin = Origin { topic: "tasks", partition: 1, offset: 2, timestamp_at: 3 };
    let headers = |refusal| rejected_headers(&refusal, &origin);
    let least = headers(Refusal::of_record(ReasonCode::NotACommand, "is none"));
    let mut most = headers(Refusal::of_field(ReasonCode::DueMissing, "due_at", "is missing"));
    // Ingest adds them where it must cut the value.
    let added = [rejected::VALUE_BYTES, rejected::VALUE_SHA256];
    most.extend(added.map(|name| AddedHeader { name, value: Some(b"1".to_vec()) }));
    check("rejection_headers", &least, &most);
}
