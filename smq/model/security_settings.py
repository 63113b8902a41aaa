"""The settings of listeners and logins, which Config inherits.

They have Kafka's names and meanings. Those in LISTENER_SETTINGS may also be set for one listener,
as `listener.name.<name>.<setting>`, and those in MECHANISM_SETTINGS for one mechanism of one
listener, as `listener.name.<name>.<mechanism>.<setting>`. smq.security.listeners reads and checks
them.
"""

from dataclasses import dataclass, field
from typing import Any

from smq.model.setting import KiB, MiB, setting

PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENT_AUTH = ("none", "requested", "required")
STORE_TYPES = ("", "PEM", "PKCS12", "JKS")

LISTENERS = "listeners"
SHORT_FORM = ("host", "port", "advertise")
"""What `listeners` replace, where one setting of each is enough."""
LISTENER_PREFIX = "listener.name."
TOKEN_SETTINGS = frozenset(
    {
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    }
)
LISTENER_SETTINGS = frozenset(
    {
        *TOKEN_SETTINGS,
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
MECHANISM_SETTINGS = frozenset({*TOKEN_SETTINGS, "connections.max.reauth.ms"})
CLOCK_SKEW_SECONDS_MAX = 3600
"""Clocks of hosts are within seconds; who is an hour off has another time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Who may reach the broker, and how it knows who that is."""

    listeners: str = setting(
        "",
        "Where the first shard listens, `NAME://host:port` separated by commas; shard *i* listens "
        "on these ports + *i* - 1, 0 picks free ones. Replaces `host`, `port` and `advertise`.",
        default_words="`PLAINTEXT://<host>:<port>`",
    )
    advertised_listeners: str = setting(
        "",
        "Where clients reach the first shard's listeners, in the same form; without a port the "
        "listener's own.",
        default_words="`listeners`",
    )
    listener_security_protocol_map: str = setting(
        PROTOCOL_MAP,
        "The protocol of each listener, `NAME:PROTOCOL` separated by commas. GRPC and AGENT are "
        "those of `grpc.port` and `agent.port`; without an entry PLAINTEXT.",
    )
    http_host: str = setting(
        "",
        "The address that HTTP listens on. Beyond loopback it needs `authorizer.class.name`, and "
        "TLS for logins, or `allow.plaintext`.",
        default_words="`host`",
    )
    http_security_protocol: str = setting(
        "PLAINTEXT",
        "Whether HTTP speaks TLS (SSL), with the keys of `ssl.keystore.*` or "
        "`listener.name.http.ssl.keystore.*`.",
        one_of=("PLAINTEXT", "SSL"),
    )
    grpc_port: int = setting(
        -1,
        "Port of SeaweedMQ's broker service, for its clients; 0 picks a free port, -1 turns it "
        "off. Needs the extra `grpc`.",
        at_least=-1,
        at_most=65535,
    )
    agent_port: int = setting(
        -1,
        "Port of SeaweedMQ's agent service; as `grpc.port`.",
        at_least=-1,
        at_most=65535,
    )
    grpc_host: str = setting(
        "127.0.0.1",
        "The address that SeaweedMQ's services listen on. Beyond loopback they need what other "
        "listeners do: their names in `listener.security.protocol.map` are GRPC and AGENT.",
    )
    grpc_advertise: str = setting(
        "",
        "Where SeaweedMQ's clients reach the broker service, `host:port`.",
        default_words="`<grpc.host>:<grpc.port>`",
    )
    allow_plaintext: bool = setting(
        default=False,
        doc="Listen beyond loopback without encryption: PLAINTEXT, where nobody is known by name, "
        "SASL_PLAINTEXT, which still needs an authorizer, and HTTP, with its logins.",
    )
    allow_anonymous: bool = setting(
        default=False,
        doc="Listen beyond loopback without logins or without an authorizer where both could be: "
        "on each listener but PLAINTEXT.",
    )
    authorizer_class_name: str = setting(
        "",
        "Who may do what is decided by access rules (`smq acl`); empty: everybody may do all.",
        one_of=("", STANDARD_AUTHORIZER),
    )
    super_users: str = setting(
        "", "Principals that may do everything: `User:alice;User:bob`.", default_words="none"
    )
    allow_everyone_if_no_acl_found: bool = setting(
        default=False,
        doc="Whether everybody may do what they want with a resource that no access rule names.",
    )
    audit_log_enable: str = setting(
        "",
        "Whether `<data.dir>/audit` is told who changes what, who is refused, and who logs in.",
        one_of=("", "true", "false"),
        default_words="`true` with `authorizer.class.name`, else `false`",
    )
    audit_log_bytes: int = setting(
        10 * MiB,
        "At this size a file of the audit log is put aside, and another is begun.",
        at_least=64 * KiB,
        at_most=1024 * MiB,
    )
    audit_log_files: int = setting(
        10,
        "How many files are kept of acts, and as many of denials, failed acts and logins.",
        at_least=1,
        at_most=1000,
    )
    metrics_token: str = setting(
        "",
        "What readers of `/metrics` must send, as `Authorization: Bearer <token>`. Without it "
        "`/metrics` is for all, or with `authorizer.class.name` for nobody.",
        secret=True,
    )
    metrics_tokens_location: str = setting(
        "",
        "File with such tokens, one a line, instead of `metrics.token`. It is read again when it "
        "changes: to replace a token, have both in it until all readers send the new one.",
        default_words="none",
    )
    sasl_enabled_mechanisms: str = setting(
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "By which mechanisms clients may log in: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER. "
        "PLAIN checks passwords with the users' SCRAM credentials, OAUTHBEARER tokens with the "
        "keys of `sasl.oauthbearer.jwks.endpoint.url`.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "",
        "The file with the keys of the issuer of tokens (JWKS), as `file:///path`. It is read "
        "again when it changes. Other URLs are refused.",
        default_words="none",
    )
    sasl_oauthbearer_expected_audience: str = setting(
        "",
        "For whom tokens must be: one of these names, separated by commas, is in their `aud`.",
        default_words="none",
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "", "From whom tokens must be: their `iss`.", default_words="none"
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sub", "The claim of a token that names its user."
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "scope",
        "The claim of a token that names its scopes. They are checked for form, and decide "
        "nothing.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30,
        "By how much the clocks of the broker and of the issuer may differ.",
        at_least=0,
        at_most=CLOCK_SKEW_SECONDS_MAX,
    )
    connections_max_reauth_ms: int = setting(
        0,
        "A client that has logged in must do so again within this time, else its connection is "
        "closed when it asks for something; 0: it need not.",
        at_least=0,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "When a failed login is answered.", at_least=0, at_most=10_000
    )
    sasl_server_max_receive_size: int = setting(
        64 * KiB,
        "All bytes that a connection may send until it has logged in.",
        at_least=4 * KiB,
        at_most=512 * KiB,
    )
    ssl_client_auth: str = setting(
        "none",
        "Whether clients show a certificate. SASL_SSL listeners have their own or none.",
        one_of=CLIENT_AUTH,
    )
    ssl_enabled_protocols: str = setting(
        "TLSv1.2,TLSv1.3", "The versions of TLS that are spoken, of these two."
    )
    ssl_keystore_type: str = setting(
        "",
        "The form of the key store. JKS is refused: keytool makes PKCS12 of it.",
        one_of=STORE_TYPES,
        default_words="as the file is",
    )
    ssl_keystore_location: str = setting(
        "",
        "File with the broker's key and its certificate chain, or a directory with `tls.key` and "
        "`tls.crt`. It is read again when it changes.",
        default_words="none",
    )
    ssl_keystore_password: str = setting("", "Password of a PKCS12 key store.", secret=True)
    ssl_keystore_key: str = setting(
        "", "The broker's key as PEM, instead of a key store.", secret=True
    )
    ssl_keystore_certificate_chain: str = setting(
        "", "The certificates to that key as PEM, the broker's first.", default_words="none"
    )
    ssl_key_password: str = setting("", "Password of an encrypted key.", secret=True)
    ssl_truststore_type: str = setting(
        "", "The form of the trust store.", one_of=STORE_TYPES, default_words="as the file is"
    )
    ssl_truststore_location: str = setting(
        "",
        "File with the authorities that clients' certificates are from. It is read again when it "
        "changes.",
        default_words="none",
    )
    ssl_truststore_password: str = setting("", "Password of a PKCS12 trust store.", secret=True)
    ssl_truststore_certificates: str = setting(
        "", "These authorities as PEM, instead of a trust store.", default_words="none"
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "The name of a client with a certificate: `DEFAULT`, its whole name, or "
        "`RULE:pattern/name/[LU]`; the first that matches. Patterns are RE2's.",
    )

    listener_settings: tuple[tuple[str, Any], ...] = field(
        default=(), metadata={"is_internal": True}
    )
    """Values for one listener, with their full names in lower case, `listener.name.…`."""

    @property
    def is_audited(self) -> bool:
        """Whether there is an audit log."""
        return self.audit_log_enable == "true" or (
            not self.audit_log_enable and bool(self.authorizer_class_name)
        )
