// Where Java's own producer puts records with a key. Arguments: BOOTSTRAP TOPIC KEY… (keys in hexadecimal)

import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Partitions {
    public static void main(String[] args) throws Exception {
        var bytes = new ByteArraySerializer();
        Map<String, Object> config = Map.of("bootstrap.servers", args[0]);
        try (var producer = new KafkaProducer<>(config, bytes, bytes)) {
            for (int i = 2; i < args.length; i++) {
                byte[] key = HexFormat.of().parseHex(args[i]);
                System.out.println(producer.send(new ProducerRecord<>(args[1], key, new byte[0])).get().partition());
            }
        }
    }
}
