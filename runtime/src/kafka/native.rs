//! The things that rdkafka does not wrap, and the one place with `unsafe`.
//!
//! *Topic ids*: a topic that was deleted and made again under the same name is not reported to a running consumer;
//! only its id tells (`rd_kafka_DescribeTopics`). *Header names*: rdkafka panics on a name that is not UTF-8, and any
//! producer may write one: garbage must not stop a partition (I-6). librdkafka gives names as C strings: what follows a NUL
//! within a name would be lost without a word, so its length is read from librdkafka's own structure.
#![expect(unsafe_code, reason = "DescribeTopics and raw header names have no safe wrapper in rdkafka 0.39")]

use super::error::KafkaFault;
use super::topic_id::TopicId;
use rdkafka::client::{Client, ClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{IsError, KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka_sys as sys;
use schemas::record::Header;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::{Duration, Instant};

const DESCRIBE: &str = "describe topics";

/// What the brokers said of each topic.
pub(super) type TopicAnswers = Vec<(String, Result<TopicId, RDKafkaErrorCode>)>;

/// Ids of topics, in the order of the answer; an unknown topic answers its error code. Blocks up to `timeout`.
pub(super) fn describe_topic_ids<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> Result<TopicAnswers, KafkaFault> {
    let names = topics
        .iter()
        .map(|name| CString::new(*name))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| KafkaFault::of(DESCRIBE, e.into()))?;
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let mut complaint = [0; 256];

    // SAFETY: `client` outlives this call, so its handle is valid throughout. `names` and `pointers` live until the
    // end of the block and librdkafka copies the names. Collection, options and queue are made here, used by one
    // thread, and destroyed exactly once below, on every path, after their last use.
    let event = unsafe {
        let rk = client.native_ptr();
        let collection = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let options =
            sys::rd_kafka_AdminOptions_new(rk, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        sys::rd_kafka_AdminOptions_set_request_timeout(
            options,
            millis,
            complaint.as_mut_ptr(),
            complaint.len(),
        );
        let queue = sys::rd_kafka_queue_new(rk);
        sys::rd_kafka_DescribeTopics(rk, collection, options, queue);
        // The request times out by itself and then answers an event that says so; a second more than it was given.
        let deadline = Instant::now() + timeout + Duration::from_secs(1);
        let mut event = ptr::null_mut::<sys::rd_kafka_event_t>();
        while event.is_null() && Instant::now() < deadline {
            event = sys::rd_kafka_queue_poll(queue, 100);
        }
        sys::rd_kafka_queue_destroy(queue);
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_TopicCollection_destroy(collection);
        event
    };
    if event.is_null() {
        return Err(KafkaFault::of(DESCRIBE, KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut)));
    }

    // SAFETY: `event` is a live event that only this function knows. What the accessors return belongs to the event,
    // is copied before the event is destroyed, and the array holds `count` pointers that are not null. A description
    // without an error carries an id.
    unsafe {
        let code = sys::rd_kafka_event_error(event);
        let answer = if code.is_error() {
            Err(KafkaFault::of(DESCRIBE, KafkaError::AdminOp(code.into())))
        } else {
            let result = sys::rd_kafka_event_DescribeTopics_result(event);
            let mut count = 0;
            let descriptions = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
            Ok((0..count)
                .map(|i| {
                    let topic = *descriptions.add(i);
                    let name = CStr::from_ptr(sys::rd_kafka_TopicDescription_name(topic));
                    let error = sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic));
                    let id = if error.is_error() {
                        Err(error.into())
                    } else {
                        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
                        Ok(TopicId::from_halves(
                            sys::rd_kafka_Uuid_most_significant_bits(id),
                            sys::rd_kafka_Uuid_least_significant_bits(id),
                        ))
                    };
                    (name.to_string_lossy().into_owned(), id)
                })
                .collect())
        };
        sys::rd_kafka_event_destroy(event);
        answer
    }
}

/// `rd_kafka_header_t` of `rdkafka_header.h`, up to the name, which follows.
#[repr(C)]
struct RawHeader {
    ser_size: usize,
    value_size: usize,
    name_size: usize,
    value: *mut c_char,
}

