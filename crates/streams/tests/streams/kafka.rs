//! What only Kafka has: partitions, compression, keys, retention that moves on.

use falaj_streams::{Body, Broker, Failure, Start, StreamKind};

use super::servers::{BOUNDS, Kafka, config, gather, numbered, said, topic};

#[tokio::test]
async fn every_compression_is_read() {
    let mut kafka = Kafka::start(1);
    let broker = Broker::new(&config(StreamKind::Kafka, &kafka.servers)).unwrap();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        kafka.make(codec);
        let values: Vec<_> = (0..500).map(|n| format!("{n} {}", "rides ".repeat(50))).collect();
        kafka.produce(codec, 0, codec, &values);
        let mut reader = broker.reader(&topic(codec), 0);
        let mut at = reader.start(Start::Earliest).await.unwrap();
        // From within a batch as well.
        let middle = reader.read(at + 250, BOUNDS).await.unwrap();
        assert_eq!(said(&middle)[0], values[250], "{codec}");
        assert_eq!(gather(&mut reader, &mut at, 500).await, values, "{codec}");
    }
}

#[tokio::test]
async fn partitions_are_read_from_their_leaders() {
    let mut kafka = Kafka::start(3);
    let partitions = i32::try_from(kafka.make("rides")).unwrap();
    assert!(partitions > 1, "the cluster makes several");
    let broker = Broker::new(&config(StreamKind::Kafka, &kafka.servers)).unwrap();
    assert_eq!(broker.partitions(&topic("rides")).await.unwrap(), partitions);
    for part in 0..partitions {
        let first = usize::try_from(part).unwrap() * 100;
        let values = numbered(first..first + 100);
        kafka.produce("rides", part, "none", &values);
        let mut reader = broker.reader(&topic("rides"), part);
        let mut at = 0;
        assert_eq!(gather(&mut reader, &mut at, 100).await, values);
        assert_eq!(at, 100);
    }
    let mut none = broker.reader(&topic("rides"), partitions);
    assert!(matches!(none.read(0, BOUNDS).await, Err(Failure::Missing(_))));
    let mut few = config(StreamKind::Kafka, &kafka.servers);
    few.max_partitions = 1;
    let refused = Broker::new(&few).unwrap().partitions(&topic("rides")).await.unwrap_err();
    assert!(
        matches!(&refused, Failure::Refused(why) if why.contains("max_partitions")),
        "{refused}"
    );
}

#[tokio::test]
async fn keys_and_tombstones_are_told() {
    let mut kafka = Kafka::start(1);
    kafka.make("rides");
    kafka.produce_keyed("rides", &["a", "b"], &[Some("1"), None]);
    let broker = Broker::new(&config(StreamKind::Kafka, &kafka.servers)).unwrap();
    let chunk = broker.reader(&topic("rides"), 0).read(0, BOUNDS).await.unwrap();
    let keys: Vec<_> = chunk.records.iter().map(|it| it.key.as_deref().unwrap()).collect();
    assert_eq!(keys, [b"a", b"b"]);
    assert_eq!(chunk.records[1].body, Body::Nothing);
    assert!(matches!(chunk.records[0].body, Body::Value(_)));
}

#[tokio::test]
async fn what_was_removed_is_a_gap_and_names_both_ends() {
    let mut kafka = Kafka::start(1);
    kafka.make("rides");
    // More than the cluster keeps of a partition.
    for _ in 0..12 {
        kafka.produce("rides", 0, "none", &vec!["x".repeat(500_000); 2]);
    }
    let broker = Broker::new(&config(StreamKind::Kafka, &kafka.servers)).unwrap();
    let mut reader = broker.reader(&topic("rides"), 0);
    let first = reader.start(Start::Earliest).await.unwrap();
    assert!(first > 0, "the cluster removed the oldest");
    let gap = reader.read(0, BOUNDS).await.unwrap_err();
    assert_eq!(gap, Failure::Gap { wanted: 0, first, end: 24 });
    assert!(!reader.read(first, BOUNDS).await.unwrap().records.is_empty());
}

#[tokio::test]
async fn a_broker_that_stands_still_is_away_and_read_on_later() {
    let mut kafka = Kafka::start(1);
    kafka.make("rides");
    kafka.produce("rides", 0, "none", &numbered(0..5));
    let mut quick = config(StreamKind::Kafka, &kafka.servers);
    quick.timeout = falaj_base::HumanDuration::from_millis(500);
    let broker = Broker::new(&quick).unwrap();
    let mut reader = broker.reader(&topic("rides"), 0);
    let mut at = 0;
    gather(&mut reader, &mut at, 5).await;
    kafka.signal("STOP");
    for _ in 0..2 {
        assert!(matches!(reader.read(at, BOUNDS).await, Err(Failure::Away(_))));
    }
    kafka.signal("CONT");
    kafka.produce("rides", 0, "none", &numbered(5..9));
    assert_eq!(gather(&mut reader, &mut at, 4).await, numbered(5..9));
}

#[tokio::test]
async fn brokers_elsewhere_are_not_connected_to() {
    let mut kafka = Kafka::start(1);
    kafka.make("rides");
    let port = kafka.servers.rsplit(':').next().unwrap().to_owned();
    // The broker calls itself by its address, which is not what was configured.
    let named = config(StreamKind::Kafka, &format!("localhost:{port}"));
    let refused = Broker::new(&named).unwrap().reader(&topic("rides"), 0).read(0, BOUNDS).await;
    let refused = refused.unwrap_err();
    assert!(matches!(&refused, Failure::Refused(why) if why.contains("127.0.0.1")), "{refused}");
    let mut allowed = named;
    allowed.hosts = vec!["127.0.0.1".to_owned()];
    Broker::new(&allowed).unwrap().reader(&topic("rides"), 0).read(0, BOUNDS).await.unwrap();
}

#[tokio::test]
async fn a_record_that_is_too_large_is_told_and_passed_over() {
    let mut kafka = Kafka::start(1);
    kafka.make("rides");
    let mut config = config(StreamKind::Kafka, &kafka.servers);
    config.max_record = falaj_base::ByteSize::kib(1);
    config.batch_size = falaj_base::ByteSize::kib(1);
    let broker = Broker::new(&config).unwrap();
    // One that comes and is too large, and one that is not even read to its end.
    for value in ["a".to_owned(), "y".repeat(2000), "x".repeat(4_000_000), "b".to_owned()] {
        kafka.produce("rides", 0, "none", &[value]);
    }
    let mut reader = broker.reader(&topic("rides"), 0);
    let (mut at, mut found) = (0, Vec::new());
    while found.len() < 4 {
        let chunk = reader.read(at, BOUNDS).await.unwrap();
        at = chunk.next;
        found.extend(chunk.records);
    }
    let told = found.iter().map(|record| match &record.body {
        Body::Unreadable(why) => why.starts_with("too large"),
        _ => false,
    });
    assert_eq!(told.collect::<Vec<_>>(), [false, true, true, false]);
    assert_eq!(found.iter().map(|it| it.offset).collect::<Vec<_>>(), [0, 1, 2, 3]);
}
