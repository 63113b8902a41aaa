import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's command-line tools, one after the other in one JVM.
 *
 * <p>Each line of the standard input is a call: what the tool gets as its standard input, its class and
 * its arguments, each in base64, with blanks between. Each line of the output is its answer: the exit
 * code and what it printed, the latter in base64.
 */
public final class Toolbox {
    private static ByteArrayOutputStream printed;
    private static Integer code; // null while a tool runs.
    private static byte[] last;

    private Toolbox() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> { });
        for (String call = calls.readLine(); call != null; call = calls.readLine()) {
            byte[] answer = called(call.split(" "));
            answers.println(code + " " + Base64.getEncoder().encodeToString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static byte[] called(String[] call) throws Exception {
        String[] arguments = Arrays.stream(call).skip(2).map(Toolbox::text).toArray(String[]::new);
        begin(decoded(call[0]));
        try {
            Class.forName(text(call[1])).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (code == null) {
                thrown.getCause().printStackTrace();
                keep(1);
            }
        }
        keep(0);
        return last;
    }

    private static void begin(byte[] given) {
        printed = new ByteArrayOutputStream();
        PrintStream out = new PrintStream(printed, true);
        System.setIn(new ByteArrayInputStream(given));
        System.setOut(out);
        System.setErr(out);
        code = null;
    }

    /** A tool ends here; some catch what is thrown, complain and end once more. */
    private static void end(int status) {
        keep(status);
        throw new IllegalStateException("exit " + status);
    }

    /** What counts is the first code, and what was printed until then. */
    private static void keep(int status) {
        if (code == null) {
            code = status;
            last = printed.toByteArray();
        }
    }

    private static byte[] decoded(String word) {
        return Base64.getDecoder().decode(word.substring(1));
    }

    private static String text(String word) {
        return new String(decoded(word));
    }
}
