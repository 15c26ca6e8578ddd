// Group members of Kafka's Java client: java -cp LIBS GroupMembers (orders and events: member_program.py)

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMembers implements ConsumerRebalanceListener, Runnable {
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    static final Map<String, GroupMembers> members = new ConcurrentHashMap<>();
    static final Pattern FIELD = Pattern.compile("\"(\\w+)\": (?:\"([^\"]*)\"|(\\d+)|null)");

    final String name;
    final String topic;
    final KafkaConsumer<String, String> consumer;
    final AtomicBoolean stopping = new AtomicBoolean();
    final TreeSet<Integer> owned = new TreeSet<>();

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            Map<String, String> order = new HashMap<>();
            for (Matcher field = FIELD.matcher(line); field.find(); ) {
                order.put(field.group(1), field.group(2) != null ? field.group(2) : field.group(3));
            }
            if (order.containsKey("stop")) {
                members.get(order.get("stop")).stopping.set(true);
                continue;
            }
            GroupMembers member = new GroupMembers(order);
            members.put(member.name, member);
            Thread thread = new Thread(member, member.name);
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    GroupMembers(Map<String, String> order) {
        name = order.get("start");
        topic = order.get("topic");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", order.get("servers"));
        settings.put("client.id", name);
        settings.put("group.id", order.get("group"));
        settings.put("group.protocol", order.get("protocol"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "300");
        if (order.get("protocol").equals("classic")) {
            settings.put("session.timeout.ms", order.get("session_ms"));
            settings.put("heartbeat.interval.ms", "500");
            if (order.get("assignor") != null) {
                settings.put("partition.assignment.strategy", ASSIGNORS.get(order.get("assignor")));
            }
        }
        if (order.get("instance") != null) settings.put("group.instance.id", order.get("instance"));
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    @Override
    public void run() {
        try {
            consumer.subscribe(List.of(topic), this);
            while (!stopping.get()) turn();
            consumer.close();
            say("\"stopped\": true");
        } catch (Throwable error) {
            say("\"error\": \"" + error.toString().replaceAll("[^ -~]|[\"\\\\]", "'") + "\"");
        }
    }

    void turn() {
        TreeMap<Integer, Long> ends = new TreeMap<>();
        StringBuilder got = new StringBuilder();
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
            got.append(got.isEmpty() ? "" : ", ").append("[" + record.partition() + ", " + record.offset() + "]");
            ends.put(record.partition(), record.offset() + 1);
        }
        if (ends.isEmpty()) return;
        say("\"got\": [" + got + "]");
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        ends.forEach((partition, end) -> offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(end)));
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            return; // a later turn commits them, or the next owner reads them again
        }
        StringBuilder committed = new StringBuilder();
        ends.forEach((partition, end) -> committed.append(committed.isEmpty() ? "" : ", ").append("[" + partition + ", " + end + "]"));
        say("\"committed\": [" + committed + "]");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(it -> owned.add(it.partition()));
        say("\"what\": \"assigned\", \"owned\": " + owned);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        removed("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        removed("lost", partitions);
    }

    void removed(String what, Collection<TopicPartition> partitions) {
        partitions.forEach(it -> owned.remove(it.partition()));
        say("\"what\": \"" + what + "\", \"owned\": " + owned);
    }

    void say(String what) {
        String line = "{\"member\": \"" + name + "\", " + what + "}\n";
        synchronized (System.out) {
            System.out.print(line);
            System.out.flush();
        }
    }
}
