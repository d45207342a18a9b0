// A task submitted as Avro in single-object encoding. Arguments: BOOTSTRAP TASKS CALLBACKS TASK_COMMAND.avsc

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.File;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteBufferSerializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class SubmitAvro {
    public static void main(String[] args) throws Exception {
        submit(args[0], args[1], args[2], new File(args[3]));
    }

    static void submit(String bootstrap, String tasks, String callbacks, File avsc) throws Exception {
        // begin snippet avro
        Schema schema = new Schema.Parser().parse(avsc); // schemas/avsc/task_command/v1.avsc
        Schema header = schema.getField("headers").schema().getElementType();
        GenericRecord task = new GenericRecordBuilder(schema) // what is not set is null
                .set("task_id", "java-avro-1")
                .set("topic", callbacks)
                .set("due_at", Instant.now().plusSeconds(1).toEpochMilli())
                .set("value", ByteBuffer.wrap("Grüße from Avro".getBytes(UTF_8)))
                .set("headers", List.of(new GenericRecordBuilder(header)
                        .set("name", "content-type")
                        .set("value", ByteBuffer.wrap("text/plain".getBytes(UTF_8)))
                        .build()))
                .build();
        var encoder = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), schema);

        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new ByteBufferSerializer())) {
            producer.send(new ProducerRecord<>(tasks, "order-4711", encoder.encode(task))).get();
        }
        // end snippet
    }
}
