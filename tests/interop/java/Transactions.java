import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Commits every other transaction, and aborts the others; each writes to all partitions, and commits an offset of a group.
 * Then prints what a reader of committed records is given, a value a line, and the group's offset in the last line.
 *
 * Arguments: bootstrap servers, topic, its partitions, transactional id (the group's too), count of transactions.
 */
public class Transactions {
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";

    public static void main(String[] arguments) {
        String servers = arguments[0];
        String topic = arguments[1];
        String name = arguments[3];
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            partitions.add(new TopicPartition(topic, number));
        }
        write(servers, partitions, name, Integer.parseInt(arguments[4]));
        read(servers, partitions, name);
    }

    private static void write(String servers, List<TopicPartition> partitions, String name, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", name);
        settings.put("key.serializer", STRINGS + "Serializer");
        settings.put("value.serializer", STRINGS + "Serializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int transaction = 0; transaction < count; transaction++) {
                producer.beginTransaction();
                for (int number = 0; number < 20; number++) {
                    TopicPartition to = partitions.get(number % partitions.size());
                    String value = transaction + "/" + number;
                    producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, value));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(partitions.get(0), new OffsetAndMetadata(transaction)), new ConsumerGroupMetadata(name));
                if (transaction % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
    }

    private static void read(String servers, List<TopicPartition> partitions, String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", name);
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", STRINGS + "Deserializer");
        settings.put("value.deserializer", STRINGS + "Deserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.value());
                }
            }
            System.out.println(consumer.committed(Set.copyOf(partitions)).get(partitions.get(0)).offset());
        }
    }
}
