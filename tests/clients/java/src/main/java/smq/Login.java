package smq;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The login of the environment as Java's client names it: see tests/clients/programs/contract.py. */
final class Login {
    private static final String VARIABLE = "SMQ_TEST_LOGIN";
    private static final String MODULES = "org.apache.kafka.common.security.";
    /** A name and a value, both texts in which nothing is escaped but quotes and backslashes. */
    private static final Pattern MEMBER =
        Pattern.compile("\"([^\"]+)\"\\s*:\\s*\"((?:[^\"\\\\]|\\\\.)*)\"");

    private Login() {}

    static Map<String, String> settings() {
        Map<String, String> given = new HashMap<>();
        Matcher members = MEMBER.matcher(System.getenv().getOrDefault(VARIABLE, "{}"));
        while (members.find()) {
            given.put(members.group(1), members.group(2).replaceAll("\\\\(.)", "$1"));
        }
        Map<String, String> settings = new HashMap<>();
        copy(given, "security.protocol", settings, "security.protocol");
        copy(given, "sasl.mechanism", settings, "sasl.mechanism");
        copy(given, "ssl.ca.location", settings, "ssl.truststore.location");
        copy(given, "ssl.key.location", settings, "ssl.keystore.location");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.keystore.type", "PEM");
        if (given.containsKey("sasl.mechanism")) {
            boolean plain = given.get("sasl.mechanism").equals("PLAIN");
            settings.put("sasl.jaas.config", String.format(
                "%s required username=\"%s\" password=\"%s\";",
                MODULES + (plain ? "plain.PlainLoginModule" : "scram.ScramLoginModule"),
                given.get("sasl.username"), given.get("sasl.password")));
        }
        return settings;
    }

    private static void copy(
            Map<String, String> from, String name, Map<String, String> to, String named) {
        if (from.containsKey(name)) {
            to.put(named, from.get(name));
        }
    }
}
