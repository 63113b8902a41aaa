import java.util.*;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** For each line "hex of a name in DER<TAB>rules": the name as Java writes it, and what the rules make of it. */
class Names {
    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, "UTF-8");
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split("\t", 2);
            String name = new X500Principal(HexFormat.of().parseHex(parts[0])).getName();
            String mapped;
            try {
                mapped = SslPrincipalMapper.fromRules(parts[1]).getName(name);
            } catch (Exception none) {
                mapped = "NONE";
            }
            out.println(hex(name) + "\t" + hex(mapped));
        }
    }

    static String hex(String text) throws Exception {
        return HexFormat.of().formatHex(text.getBytes("UTF-8"));
    }
}
