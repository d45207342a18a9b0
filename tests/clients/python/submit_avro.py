"""A task submitted as Avro through a schema registry.

Arguments: BOOTSTRAP TASKS CALLBACKS TASK_COMMAND.avsc REGISTRY
"""

import sys
import time
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext


def submit(bootstrap, tasks, callbacks, avsc, registry):
    def delivered(error, _message):
        if error is not None:
            raise KafkaException(error)

    # begin snippet registry
    schema = Path(avsc).read_text()  # schemas/avsc/task_command/v1.avsc
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry}), schema)  # registers it where it is new
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    command = {
        "task_id": "python-avro-1",
        "topic": callbacks,
        "due_at": time.time_ns() // 1_000_000 + 1000,
        "value": b"any bytes \x00\xff",
        "headers": [{"name": "content-type", "value": b"application/octet-stream"}],
    }
    value = serialize(command, SerializationContext(tasks, MessageField.VALUE))
    producer.produce(tasks, key="order-4711", value=value, on_delivery=delivered)
    producer.flush()
    # end snippet


if __name__ == "__main__":
    submit(*sys.argv[1:])
