import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordBatchTooLargeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Producers and readers of a workload through Kafka's own client: java -cp LIBS JavaClients.java BOOTSTRAP
 *
 * <p>Reads one command a line, NUMBER WHAT CLIENT ARGUMENT..., and answers each that is not an opening once:
 * NUMBER ok RESULT..., NUMBER refused WHY (it has not happened and will not), NUMBER unknown WHY (it may have), or
 * NUMBER lost TOPIC PARTITION OFFSET WHY (the broker refuses a read position). Texts are URL-encoded, "!" is none.
 * The commands of one client are carried out in their order. Ends with its standard input.
 */
public class JavaClients {
    static final String NONE = "!";
    static final Duration LOOK_UP_TIMEOUT = Duration.ofSeconds(2);
    static final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(System.err);
        Map<String, Client> clients = new HashMap<>();
        answers.println("ready");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] fields = line.split(" ", -1);
            String number = fields[0], what = fields[1], name = fields[2];
            List<String> rest = Arrays.asList(fields).subList(3, fields.length);
            switch (what) {
                case "producer" -> clients.put(name, new Producer(arguments[0], rest));
                case "reader" -> clients.put(name, new Reader(arguments[0], rest));
                case "close" -> clients.remove(name).close(number);
                default -> clients.get(name).carryOut(number, what, rest);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void answer(String number, String status, Object... rest) {
        StringBuilder line = new StringBuilder(number).append(' ').append(status);
        for (Object field : rest) line.append(' ').append(field);
        answers.println(line);
    }

    static String encoded(String text) {
        return text == null ? NONE : URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    static String decoded(String field) {
        return field.equals(NONE) ? null : URLDecoder.decode(field, StandardCharsets.UTF_8);
    }

    static String why(Throwable error) {
        return encoded(error.getClass().getSimpleName() + ": " + error.getMessage());
    }

    /** As the other implementations of these clients: short timeouts, for a cluster under constant faults. */
    static Properties settings(String bootstrapServers, String clientId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrapServers);
        settings.put("client.id", clientId);
        settings.put("request.timeout.ms", 5_000);
        settings.put("socket.connection.setup.timeout.ms", 1_000);
        settings.put("socket.connection.setup.timeout.max.ms", 2_000);
        settings.put("reconnect.backoff.ms", 50);
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("retry.backoff.ms", 50);
        settings.put("retry.backoff.max.ms", 500);
        settings.put("metadata.max.age.ms", 1_000);
        return settings;
    }

    /** A client with a thread of its own. */
    abstract static class Client {
        final ExecutorService turn = Executors.newSingleThreadExecutor(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });

        abstract void carryOut(String number, String what, List<String> arguments);

        abstract void close(String number);
    }

    /** Opened with NAME ACKS IDEMPOTENT REQUESTS_IN_FLIGHT; "send" TOPIC PARTITION TIMESTAMP KEY VALUE. */
    static final class Producer extends Client {
        private final CompletableFuture<KafkaProducer<String, String>> opened;

        Producer(String bootstrapServers, List<String> arguments) {
            Properties settings = settings(bootstrapServers, decoded(arguments.get(0)));
            settings.put("acks", arguments.get(1));
            settings.put("enable.idempotence", arguments.get(2));
            settings.put("max.in.flight.requests.per.connection", arguments.get(3));
            settings.put("linger.ms", 5);
            settings.put("delivery.timeout.ms", 120_000);
            settings.put("max.block.ms", 120_000);
            opened = CompletableFuture.supplyAsync(
                () -> new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer()), turn);
        }

        @Override
        void carryOut(String number, String what, List<String> arguments) {
            var record = new ProducerRecord<>(
                decoded(arguments.get(0)), Integer.valueOf(arguments.get(1)), Long.valueOf(arguments.get(2)),
                decoded(arguments.get(3)), decoded(arguments.get(4)));
            turn.execute(() -> send(number, record));
        }

        /**
         * Whatever goes wrong before send() returns, on the thread that calls it, goes wrong before the record has a
         * place in a batch: there are no metadata, or no memory, or the producer is closed. Later errors come from
         * the thread that sends batches, repeatedly if need be, so that only a refusal of the record itself is certain.
         */
        private void send(String number, ProducerRecord<String, String> record) {
            Thread caller = Thread.currentThread();
            AtomicBoolean isCalling = new AtomicBoolean(true);
            try {
                opened.join().send(record, (metadata, error) -> {
                    boolean isCertain = Thread.currentThread() == caller && isCalling.get() || isRefusal(error);
                    if (error != null) answer(number, isCertain ? "refused" : "unknown", why(error));
                    else answer(number, "ok", metadata.hasOffset() ? metadata.offset() : NONE);
                });
            } catch (RuntimeException error) {
                answer(number, "refused", why(error));
            }
            isCalling.set(false);
        }

        private static boolean isRefusal(Exception error) {
            return error instanceof RecordTooLargeException || error instanceof RecordBatchTooLargeException
                || error instanceof InvalidRecordException;
        }

        /** Not in turn: a send may be waiting, and ends with this. All callbacks are done when close() returns. */
        @Override
        void close(String number) {
            opened.whenCompleteAsync((producer, error) -> {
                if (producer != null) producer.close(Duration.ZERO);
                turn.execute(() -> answer(number, "ok"));
                turn.shutdown();
            });
        }
    }

    /** Opened with NAME COMMITTED, and TOPIC PARTITION OFFSET of each partition. */
    static final class Reader extends Client {
        private final CompletableFuture<KafkaConsumer<String, String>> opened;

        Reader(String bootstrapServers, List<String> arguments) {
            Properties settings = settings(bootstrapServers, decoded(arguments.get(0)));
            settings.put("isolation.level", arguments.get(1).equals("true") ? "read_committed" : "read_uncommitted");
            settings.put("auto.offset.reset", "none");
            settings.put("enable.auto.commit", false);
            settings.put("fetch.max.wait.ms", 100);
            settings.put("max.poll.records", 1_000);
            opened = CompletableFuture.supplyAsync(() -> open(settings, arguments), turn);
        }

        private static KafkaConsumer<String, String> open(Properties settings, List<String> arguments) {
            Map<TopicPartition, Long> positions = new HashMap<>();
            for (int at = 2; at < arguments.size(); at += 3)
                positions.put(place(arguments.subList(at, at + 2)), Long.valueOf(arguments.get(at + 2)));
            var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.assign(positions.keySet());
            positions.forEach(consumer::seek);
            return consumer;
        }

        private static TopicPartition place(List<String> fields) {
            return new TopicPartition(decoded(fields.get(0)), Integer.parseInt(fields.get(1)));
        }

        @Override
        void carryOut(String number, String what, List<String> arguments) {
            turn.execute(() -> {
                try {
                    switch (what) {
                        case "poll" -> poll(number, Duration.ofMillis(Long.parseLong(arguments.get(0))));
                        case "start" -> answer(number, "ok", start(place(arguments)));
                        case "end" -> answer(number, "ok", end(place(arguments)));
                        default -> throw new IllegalArgumentException(what);
                    }
                } catch (RuntimeException error) {
                    answer(number, "unknown", why(error));
                }
            });
        }

        private long start(TopicPartition place) {
            return opened.join().beginningOffsets(Set.of(place), LOOK_UP_TIMEOUT).get(place);
        }

        private long end(TopicPartition place) {
            return opened.join().endOffsets(Set.of(place), LOOK_UP_TIMEOUT).get(place);
        }

        /** Answers, of each partition with records, TOPIC PARTITION COUNT, and OFFSET KEY VALUE so many times. */
        private void poll(String number, Duration timeout) {
            KafkaConsumer<String, String> consumer = opened.join();
            try {
                answer(number, "ok", shown(consumer.poll(timeout)));
            } catch (OffsetOutOfRangeException lost) {
                var first = lost.offsetOutOfRangePartitions().entrySet().iterator().next();
                TopicPartition place = first.getKey();
                answer(number, "lost", encoded(place.topic()), place.partition(), first.getValue(), why(lost));
            } catch (RetriableException error) {
                answer(number, "ok");
            } catch (KafkaException error) {
                readAgain(consumer, error);
                answer(number, "ok");
            }
        }

        private static Object[] shown(ConsumerRecords<String, String> polled) {
            return polled.partitions().stream().map(place -> {
                List<ConsumerRecord<String, String>> records = polled.records(place);
                StringBuilder shown = new StringBuilder(encoded(place.topic()))
                    .append(' ').append(place.partition()).append(' ').append(records.size());
                for (var record : records)
                    shown.append(' ').append(record.offset())
                        .append(' ').append(encoded(record.key())).append(' ').append(encoded(record.value()));
                return shown;
            }).toArray();
        }

        /** What could not be read is kept, and refused again, until it is sought: it may have been damaged on its way. */
        private static void readAgain(KafkaConsumer<String, String> consumer, KafkaException error) {
            System.err.println("reads again after " + error);
            for (TopicPartition place : consumer.assignment()) consumer.seek(place, consumer.position(place));
        }

        @Override
        void close(String number) {
            turn.execute(() -> {
                opened.join().close(CloseOptions.timeout(Duration.ofSeconds(1)));
                answer(number, "ok");
            });
            turn.shutdown();
        }
    }
}
