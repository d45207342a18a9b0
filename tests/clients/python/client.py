"""A task submitted as JSON and received with confluent-kafka. Arguments: BOOTSTRAP TASKS CALLBACKS GROUP"""

import base64
import json
import sys
from datetime import datetime, timedelta, timezone

from confluent_kafka import Consumer, KafkaException, Producer


def submit(bootstrap, tasks, callbacks):
    # begin snippet submit
    # murmur2_random: the partitions that Java's producer chooses, so that all commands of a task stay in order.
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})

    def delivered(error, _message):
        if error is not None:
            raise KafkaException(error)

    command = {
        "task_id": "python-1",
        "topic": callbacks,
        "due_at": (datetime.now(timezone.utc) + timedelta(seconds=1)).isoformat(),
        "value": json.dumps({"order": 4711, "note": "Grüße from Python"}),
        "headers": {"content-type": "application/json"},
    }
    producer.produce(tasks, key="order-4711", value=json.dumps(command), on_delivery=delivered)
    producer.flush()
    # end snippet


def consume(bootstrap, callbacks, group):
    # begin snippet consume
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",  # librdkafka's default, said for the reader
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([callbacks])
    while (message := consumer.poll(1.0)) is None or message.error():
        if message and message.error().fatal():
            raise KafkaException(message.error())
    show(message)  # your work
    consumer.commit(message, asynchronous=False)  # only when it is done
    consumer.close()
    # end snippet


def show(message):
    def text(data):
        return None if data is None else base64.b64encode(data).decode()

    headers = [[name, text(value)] for name, value in message.headers() or []]
    seen = {"partition": message.partition(), "key": text(message.key()), "value": text(message.value())}
    print(json.dumps(seen | {"headers": headers}), flush=True)


if __name__ == "__main__":
    bootstrap, tasks, callbacks, group = sys.argv[1:]
    submit(bootstrap, tasks, callbacks)
    consume(bootstrap, callbacks, group)
