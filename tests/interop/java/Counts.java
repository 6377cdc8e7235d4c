import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Counts each word of a topic, exactly once: SERVERS APPLICATION INPUT OUTPUT DIRECTORY. Ends when it is told to. */
public class Counts {
    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", 3);
        settings.put("commit.interval.ms", 200);
        settings.put("num.stream.threads", 2);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", 6000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(Object::toString)
            .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        Thread.currentThread().join();
    }
}
