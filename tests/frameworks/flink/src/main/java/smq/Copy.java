package smq;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job that copies the topic `came` to `went` exactly once, in a cluster inside this JVM.
 *
 * <p>Arguments: bootstrap, the directory of checkpoints, and the checkpoint to start from, if any.
 */
public final class Copy {
    private Copy() {}

    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, settings(arguments));
        job.fromSource(source(arguments[0]), WatermarkStrategy.noWatermarks(), "came").sinkTo(sink(arguments[0]));
        job.execute("copy");
    }

    private static Configuration settings(String[] arguments) {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[1]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        if (arguments.length > 2) {
            settings.setString("execution.state-recovery.path", "file://" + arguments[2]);
        }
        return settings;
    }

    private static KafkaSource<String> source(String bootstrap) {
        return KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics("came")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    }

    private static KafkaSink<String> sink(String bootstrap) {
        return KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("copy")
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(
                KafkaRecordSerializationSchema.builder()
                    .setTopic("went")
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
    }
}
