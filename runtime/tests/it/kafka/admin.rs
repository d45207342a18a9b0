use super::world::{admin, fill, soon, spec, topic, unique};
use runtime::kafka::{Created, Disposition};
use std::time::Duration;

#[tokio::test]
async fn a_topic_is_made_once_with_its_settings() {
    let name = unique("admin-create");
    let wanted =
        spec(&name, 3, &[("message.timestamp.type", "LogAppendTime"), ("max.message.bytes", "1114124")]);
    let first = admin().create_topics(std::slice::from_ref(&wanted)).await.unwrap();
    assert!(matches!(&first[..], [(n, Ok(Created::New))] if *n == name), "{first:?}");
    let second = admin().create_topics(&[wanted]).await.unwrap();
    assert!(matches!(&second[..], [(_, Ok(Created::Existed))]), "{second:?}");

    let config = admin().topic_config(&name).await.unwrap().unwrap();
    assert_eq!(config["message.timestamp.type"], "LogAppendTime");
    assert_eq!(config["max.message.bytes"], "1114124");
    assert!(admin().topics().await.unwrap().contains_key(&name));
}

#[tokio::test]
async fn a_wrong_setting_is_told_for_its_topic() {
    let answers =
        admin().create_topics(&[spec(&unique("admin-wrong"), 1, &[("cleanup.policy", "sometimes")])]).await;
    let fault = answers.unwrap().remove(0).1.unwrap_err();
    assert_eq!(fault.disposition(), Disposition::Fatal, "{fault}");
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_no_error() {
    let name = unique("admin-missing");
    assert_eq!(admin().topic(&name).await.unwrap(), None);
    assert_eq!(admin().topic_id(&name).await.unwrap(), None);
    assert_eq!(admin().topic_config(&name).await.unwrap(), None);
    admin().delete_topics(&[&name]).await.unwrap();
}

#[tokio::test]
async fn a_topic_made_again_under_its_name_has_another_id() {
    let name = topic("admin-id", 1, &[]).await;
    let first = admin().topic_id(&name).await.unwrap().unwrap();
    assert_eq!(admin().topic_id(&name).await.unwrap(), Some(first));

    admin().delete_topics(&[&name]).await.unwrap();
    let second = soon("the topic made again", async {
        loop {
            admin().create_topics(&[spec(&name, 1, &[])]).await.unwrap();
            match admin().topic_id(&name).await.unwrap() {
                Some(id) if id != first => return id,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    assert_ne!(second.await, first);
}

#[tokio::test]
async fn the_first_offset_of_a_time_is_found() {
    let name = topic("admin-time", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let old = fill(&name, 0, 0..3).await;
    // Append times have the resolution of a millisecond.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let new = fill(&name, 0, 3..5).await;
    assert!(new[0].at > old[2].at, "{old:?} {new:?}");
    assert_eq!(admin().offset_at(&name, 0, new[0].at).await.unwrap(), 3);
    assert_eq!(admin().offset_at(&name, 0, 0).await.unwrap(), 0);
    assert_eq!(
        admin().offset_at(&name, 0, new[1].at + 3_600_000).await.unwrap(),
        5,
        "younger than all: the end"
    );
    assert_eq!(admin().watermarks(&name, 0).await.unwrap(), (0, 5));
}

#[tokio::test]
async fn a_new_single_broker_gives_what_exactly_once_needs() {
    let name = topic("admin-guarantees", 1, &[]).await;
    if admin().brokers().await.unwrap().len() == 1 {
        assert_eq!(admin().check_guarantees(&name).await.unwrap(), []);
    }
    let broker = admin().brokers().await.unwrap()[0];
    let config = admin().broker_config(broker).await.unwrap();
    assert_eq!(config["transaction.partition.verification.enable"], "true");
}
