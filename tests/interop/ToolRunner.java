import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import net.sourceforge.argparse4j.inf.Namespace;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.slf4j.LoggerFactory;

/**
 * Runs Kafka's command-line tools in one JVM, one after another: java -cp LIBS ToolRunner.java
 * Reads lines ["CLASS", "ARGUMENT", ...], and answers each by a line [STATUS, "STANDARD OUTPUT", "STANDARD ERROR"].
 */
public class ToolRunner {
    /** Unwinds a tool that has ended its JVM, so that it closes its clients. */
    static final class Ended extends Error {
        Ended() {
            super("exit", null, false, false);
        }
    }

    /** What tools know as a standard stream: some keep the one that was there when their class was loaded. */
    static final class Captured extends OutputStream {
        private ByteArrayOutputStream held = new ByteArrayOutputStream();
        private boolean heard;

        synchronized void listen() {
            held = new ByteArrayOutputStream();
            heard = true;
        }

        synchronized void ignore() {
            heard = false;
        }

        synchronized String text() {
            return held.toString(StandardCharsets.UTF_8);
        }

        @Override
        public synchronized void write(int octet) {
            if (heard) held.write(octet);
        }

        @Override
        public synchronized void write(byte[] octets, int offset, int count) {
            if (heard) held.write(octets, offset, count);
        }
    }

    static final Captured out = new Captured(), err = new Captured();
    static volatile Integer exited;

    public static void main(String[] none) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var json = new ObjectMapper();
        LoggerFactory.getILoggerFactory(); // complains on the first use that there is no logger
        System.setIn(InputStream.nullInputStream());
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(ToolRunner::exit);
        Exit.setHaltProcedure(ToolRunner::exit);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] command = json.readValue(line, String[].class);
            int status = run(Class.forName(command[0]), Arrays.copyOfRange(command, 1, command.length));
            answers.println(json.writeValueAsString(List.of(status, out.text(), err.text())));
        }
        Runtime.getRuntime().halt(0);
    }

    /** What a tool says or answers while it is unwound does not count: its JVM would be gone. */
    static void exit(int status, String message) {
        if (exited == null) exited = status;
        out.ignore();
        err.ignore();
        throw new Ended();
    }

    static int run(Class<?> tool, String[] arguments) throws ReflectiveOperationException {
        exited = null;
        out.listen();
        err.listen();
        try {
            call(tool, arguments);
        } catch (InvocationTargetException failed) {
            if (exited == null) {
                System.err.print("Exception in thread \"main\" ");
                failed.getCause().printStackTrace();
                exited = 1;
            }
        }
        out.ignore();
        err.ignore();
        return exited == null ? 0 : exited;
    }

    static void call(Class<?> tool, String[] arguments) throws ReflectiveOperationException {
        if (!tool.getSimpleName().equals("TransactionsCommand")) {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return;
        }
        // As its main method, which leaves the client open.
        Method build = accessible(tool, "buildAdminClient", Namespace.class);
        Method execute =
            accessible(tool, "execute", String[].class, Function.class, PrintStream.class, Time.class);
        List<Admin> opened = new ArrayList<>();
        Function<Namespace, Admin> open = namespace -> {
            try {
                opened.add((Admin) build.invoke(null, namespace));
                return opened.get(0);
            } catch (InvocationTargetException failed) {
                if (failed.getCause() instanceof Error error) throw error;
                throw (RuntimeException) failed.getCause();
            } catch (IllegalAccessException failed) {
                throw new IllegalStateException(failed);
            }
        };
        try {
            execute.invoke(null, arguments, open, System.out, Time.SYSTEM);
        } finally {
            opened.forEach(Admin::close);
        }
    }

    static Method accessible(Class<?> owner, String name, Class<?>... parameters) throws NoSuchMethodException {
        Method method = owner.getDeclaredMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }
}