/// The version whose structure this is. After an upgrade: compare `rdkafka_header.h`, run the tests of header names.
const STRUCTURE_OF: i32 = 0x020c_01ff;
const _: () = assert!(sys::RD_KAFKA_VERSION == STRUCTURE_OF, "librdkafka was upgraded: see above");

/// librdkafka, and who builds on it, reads no record with more than 100,000 headers; a few are added on the way.
const MOST_HEADERS: usize = 99_900;

/// Headers of a message, and whether that is what was written: all names UTF-8 without NUL (others are approximated: U+FFFD
/// for each byte that cannot be said), and not more than can be passed on.
///
/// Copied are names and values up to `most_bytes`; the headers beyond only count for the third of the answers: how many
/// bytes names and values have together.
pub(super) fn headers_of(message: &BorrowedMessage<'_>, most_bytes: usize) -> (Vec<Header>, bool, usize) {
    let mut out = Vec::new();
    let (mut intact, mut bytes, mut index) = (true, 0, 0);
    // SAFETY: the message is alive for the whole call and owns its headers. A name lies within a structure that begins with
    // the fields of `RawHeader` (checked at compile time by version) and has `name_size` readable bytes; a value that is
    // not null has `size` readable bytes; both are copied here. An index beyond the last header answers an error, which
    // ends the loop.
    unsafe {
        let mut headers = ptr::null_mut();
        match sys::rd_kafka_message_headers(message.ptr(), &raw mut headers) {
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => {}
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__NOENT => return (out, true, 0),
            // There are some, and librdkafka cannot read them: more than 100,000, or broken ones.
            _ => return (out, false, 0),
        }
        if sys::rd_kafka_header_cnt(headers) > MOST_HEADERS {
            intact = false;
        }
        loop {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            let got =
                sys::rd_kafka_header_get_all(headers, index, &raw mut name, &raw mut value, &raw mut size);
            if got.is_error() {
                return (out, intact, bytes);
            }
            index += 1;
            let raw = name.byte_sub(size_of::<RawHeader>()).cast::<RawHeader>().read_unaligned();
            bytes += raw.name_size + size;
            // Headers beyond are left out, so that with ours `rejected` can be read by librdkafka, too.
            if bytes > most_bytes || out.len() == MOST_HEADERS {
                continue;
            }
            let name = name_of(std::slice::from_raw_parts(name.cast::<u8>(), raw.name_size), &mut intact);
            let value =
                (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), size).to_vec());
            out.push(Header { name, value });
        }
    }
}

fn name_of(bytes: &[u8], intact: &mut bool) -> String {
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.contains('\0') => name.to_owned(),
        Ok(_) | Err(_) => {
            *intact = false;
            String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
        }
    }
}

/// What a consumer finds first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A record.
    Record,
    /// A batch that librdkafka cannot unpack, by its first offset.
    Undecodable {
        /// Offset of the batch.
        base: i64,
    },
    /// The end of the log, or a position behind it.
    End,
    /// Nothing yet, or an error that may pass.
    Nothing,
}

/// What comes next on a consumer's one partition. (rdkafka answers errors without their offsets.)
pub(super) fn poll_offset<C: ConsumerContext>(consumer: &BaseConsumer<C>, timeout: Duration) -> Found {
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the consumer outlives this call, so its handle is valid. A message that is not null is ours: it is looked at
    // here only, and destroyed once.
    let (error, offset) = unsafe {
        let message = sys::rd_kafka_consumer_poll(consumer.client().native_ptr(), millis);
        if message.is_null() {
            return Found::Nothing;
        }
        let seen = ((*message).err, (*message).offset);
        sys::rd_kafka_message_destroy(message);
        seen
    };
    match RDKafkaErrorCode::from(error) {
        RDKafkaErrorCode::NoError => Found::Record,
        RDKafkaErrorCode::BadCompression | RDKafkaErrorCode::NotImplemented => {
            Found::Undecodable { base: offset }
        }
        RDKafkaErrorCode::PartitionEOF
        | RDKafkaErrorCode::AutoOffsetReset
        | RDKafkaErrorCode::OffsetOutOfRange => Found::End,
        _ => Found::Nothing,
    }
}
