use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..60),
        ".{0,30}".prop_map(String::into_bytes),
        "[0-9TZPHMS:+.smhd -]{0,20}".prop_map(String::into_bytes),
    ]
}

fn header_name() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<Vec<u8>> = field::Field::ALL.iter().map(|field| field.header().into()).collect();
    prop_oneof![3 => prop::sample::select(known), 1 => bytes(), 1 => Just(b"duestream-".to_vec())]
}

/// JSON, with the names of the contract and anything as values.
fn json() -> impl Strategy<Value = Vec<u8>> {
    let names = field::Field::ALL.iter().map(|field| field.json());
    let names: Vec<_> = names.chain(["value", "value_base64", "key_base64", "headers"]).collect();
    let value = prop_oneof![
        ".{0,20}".prop_map(|text| serde_json::json!(text)),
        "[0-9TZPHMS:+.smhd -]{0,20}".prop_map(|text| serde_json::json!(text)),
        any::<i64>().prop_map(|number| serde_json::json!(number)),
        any::<f64>().prop_map(|number| serde_json::json!(number)),
        Just(serde_json::json!(null)),
        ".{0,5}".prop_map(|name| serde_json::json!({ name: "x" })),
        Just(serde_json::json!(["x"])),
    ];
    vec((prop::sample::select(names), value), 0..8).prop_map(|members| {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{{}}}", members.join(", ")).into_bytes()
    })
}

/// What a command must keep once it is taken.
pub(super) fn check(record: &Record) {
    let rules = Rules::new("duestream.");
    match record.parse() {
        Ok(command) => {
            assert!((978_307_200_000..7_289_654_400_000).contains(&command.due_at));
            assert!(command.options.expires_at.is_none_or(|expires_at| expires_at >= command.due_at));
            assert!(rules.check_topic("topic", &command.callback_topic).is_ok());
            assert!(body_bytes(&command.body) <= rules.max_body_bytes);
            assert!(command.body.headers.iter().all(|header| !field::is_reserved(header.name.as_bytes())));
        }
        Err(refusal) => {
            assert!(refusal.message.ends_with(refusal.code.remedy()), "{refusal}");
            assert!(refusal.message.len() < 1500, "{} bytes", refusal.message.len());
            assert!(!refusal.message.contains(|c: char| c.is_control()), "{refusal}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_never_panic(
        key in option::of(bytes()),
        value in option::of(bytes()),
        headers in vec((header_name(), option::of(bytes())), 0..6),
    ) {
        check(&Record { key, value: value.clone(), headers });
        check(&Record { value, ..Record::default() });
    }

    #[test]
    fn arbitrary_values_in_sound_json_never_panic(value in json(), cut in any::<prop::sample::Index>()) {
        check(&Record { value: Some(value.clone()), ..Record::default() });
        check(&Record { value: Some(value[..=cut.index(value.len())].to_vec()), ..Record::default() });
    }

    #[test]
    fn any_text_as_a_time_or_delay_never_panics(text in "[-+]?[0-9TZPWYHMS:.smhdwuµn -]{0,30}") {
        for field in ["duestream-due-at", "duestream-delay"] {
            check(&Record::default().header("duestream-topic", "t").header(field, &text));
        }
    }
}
