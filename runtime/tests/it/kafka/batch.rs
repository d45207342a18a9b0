use super::world::{cluster, fill, producer, soon, topic, unique};
use runtime::kafka::{
    BatchProducer, BatchSettings, Disposition, Member, MemberEvent, MemberSettings, OutRecord, Record,
    Refusal,
};
use std::ffi::CString;
use std::time::Duration;

/// Reads one partition from its beginning until `count` records have come.
async fn read(topic: &str, count: usize) -> Vec<Record> {
    let mut member = Member::join(&cluster(), &MemberSettings::new(unique("batch-read"), [topic])).unwrap();
    let mut stream = soon("assignment", async {
        loop {
            if let Some(MemberEvent::Assigned(mut streams)) = member.event().await {
                return streams.remove(0);
            }
        }
    })
    .await;
    stream.start(0).await.unwrap();
    let mut out = Vec::new();
    while out.len() < count {
        out.push(soon("a record", stream.recv()).await.unwrap().unwrap());
    }
    member.leave().await;
    out
}

#[tokio::test]
async fn one_record_too_large_fails_alone() {
    let name = topic("batch-large", 1, &[("max.message.bytes", "20000")]).await;
    let record = |size: usize| OutRecord::to(name.as_str()).partition(0).value(vec![7; size]);
    let batch: Vec<_> = (0..21).map(|i| record(if i == 10 { 30_000 } else { 10 })).collect();
    let results = soon("acks", producer().send_batch(&batch)).await;
    for (i, result) in results.iter().enumerate() {
        match result {
            Ok(placed) => assert_eq!((i == 10, placed.partition), (false, 0)),
            Err(fault) => {
                assert_eq!((i, fault.disposition()), (10, Disposition::Poison(Refusal::TooLarge)), "{fault}")
            }
        }
    }
    let offsets: Vec<_> = results.iter().filter_map(|r| r.as_ref().ok()).map(|p| p.offset).collect();
    assert_eq!(offsets, (0..20).collect::<Vec<_>>(), "in order, without a gap");
}

#[tokio::test]
async fn a_record_beyond_the_clients_own_limit_fails_alone() {
    let name = topic("batch-huge", 1, &[]).await;
    let record = |size: usize| OutRecord::to(name.as_str()).partition(0).value(vec![7; size]);
    let results = soon("acks", producer().send_batch(&[record(1), record(2_000_000), record(1)])).await;
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert_eq!(results[1].as_ref().unwrap_err().disposition(), Disposition::Poison(Refusal::TooLarge));
}

#[tokio::test]
async fn a_missing_topic_or_partition_is_refused_and_the_rest_arrives() {
    let name = topic("batch-missing", 1, &[]).await;
    let batch = [
        OutRecord::to(name.as_str()).partition(0).value("a"),
        OutRecord::to(name.as_str()).partition(9).value("b"),
        OutRecord::to(unique("batch-nowhere")).partition(0).value("c"),
        OutRecord::to(name.as_str()).partition(0).value("d"),
    ];
    let results = soon("acks", producer().send_batch(&batch)).await;
    let poison = |i: usize| results[i].as_ref().unwrap_err().disposition();
    assert!(results[0].is_ok() && results[3].is_ok(), "{results:?}");
    assert_eq!(poison(1), Disposition::Poison(Refusal::UnknownPartition));
    assert_eq!(poison(2), Disposition::Poison(Refusal::UnknownTopic));
}

