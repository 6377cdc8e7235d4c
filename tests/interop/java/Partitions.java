import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Prints where Kafka's producer puts keys: PARTITIONS KEY... */
public class Partitions {
    public static void main(String[] arguments) {
        for (int index = 1; index < arguments.length; index++) {
            byte[] key = arguments[index].getBytes(StandardCharsets.UTF_8);
            System.out.println(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(arguments[0])));
        }
    }
}
