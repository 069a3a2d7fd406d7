//! What only NATS has: subjects, times, streams that are purged, a real server that is killed.

use std::time::Duration;

use falaj_base::Secret;
use falaj_streams::{Broker, Failure, Start, StreamKind, Topic};

use super::servers::{BOUNDS, Nats, config, gather, numbered, publish, said, topic};

fn micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

#[tokio::test]
async fn a_killed_server_is_read_on_where_it_was() {
    let mut nats = Nats::start().await;
    let context = nats.make("rides").await;
    let broker = Broker::new(&config(StreamKind::Nats, &nats.address())).unwrap();
    publish(&context, "rides.a", &numbered(0..50)).await;
    let mut reader = broker.reader(&topic("rides"), 0);
    let mut at = reader.start(Start::Earliest).await.unwrap();
    assert_eq!(gather(&mut reader, &mut at, 50).await, numbered(0..50));
    for round in 1..4 {
        nats.kill();
        assert!(matches!(reader.read(at, BOUNDS).await, Err(Failure::Away(_))));
        nats.begin().await;
        let context = nats.context().await;
        let values = numbered(round * 50..round * 50 + 50);
        publish(&context, "rides.a", &values).await;
        assert_eq!(gather(&mut reader, &mut at, 50).await, values);
    }
}

#[tokio::test]
async fn only_the_subjects_that_are_asked_for() {
    let nats = Nats::start().await;
    let context = nats.make("rides").await;
    let broker = Broker::new(&config(StreamKind::Nats, &nats.address())).unwrap();
    let some = Topic { name: "rides".to_owned(), subject: Some("rides.b.>".to_owned()) };
    publish(&context, "rides.a", &numbered(0..10)).await;
    publish(&context, "rides.b.1", &numbered(10..12)).await;
    publish(&context, "rides.a", &numbered(12..20)).await;
    let mut reader = broker.reader(&some, 0);
    let mut at = reader.start(Start::Earliest).await.unwrap();
    assert_eq!(gather(&mut reader, &mut at, 2).await, numbered(10..12));
    // What is of other subjects is passed, so that its removal is no gap.
    let none = reader.read(at, BOUNDS).await.unwrap();
    assert_eq!((none.records.len(), none.next), (0, 21));
    context.get_stream("rides").await.unwrap().purge().await.unwrap();
    let none = reader.read(none.next, BOUNDS).await.unwrap();
    assert_eq!(none.next, 21);
    publish(&context, "rides.b.2", &numbered(21..22)).await;
    at = none.next;
    assert_eq!(gather(&mut reader, &mut at, 1).await, numbered(21..22));
}

#[tokio::test]
async fn what_was_purged_is_a_gap_and_names_both_ends() {
    let nats = Nats::start().await;
    let context = nats.make("rides").await;
    let broker = Broker::new(&config(StreamKind::Nats, &nats.address())).unwrap();
    publish(&context, "rides.a", &numbered(0..10)).await;
    let mut reader = broker.reader(&topic("rides"), 0);
    let few = falaj_streams::Bounds { records: 3, ..BOUNDS };
    let chunk = reader.read(1, few).await.unwrap();
    assert_eq!(chunk.next, 4);
    let stream = context.get_stream("rides").await.unwrap();
    stream.purge().sequence(8).await.unwrap();
    let gap = reader.read(chunk.next, BOUNDS).await.unwrap_err();
    assert_eq!(gap, Failure::Gap { wanted: 4, first: 8, end: 11 });
    let mut another = broker.reader(&topic("rides"), 0);
    assert_eq!(another.read(4, BOUNDS).await.unwrap_err(), gap);
    assert_eq!(said(&another.read(8, BOUNDS).await.unwrap()), numbered(7..10));
}

/// Kafka's brokers do so as well; the cluster of these tests answers when the time is up.
#[tokio::test]
async fn a_record_wakes_whoever_waits() {
    let nats = Nats::start().await;
    let context = nats.make("rides").await;
    let broker = Broker::new(&config(StreamKind::Nats, &nats.address())).unwrap();
    let mut reader = broker.reader(&topic("rides"), 0);
    let wait = falaj_streams::Bounds { wait: Duration::from_secs(30), ..BOUNDS };
    let waiting = tokio::spawn(async move { reader.read(1, wait).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = std::time::Instant::now();
    publish(&context, "rides.a", &numbered(0..1)).await;
    assert_eq!(said(&waiting.await.unwrap().unwrap()), numbered(0..1));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn reading_begins_at_a_time() {
    let nats = Nats::start().await;
    let context = nats.make("rides").await;
    let broker = Broker::new(&config(StreamKind::Nats, &nats.address())).unwrap();
    publish(&context, "rides.a", &numbered(0..3)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let then = micros();
    tokio::time::sleep(Duration::from_millis(20)).await;
    publish(&context, "rides.a", &numbered(3..5)).await;
    let mut reader = broker.reader(&topic("rides"), 0);
    assert_eq!(reader.start(Start::At(then)).await.unwrap(), 4);
    assert_eq!(reader.start(Start::At(0)).await.unwrap(), 1);
    assert_eq!(reader.start(Start::At(micros() + 60_000_000)).await.unwrap(), 6);
}

#[tokio::test]
async fn one_logs_in_as_is_configured() {
    let accounts = "
        authorization { users = [
            { user: ada, password: secret } ] }";
    let nats = Nats::start_with(Some(accounts)).await;
    let with = |user: &str, password: &str| {
        let mut config = config(StreamKind::Nats, &nats.address());
        (config.user, config.password) = (user.to_owned(), Secret::new(password));
        Broker::new(&config).unwrap()
    };
    let wrong = with("ada", "wrong").partitions(&topic("rides")).await.unwrap_err();
    assert!(matches!(wrong, Failure::Refused(_)), "{wrong:?}");
    let right = with("ada", "secret").partitions(&topic("rides")).await.unwrap_err();
    assert!(matches!(right, Failure::Missing(_)), "{right:?}");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_told_and_passed_over() {
    let nats = Nats::start().await;
    let context = nats.make("rides").await;
    let mut config = config(StreamKind::Nats, &nats.address());
    config.max_record = falaj_base::ByteSize::kib(1);
    config.batch_size = falaj_base::ByteSize::kib(1);
    let broker = Broker::new(&config).unwrap();
    let large = "x".repeat(200_000);
    // One that is sent and is too large, and some that the server does not send.
    let values = ["a".to_owned(), "y".repeat(2000), large.clone(), "b".to_owned(), large];
    publish(&context, "rides.a", &values).await;
    publish(&context, "rides.a", &["c".to_owned()]).await;
    let mut reader = broker.reader(&topic("rides"), 0);
    let mut at = reader.start(Start::At(0)).await.unwrap();
    let mut found = Vec::new();
    let bounds = falaj_streams::Bounds { bytes: 1024, ..BOUNDS };
    while found.len() < 6 {
        let chunk = reader.read(at, bounds).await.unwrap();
        at = chunk.next;
        found.extend(chunk.records);
    }
    let shown = found.iter().map(|record| match &record.body {
        falaj_streams::Body::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
        falaj_streams::Body::Nothing => "-".to_owned(),
        falaj_streams::Body::Unreadable(why) => {
            assert!(why.starts_with("too large") && why.contains("max_record"), "{why}");
            "!".to_owned()
        }
    });
    assert_eq!(shown.collect::<Vec<_>>(), ["a", "!", "!", "b", "!", "c"]);
    assert_eq!(found.iter().map(|it| it.offset).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(at, 7);
}