#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let name = topic("batch-full", 1, &[]).await;
    let mut settings = BatchSettings::new("test");
    settings.queue_kib = 64;
    let producer = BatchProducer::new(&cluster(), &settings).unwrap();
    let batch: Vec<_> =
        (0..100).map(|_| OutRecord::to(name.as_str()).partition(0).value(vec![1; 10_000])).collect();
    let results = soon("acks", producer.send_batch(&batch)).await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 100);
    producer.flush(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_batch_given_up_by_its_caller_leaves_the_producer_usable() {
    let name = topic("batch-dropped", 1, &[]).await;
    let mut settings = BatchSettings::new("test");
    settings.queue_kib = 64;
    let producer = BatchProducer::new(&cluster(), &settings).unwrap();
    let batch: Vec<_> =
        (0..50).map(|_| OutRecord::to(name.as_str()).partition(0).value(vec![1; 10_000])).collect();
    drop(tokio::time::timeout(Duration::from_millis(1), producer.send_batch(&batch)).await);
    assert!(soon("ack", producer.send(&batch[0])).await.is_ok());
}

#[tokio::test]
async fn null_and_empty_are_told_apart_on_the_way_through() {
    let name = topic("batch-null", 1, &[]).await;
    let mut nulls = OutRecord::to(name.as_str()).partition(0);
    nulls.headers.push(schemas::record::Header { name: "null".into(), value: None });
    let empties = OutRecord::to(name.as_str()).partition(0).key("").value("").header("empty", "");
    let full =
        OutRecord::to(name.as_str()).partition(0).key("k").value("v").header("a", "1").header("a", "2");
    let sent = [nulls, empties, full];
    assert!(producer().send_batch(&sent).await.iter().all(Result::is_ok));
    for (sent, got) in sent.iter().zip(read(&name, 3).await) {
        assert_eq!((&sent.key, &sent.value, &sent.headers), (&got.key, &got.value, &got.headers));
        assert!(got.headers_intact && got.at > 0);
    }
}

#[tokio::test]
async fn a_header_name_that_is_not_text_is_read_and_marked() {
    let name = topic("batch-header", 1, &[]).await;
    produce_with_header(&name, b"caf\xe9", Some(b"x"));
    fill(&name, 0, 1..2).await;
    let got = read(&name, 2).await;
    assert!(!got[0].headers_intact);
    assert_eq!(got[0].headers[0].value.as_deref(), Some(&b"x"[..]));
    assert!(got[1].headers_intact, "the partition goes on");
}

#[tokio::test]
async fn a_header_name_with_a_nul_is_not_cut_short_without_a_word() {
    let name = topic("batch-nul", 1, &[]).await;
    for (header, value) in [
        (&b"a\0b"[..], Some(&b"x"[..])),
        (b"a\0b", None),
        (b"\0", Some(b"")),
        (b"", Some(b"x")),
        (b"long name", None),
    ] {
        produce_with_header(&name, header, value);
    }
    let got = read(&name, 5).await;
    let seen: Vec<_> = got
        .iter()
        .map(|record| {
            let header = &record.headers[0];
            (header.name.as_str(), header.value.as_deref(), record.headers_intact)
        })
        .collect();
    let expected = [
        ("a\u{fffd}b", Some(&b"x"[..]), false),
        ("a\u{fffd}b", None, false),
        ("\u{fffd}", Some(b""), false),
        ("", Some(b"x"), true),
        ("long name", None, true),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_record_of_more_headers_than_clients_read_is_not_taken_for_one_without() {
    let name = topic("batch-many", 1, &[]).await;
    let with = |count: usize| {
        let mut record = OutRecord::to(name.as_str()).partition(0).value("v");
        record.headers = vec![schemas::record::Header { name: "h".into(), value: None }; count];
        record
    };
    let sent = [with(99_900), with(99_901), with(100_001), with(0)];
    assert!(producer().send_batch(&sent).await.iter().all(Result::is_ok));
    let intact: Vec<_> = read(&name, 4).await.iter().map(|record| record.headers_intact).collect();
    assert_eq!(intact, [true, false, false, true]);
}

/// Any client may send such a name; rdkafka's own types cannot.
#[expect(unsafe_code, reason = "only librdkafka itself takes a header name that is not UTF-8 or holds a NUL")]
fn produce_with_header(topic: &str, header: &[u8], value: Option<&[u8]>) {
    use rdkafka::producer::{BaseProducer, Producer};
    use rdkafka_sys::rd_kafka_vtype_t as vtype;
    let producer: BaseProducer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", std::env::var("KAFKA_BOOTSTRAP").unwrap())
        .create()
        .unwrap();
    let topic = CString::new(topic).unwrap();
    let value_pointer = value.map_or(std::ptr::null(), <[u8]>::as_ptr);
    let size = |bytes: &[u8]| isize::try_from(bytes.len()).unwrap();
    // SAFETY: the producer is alive, all pointers live through the calls, each type is followed by what it asks for,
    // and the list ends with END. librdkafka copies everything but the headers, which the message owns once it is taken.
    let error = unsafe {
        let headers = rdkafka_sys::rd_kafka_headers_new(1);
        rdkafka_sys::rd_kafka_header_add(
            headers,
            header.as_ptr().cast(),
            size(header),
            value_pointer.cast(),
            size(value.unwrap_or_default()),
        );
        rdkafka_sys::rd_kafka_producev(
            producer.client().native_ptr(),
            vtype::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            vtype::RD_KAFKA_VTYPE_PARTITION,
            0_i32,
            vtype::RD_KAFKA_VTYPE_MSGFLAGS,
            rdkafka_sys::RD_KAFKA_MSG_F_COPY,
            vtype::RD_KAFKA_VTYPE_HEADERS,
            headers,
            vtype::RD_KAFKA_VTYPE_END,
        )
    };
    assert_eq!(error as i32, 0);
    producer.flush(Duration::from_secs(30)).unwrap();
}
