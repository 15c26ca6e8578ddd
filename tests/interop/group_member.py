"""A consumer in its own process, so that it can be killed: prints its partitions when they change."""

import json
import sys

from confluent_kafka import Consumer


def main() -> None:
    settings, topic = json.loads(sys.argv[1]), sys.argv[2]
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    shown: list[int] = []
    while True:
        consumer.poll(0.1)
        owned = sorted(item.partition for item in consumer.assignment())
        if owned != shown:
            shown = owned
            print(json.dumps(owned), flush=True)


if __name__ == "__main__":
    main()
