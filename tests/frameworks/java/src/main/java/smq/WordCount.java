package smq;

import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * Kafka Streams' word count: lines of the topic `lines` become numbers of the topic `counts`.
 *
 * <p>Arguments: bootstrap, application id, processing guarantee, state directory. It says RUNNING and
 * how much it restored, each as a line, and ends in order when it is told to (SIGTERM).
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) {
        KafkaStreams streams = new KafkaStreams(topology(), settings(arguments));
        streams.setStateListener((now, before) -> say(now.name()));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setUncaughtExceptionHandler(WordCount::replaced);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    /** Words are grouped through a repartition topic and counted in a store with a changelog. */
    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("store"))
            .toStream()
            .mapValues(String::valueOf)
            .to("counts");
        return builder.build();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        // Without a cache each word that is counted is one record of `counts`.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 50);
        return settings;
    }

    private static StreamThreadExceptionResponse replaced(Throwable error) {
        error.printStackTrace();
        return StreamThreadExceptionResponse.REPLACE_THREAD;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            say("RESTORED " + total);
        }
    }
}
