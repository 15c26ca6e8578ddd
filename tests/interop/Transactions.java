import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of Kafka's Java producer: arguments are servers, topic, partitions and transactional id. */
public class Transactions {
    static KafkaProducer<String, String> producer(String servers, String id) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("transactional.id", id);
        KafkaProducer<String, String> made =
            new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static void send(KafkaProducer<String, String> producer, String topic, int partitions, String value)
            throws Exception {
        List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
        }
        for (java.util.concurrent.Future<?> one : sent) {
            one.get();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1], id = arguments[3];
        int partitions = Integer.parseInt(arguments[2]);
        KafkaProducer<String, String> old = producer(servers, id);
        for (int number = 0; number < 6; number++) {
            old.beginTransaction();
            send(old, topic, partitions, Integer.toString(number));
            if (number % 2 == 0) {
                old.commitTransaction();
            } else {
                old.abortTransaction();
            }
        }
        old.beginTransaction();
        send(old, topic, partitions, "fenced");
        String state;
        boolean listed = false;
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", servers))) {
            TransactionDescription found = admin.describeTransactions(List.of(id)).description(id).get();
            state = found.state() + " " + found.topicPartitions().size();
            for (TransactionListing one : admin.listTransactions().all().get()) {
                listed |= one.transactionalId().equals(id);
            }
        }
        KafkaProducer<String, String> young = producer(servers, id);
        young.beginTransaction();
        send(young, topic, partitions, "last");
        young.commitTransaction();
        young.close();
        boolean fenced = false;
        try {
            old.commitTransaction();
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            fenced = true;
        }
        old.close(java.time.Duration.ZERO);
        System.out.println(
            "{\"open\": \"" + state + "\", \"listed\": " + listed + ", \"fenced\": " + fenced + "}");
    }
}
