import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/** Reads records of __consumer_offsets, "key value" in hexadecimal, and writes each as Kafka's coordinator does. */
public class GroupRecords {
    public static void main(String[] arguments) throws Exception {
        var serde = new GroupCoordinatorRecordSerde();
        var hex = HexFormat.of();
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ");
            ByteBuffer value = parts.length > 1 ? ByteBuffer.wrap(hex.parseHex(parts[1])) : null;
            CoordinatorRecord record = serde.deserialize(ByteBuffer.wrap(hex.parseHex(parts[0])), value);
            byte[] written = serde.serializeValue(record);
            System.out.println(hex.formatHex(serde.serializeKey(record)) + (written == null ? "" : " " + hex.formatHex(written))
                + "\t" + (record.value() == null ? "" : record.value().message()));
        }
    }
}
