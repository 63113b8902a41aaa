// Kafka's own StandardAuthorizer answers questions: one world after the other, from standard input.
//
//     world ALLOW_IF_NO_RULE          a new authorizer
//     rule TYPE PATTERN NAME PRINCIPAL HOST OPERATION PERMISSION
//     ask TYPE NAME PRINCIPAL HOST OPERATION
//     any TYPE PRINCIPAL HOST OPERATION
//
// `ask` and `any` print 1 or 0, a world a line. Tabs separate words; codes are Kafka's.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Referee {
    static AuthorizableRequestContext context(String principal, String host) throws Exception {
        KafkaPrincipal who = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress address = InetAddress.getByName(host);
        return (AuthorizableRequestContext) Proxy.newProxyInstance(
            Referee.class.getClassLoader(),
            new Class<?>[] {AuthorizableRequestContext.class},
            (self, method, arguments) -> switch (method.getName()) {
                case "principal" -> who;
                case "clientAddress" -> address;
                case "requestType", "requestVersion", "correlationId" -> 0;
                default -> "";
            });
    }

    static byte code(String word) {
        return Byte.parseByte(word);
    }

    static String said(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "1" : "0";
    }

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "world" -> {
                    if (authorizer != null) System.out.println();
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        "node.id", "1",
                        "super.users", "User:root; User:a:b",
                        "allow.everyone.if.no.acl.found", words[1]));
                    authorizer.withPluginMetrics(
                        new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                }
                case "rule" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(code(words[1])), words[3],
                    PatternType.fromCode(code(words[2])), words[4], words[5],
                    AclOperation.fromCode(code(words[6])),
                    AclPermissionType.fromCode(code(words[7]))));
                case "ask" -> {
                    var resource = new ResourcePattern(
                        ResourceType.fromCode(code(words[1])), words[2], PatternType.LITERAL);
                    var action = new Action(
                        AclOperation.fromCode(code(words[5])), resource, 1, true, true);
                    System.out.print(said(authorizer.authorize(
                        context(words[3], words[4]), List.of(action)).get(0)));
                }
                case "any" -> System.out.print(said(authorizer.authorizeByResourceType(
                    context(words[2], words[3]), AclOperation.fromCode(code(words[4])),
                    ResourceType.fromCode(code(words[1])))));
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.println();
    }
}
