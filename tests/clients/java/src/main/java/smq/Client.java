package smq;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client, idempotent as it is by default: see tests/clients/programs/contract.py. */
public final class Client {
    private static final long PAUSE_MS = 1;

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final int count;
    private final Map<String, String> login;
    private int wrong = 0;

    private Client(String bootstrap, String topic, String group, int count) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
        this.count = count;
        this.login = Login.settings();
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(
            arguments[1], arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        switch (arguments[0]) {
            case "resume" -> client.resume();
            case "read" -> client.onlyRead();
            case "through-a-kill" -> client.throughAKill();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private void resume() {
        try (KafkaProducer<String, String> producer = producer("lz4")) {
            for (int number = 0; number < count; number++) {
                producer.send(record(number), (metadata, error) -> must(error));
            }
        }
        List<String> first = read(count / 2);
        List<String> second = read(count - count / 2);
        System.out.printf(
            "{\"first\": %s, \"second\": %s, \"wrong\": %d}%n", json(first), json(second), wrong);
    }

    private void onlyRead() {
        List<String> values = read(count);
        System.out.printf("{\"values\": %s, \"wrong\": %d}%n", json(values), wrong);
    }

    private void throughAKill() {
        CompletableFuture<Void> producing = CompletableFuture.runAsync(this::produceSlowly);
        List<String> values = new ArrayList<>();
        Set<String> different = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = consumer(500)) {
            while (different.size() < count) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    check(record);
                    values.add(record.value());
                    different.add(record.value());
                }
            }
            producing.join();
        }
        System.out.printf("{\"values\": %s, \"wrong\": %d}%n", json(values), wrong);
    }

    private void produceSlowly() {
        AtomicInteger acknowledged = new AtomicInteger();
        try (KafkaProducer<String, String> producer = producer("zstd")) {
            for (int number = 0; number < count; number++) {
                producer.send(record(number), (metadata, error) -> {
                    must(error);
                    if (acknowledged.incrementAndGet() == count / 2) {
                        System.out.println("halfway");
                    }
                });
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Not `exit`: it would wait in the producer's thread for what closes the producer. */
    private static void must(Exception error) {
        if (error != null) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private List<String> read(int wanted) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(1)) {
            while (values.size() < wanted) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    check(record);
                    values.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return values;
    }

    private void check(ConsumerRecord<String, String> record) {
        Header[] headers = record.headers().toArray();
        boolean right = record.key().substring(1).equals(record.value().substring(1))
            && headers.length == 1
            && headers[0].key().equals("n")
            && new String(headers[0].value(), StandardCharsets.UTF_8).equals(record.value());
        wrong += right ? 0 : 1;
    }

    private ProducerRecord<String, String> record(int number) {
        ProducerRecord<String, String> record =
            new ProducerRecord<>(topic, "k" + number, "v" + number);
        record.headers().add("n", record.value().getBytes(StandardCharsets.UTF_8));
        return record;
    }

    private KafkaProducer<String, String> producer(String compression) {
        return new KafkaProducer<>(
            settings(Map.of("compression.type", compression)),
            new StringSerializer(),
            new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(int maxPollRecords) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
            settings(Map.of(
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "isolation.level", "read_committed",
                "max.poll.records", String.valueOf(maxPollRecords))),
            new StringDeserializer(),
            new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private Properties settings(Map<String, String> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.putAll(login);
        settings.putAll(more);
        return settings;
    }

    private static String json(List<String> values) {
        return values.stream().map(value -> '"' + value + '"')
            .collect(Collectors.joining(", ", "[", "]"));
    }
}
