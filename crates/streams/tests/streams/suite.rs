//! What holds of both.

use std::time::{Duration, Instant};

use falaj_streams::{Bounds, Failure, Start};

use super::servers::{BOUNDS, Server, gather, numbered, said, topic};

#[tokio::test]
async fn records_come_in_order_and_bounded() {
    for (mut server, broker) in Server::both("rides").await {
        let values = numbered(0..2500);
        server.produce("rides", &values).await;
        let mut reader = broker.reader(&topic("rides"), 0);
        let first = reader.start(Start::Earliest).await.unwrap();
        let few = reader.read(first, Bounds { records: 7, ..BOUNDS }).await.unwrap();
        assert_eq!(said(&few), values[..7]);
        assert_eq!(few.next, few.records[6].offset + 1);
        assert!(few.lag >= 2400, "{}", few.lag);
        assert!(few.records.iter().all(|record| record.at.is_some()));
        let mut at = few.next;
        assert_eq!(gather(&mut reader, &mut at, 2493).await, values[7..]);
        // The same again, by another reader and from the middle.
        let mut other = broker.reader(&topic("rides"), 0);
        let again = other.read(few.records[3].offset, Bounds { records: 2, ..BOUNDS }).await;
        assert_eq!(said(&again.unwrap()), values[3..5]);
        // Nothing more: that is known soon, and not at once.
        let began = Instant::now();
        let none = reader.read(at, BOUNDS).await.unwrap();
        assert!(none.records.is_empty() && none.lag == 0 && none.next == at, "{none:?}");
        assert!(began.elapsed() < Duration::from_secs(3));
        // What comes is read on.
        server.produce("rides", &numbered(2500..2503)).await;
        assert_eq!(gather(&mut reader, &mut at, 3).await, numbered(2500..2503));
    }
}

#[tokio::test]
async fn reading_begins_where_it_is_said() {
    for (mut server, broker) in Server::both("rides").await {
        server.produce("rides", &numbered(0..10)).await;
        let mut reader = broker.reader(&topic("rides"), 0);
        let first = reader.start(Start::Earliest).await.unwrap();
        let end = reader.start(Start::Latest).await.unwrap();
        assert_eq!(end - first, 10);
        server.produce("rides", &numbered(10..12)).await;
        let mut at = end;
        assert_eq!(gather(&mut reader, &mut at, 2).await, numbered(10..12));
    }
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_told() {
    for (_server, broker) in Server::both("rides").await {
        let missing = |failure: Failure| matches!(failure, Failure::Missing(_));
        assert!(missing(broker.partitions(&topic("others")).await.unwrap_err()));
        let mut reader = broker.reader(&topic("others"), 0);
        assert!(missing(reader.start(Start::Earliest).await.unwrap_err()));
        assert!(missing(reader.read(1, BOUNDS).await.unwrap_err()));
        assert!(broker.partitions(&topic("rides")).await.unwrap() >= 1);
    }
}

#[tokio::test]
async fn what_is_beyond_the_end_is_a_gap() {
    for (mut server, broker) in Server::both("rides").await {
        server.produce("rides", &numbered(0..3)).await;
        let mut reader = broker.reader(&topic("rides"), 0);
        let (first, end) = (
            reader.start(Start::Earliest).await.unwrap(),
            reader.start(Start::Latest).await.unwrap(),
        );
        let gap = reader.read(end + 5, BOUNDS).await.unwrap_err();
        assert_eq!(gap, Failure::Gap { wanted: end + 5, first, end });
        assert_eq!(said(&reader.read(first, BOUNDS).await.unwrap()).len(), 3);
    }
}

#[tokio::test]
async fn large_records_come_one_at_a_time() {
    for (mut server, broker) in Server::both("rides").await {
        let large = vec!["x".repeat(900_000), "y".repeat(900_000), "z".to_owned()];
        server.produce("rides", &large).await;
        let mut reader = broker.reader(&topic("rides"), 0);
        let mut at = reader.start(Start::Earliest).await.unwrap();
        let small = Bounds { bytes: 1000, ..BOUNDS };
        let one = reader.read(at, small).await.unwrap();
        assert_eq!(said(&one)[0], large[0]);
        at = one.next;
        let rest = gather(&mut reader, &mut at, large.len() - one.records.len()).await;
        assert_eq!(rest, large[one.records.len()..]);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_away() {
    use falaj_streams::{Broker, StreamKind};
    for kind in [StreamKind::Kafka, StreamKind::Nats] {
        let broker = Broker::new(&super::servers::config(kind, "127.0.0.1:1")).unwrap();
        let mut reader = broker.reader(&topic("rides"), 0);
        assert!(matches!(broker.partitions(&topic("rides")).await, Err(Failure::Away(_))));
        assert!(matches!(reader.read(1, BOUNDS).await, Err(Failure::Away(_))));
    }
}
