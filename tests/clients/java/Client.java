// A task submitted with headers and received with kafka-clients. Arguments: BOOTSTRAP TASKS CALLBACKS GROUP

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Client {
    public static void main(String[] args) throws Exception {
        submit(args[0], args[1], args[2]);
        consume(args[0], args[2], args[3]);
    }

    static void submit(String bootstrap, String tasks, String callbacks) throws Exception {
        // begin snippet submit
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer())) {
            byte[] payload = "Grüße from Java \0".getBytes(UTF_8); // any bytes
            var command = new ProducerRecord<>(tasks, "order-4711", payload);
            command.headers()
                    .add("duestream-topic", callbacks.getBytes(UTF_8))
                    .add("duestream-due-at", Instant.now().plusSeconds(1).toString().getBytes(UTF_8))
                    .add("duestream-task-id", "java-1".getBytes(UTF_8))
                    .add("step", "1".getBytes(UTF_8))
                    .add("step", "2".getBytes(UTF_8)); // names may repeat
            producer.send(command).get();
        }
        // end snippet
    }

    static void consume(String bootstrap, String callbacks, String group) {
        // begin snippet consume
        Map<String, Object> config = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "isolation.level", "read_committed", // not Java's default
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(List.of(callbacks));
            for (var done = false; !done; ) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    show(record); // your work
                    done = true;
                }
                consumer.commitSync(); // only when it is done
            }
        }
        // end snippet
    }

    static void show(ConsumerRecord<byte[], byte[]> record) {
        String headers = StreamSupport.stream(record.headers().spliterator(), false)
                .map(header -> "[\"%s\",%s]".formatted(header.key(), base64(header.value())))
                .collect(Collectors.joining(",", "[", "]"));
        System.out.printf(
                "{\"partition\":%d,\"key\":%s,\"value\":%s,\"headers\":%s}%n",
                record.partition(), base64(record.key()), base64(record.value()), headers);
    }

    static String base64(byte[] bytes) {
        return bytes == null ? "null" : '"' + Base64.getEncoder().encodeToString(bytes) + '"';
    }
}
