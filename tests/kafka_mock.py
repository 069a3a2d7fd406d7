"""A Kafka cluster for tests: the one that librdkafka has inside, which speaks the protocol over TCP.

It is no Kafka: it keeps records in memory, some megabytes of each partition, and knows nothing of
accounts, TLS or times of records. It prints `{"servers": "host:port,…"}` and then answers a line of
JSON for each that it reads, until its input ends:

    {"topic": "rides", "partition": 0, "compression": "zstd", "values": ["…", null], "keys": ["…"]}
    {"topic": "rides", "partitions": true}
"""

import json
import sys

from confluent_kafka import Producer

QUIET = {"log_level": 0, "linger.ms": 5, "message.max.bytes": 16_000_000}


def main():
    brokers = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cluster = Producer(QUIET | {"test.mock.num.brokers": brokers})
    found = cluster.list_topics(timeout=20).brokers.values()
    servers = ",".join(sorted(f"{it.host}:{it.port}" for it in found))
    print(json.dumps({"servers": servers}), flush=True)
    producers = {}
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), servers, producers)), flush=True)


def answer(asked, servers, producers):
    codec = asked.get("compression", "none")
    if codec not in producers:
        settings = QUIET | {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": False}
        producers[codec] = Producer(settings)
    producer = producers[codec]
    if asked.get("partitions"):
        topics = producer.list_topics(asked["topic"], timeout=20).topics
        return {"partitions": len(topics[asked["topic"]].partitions)}
    values = asked["values"]
    keys = asked.get("keys") or [None] * len(values)
    failures, places = [], []

    def done(error, message):
        if error:
            failures.append(str(error))
        else:
            places.append(message.offset())

    for key, value in zip(keys, values):
        while True:
            try:
                producer.produce(asked["topic"], value, key, asked.get("partition", 0), on_delivery=done)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    return {"failures": failures, "offsets": places}


main()
