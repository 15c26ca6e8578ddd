// Kafka's own Java clients against a running cluster: java -cp LIBS JavaClient.java BOOTSTRAP TOPIC GROUP PROTOCOL
// Prints one line of JSON with its results; any exception ends it with a status other than 0.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaClient {
    static final int RECORDS = 200;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], group = args[2], protocol = args[3];
        Properties base = new Properties();
        base.put("bootstrap.servers", bootstrap);
        StringBuilder seen = new StringBuilder("{");
        try (Admin admin = Admin.create(base)) {
            administer(admin, topic, seen);
            manage(admin, topic, seen);
            produce(base, topic);
            consume(base, admin, topic, group, protocol, seen);
            assign(base, topic, seen);
            admin.deleteTopics(List.of(topic)).all().get();
        }
        System.out.println(seen.append("\"done\": true}"));
        System.exit(0);
    }

    static void administer(Admin admin, String topic, StringBuilder seen) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 3))).all().get();
        Set<Integer> brokers =
            admin.describeCluster().nodes().get().stream().map(Node::id).collect(Collectors.toCollection(TreeSet::new));
        note(seen, "brokers", brokers);
        note(seen, "voters", admin.describeMetadataQuorum().quorumInfo().get().voters().size());
        note(seen, "group_version",
            admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("group.version").maxVersionLevel());
        eventually(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "4242"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        eventually(() -> {
            String value = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
            if (!value.equals("4242")) throw new IllegalStateException("retention.ms is " + value);
        });
        eventually(() -> {
            int count = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            if (count != 4) throw new IllegalStateException(count + " partitions");
        });
    }

    // Where partitions are, which brokers lead them, and the nodes of the cluster.
    static void manage(Admin admin, String topic, StringBuilder seen) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        int leader = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).leader().id();
        List<Integer> backwards = new ArrayList<>(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
            .partitions().get(0).replicas().stream().map(Node::id).toList());
        Collections.reverse(backwards);
        admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(backwards)))).all().get();
        eventually(() -> {
            if (!admin.listPartitionReassignments().reassignments().get().isEmpty())
                throw new IllegalStateException("still moving");
        });
        var outcome = admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().get(first);
        note(seen, "elected", outcome.isEmpty() || outcome.get() instanceof ElectionNotNeededException);
        eventually(() -> {
            int now = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).leader().id();
            if (now != backwards.get(0) || now == leader) throw new IllegalStateException(now + " leads");
        });
        var directories = admin.describeLogDirs(Set.of(leader)).allDescriptions().get().get(leader).values();
        note(seen, "logs", directories.stream().flatMap(it -> it.replicaInfos().keySet().stream())
            .filter(it -> it.topic().equals(topic)).count());
        Uuid directory = Uuid.randomUuid();
        Map<String, Future<Void>> refused = new TreeMap<>();
        refused.put("add", admin.addRaftVoter(9, directory, Set.of(new RaftVoterEndpoint("CONTROLLER", "h", 1))).all());
        refused.put("remove", admin.removeRaftVoter(9, directory).all());
        refused.put("unregister", admin.unregisterBroker(99).all());
        refused.put("cancel", admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all());
        refused.put("feature", admin.updateFeatures(
            Map.of("no.such", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all());
        for (Map.Entry<String, Future<Void>> entry : refused.entrySet()) {
            try {
                entry.getValue().get();
                throw new IllegalStateException(entry.getKey() + " was not refused");
            } catch (ExecutionException error) {
                note(seen, entry.getKey(), "\"" + error.getCause().getClass().getSimpleName() + "\"");
            }
        }
    }

    static void produce(Properties base, String topic) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Properties settings = new Properties();
            settings.putAll(base);
            settings.put("compression.type", codec);
            settings.put("linger.ms", 5);
            try (KafkaProducer<String, String> producer =
                     new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (int n = 0; n < RECORDS / 5; n++) {
                    producer.send(new ProducerRecord<>(topic, "k" + n, codec + n), (metadata, error) -> {
                        if (error != null) throw new IllegalStateException(error);
                    });
                }
                producer.flush();
            }
        }
    }

    static void consume(
        Properties base, Admin admin, String topic, String group, String protocol, StringBuilder seen
    ) throws Exception {
        Properties settings = new Properties();
        settings.putAll(base);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        Set<String> values = new HashSet<>();
        try (KafkaConsumer<String, String> first = newConsumer(settings);
             KafkaConsumer<String, String> second = newConsumer(settings)) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            // Records that a member did not commit before a revocation are read again by the next owner.
            while (values.size() < RECORDS || first.assignment().size() != 2 || second.assignment().size() != 2
                || position(first) + position(second) != RECORDS) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(values.size() + " values; members own "
                        + first.assignment() + " and " + second.assignment());
                }
                for (KafkaConsumer<String, String> consumer : List.of(first, second)) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                        values.add(record.value());
                    }
                }
            }
            note(seen, "values", values.size());
            note(seen, "members",
                admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size());
            first.commitSync();
            second.commitSync();
        }
        Map<TopicPartition, OffsetSpec> latest =
            Set.of(0, 1, 2, 3).stream().collect(Collectors.toMap(n -> new TopicPartition(topic, n), n -> OffsetSpec.latest()));
        note(seen, "latest", admin.listOffsets(latest).all().get().values().stream().mapToLong(o -> o.offset()).sum());
        note(seen, "committed", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .values().stream().mapToLong(o -> o.offset()).sum());
        admin.deleteConsumerGroups(List.of(group)).all().get();
    }

    // Reads every partition to its end, without a group.
    static void assign(Properties base, String topic, StringBuilder seen) {
        Set<String> values = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = newConsumer(base)) {
            List<TopicPartition> partitions =
                consumer.partitionsFor(topic).stream().map(it -> new TopicPartition(topic, it.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(it -> consumer.position(it) < ends.get(it))) {
                consumer.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value()));
            }
        }
        note(seen, "assigned", values.size());
    }

    static KafkaConsumer<String, String> newConsumer(Properties settings) {
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static long position(KafkaConsumer<String, String> consumer) {
        return consumer.assignment().stream().mapToLong(consumer::position).sum();
    }

    interface Attempt {
        void run() throws Exception;
    }

    // A change reaches the brokers at different times: a broker that does not know it yet is asked again.
    static void eventually(Attempt attempt) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        while (true) {
            try {
                attempt.run();
                return;
            } catch (Exception error) {
                if (System.nanoTime() > deadline) throw error;
            }
        }
    }

    static void note(StringBuilder seen, String name, Object value) {
        seen.append("\"").append(name).append("\": ").append(value).append(", ");
    }
}
