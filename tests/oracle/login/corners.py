"""The corners: each a function that knocks and notes."""

import os
import struct
from collections.abc import Callable

from smq.wire.generated.produce import ProduceRequest
from tests.oracle.login.knock import (
    Knock,
    authentication,
    client_final,
    client_first,
    log_in,
    log_in_by_scram,
)
from tests.oracle.talk import encode

PLAIN, SHA_256, SHA_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
Script = Callable[[Knock], None]
CORNERS: dict[str, Script] = {}


def corner(script: Script) -> Script:
    CORNERS[script.__name__.replace("_", "-")] = script
    return script


@corner
def api_versions_first(knock: Knock) -> None:
    for one, other in ((3, 3), (0, 4), (4, 0)):
        knock.api_versions(f"{one}", one)
        knock.api_versions(f"{other} after {one}", other)
        knock.again()
    for number in range(3):
        knock.api_versions(f"a version that is none, {number}", 99)
    knock.api_versions("a good one after them", 3)
    knock.handshake("a handshake after it", PLAIN)
    knock.again()
    knock.api_versions("a bad name of the software", software="-bad!")
    knock.handshake("a handshake after a bad name", PLAIN)


@corner
def something_else_first(knock: Knock) -> None:
    firsts = {
        "SaslAuthenticate": authentication(b"\0alice\0alice-secret"),
        "an unknown api": struct.pack(">hhih", 999, 0, 1, -1),
        "an empty frame": b"",
        "garbage": b"garbage that is no header",
        "a raw token": b"\0alice\0alice-secret",
    }
    for name, frame in firsts.items():
        knock.send_frame(frame)
        knock.end(name)
        knock.again()
    knock.metadata("Metadata")
    knock.again()
    knock.api_versions("ApiVersions")
    knock.metadata("Metadata after ApiVersions")
    knock.again()
    for name, data in (
        ("a negative size", struct.pack(">i", -1)),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64)),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
    ):
        knock.send(data)
        knock.note(name, knock.receive())
        knock.again()


@corner
def handshakes(knock: Knock) -> None:
    for version in (0, 1, 2):
        knock.handshake(f"version {version}", PLAIN, version)
        knock.again()
    for mechanism in ("GSSAPI", "plain", "", "OAUTHBEARER"):
        for version in (0, 1):
            knock.handshake(f"{mechanism!r}, version {version}", mechanism, version)
            knock.end(f"{mechanism!r}, version {version}: after it")
            knock.again()
    knock.handshake("one", PLAIN)
    knock.handshake("a second one", PLAIN)
    knock.end("after the second one")
    knock.again()
    knock.handshake("one of PLAIN", PLAIN)
    knock.handshake("a second one, of SCRAM", SHA_256)


@corner
def between_handshake_and_login(knock: Knock) -> None:
    knock.handshake("handshake", PLAIN)
    knock.api_versions("ApiVersions")
    knock.end("after ApiVersions")
    knock.again()
    knock.handshake("handshake 0", PLAIN, 0)
    knock.api_versions("ApiVersions after handshake 0")
    knock.again()
    for version in (1, 9):
        knock.begin(PLAIN)
        knock.metadata(f"Metadata {version}", version)
        knock.end(f"after Metadata {version}")
        knock.again()
    others = {
        "an unknown api": struct.pack(">hhih", 999, 0, 1, -1),
        "a version that is none": struct.pack(">hhih", 3, 99, 1, -1),
        "a raw token": b"\0alice\0alice-secret",
        "Produce without acks": encode(ProduceRequest(acks=0, timeout_ms=10), 9),
    }
    for name, frame in others.items():
        knock.begin(PLAIN)
        knock.send_frame(frame)
        knock.note(name, knock.receive())
        knock.again()


@corner
def plain_logins(knock: Knock) -> None:
    for version in (0, 1, 2, 3):
        knock.begin(PLAIN)
        knock.plain(f"version {version}", "alice", version=version)
        knock.again()
    tokens = {
        "a wrong password": b"\0alice\0wrong",
        "an unknown user": b"\0nobody\0x",
        "no password": b"\0alice\0",
        "no user": b"\0\0x",
        "two parts": b"alice\0alice-secret",
        "four parts": b"\0alice\0alice-secret\0x",
        "nothing": b"",
        "for herself": b"alice\0alice\0alice-secret",
        "for another": b"bob\0alice\0alice-secret",
        "no UTF-8": b"\0al\xffice\0x",
    }
    for name, token in tokens.items():
        knock.begin(PLAIN)
        knock.authenticate(name, token)
        knock.end(f"after {name}")
        knock.again()
    for version in (0, 2):
        knock.begin(PLAIN)
        knock.plain(f"a wrong password, version {version}", "alice", "wrong", version)
        knock.again()
    knock.begin(PLAIN)
    knock.send_frame(authentication(b"\0alice\0wrong"))
    knock.plain("wrong, with the right one behind it", "alice")
    knock.end("the right one")


@corner
def raw_tokens(knock: Knock) -> None:
    knock.handshake("handshake", PLAIN, 0)
    knock.raw_token("a good one", b"\0alice\0alice-secret")
    knock.metadata("Metadata after it")
    knock.again()
    bad = {
        "a wrong password": b"\0alice\0wrong",
        "nothing": b"",
        "SaslAuthenticate": authentication(b"\0alice\0alice-secret"),
    }
    for name, token in bad.items():
        knock.begin(PLAIN, 0)
        knock.raw_token(name, token)
        knock.again()
    knock.begin(SHA_512, 0)
    said = knock.raw_token("SCRAM's first", client_first("alice"))
    knock.raw_token("SCRAM's final", client_final(said, "alice", algorithm="sha512"))
    knock.metadata("Metadata after SCRAM")
    knock.again()
    knock.begin(SHA_512, 0)
    said = knock.raw_token("wrong SCRAM's first", client_first("alice"))
    final = client_final(said, "alice", algorithm="sha512", secret="wrong")
    knock.raw_token("wrong SCRAM's final", final)


@corner
def in_one_buffer(knock: Knock) -> None:
    name = PLAIN.encode()
    handshake = struct.pack(">hhihh", 17, 1, 1, -1, len(name)) + name
    login = authentication(b"\0alice\0alice-secret")
    frames = [struct.pack(">i", len(each)) + each for each in (handshake, login)]
    knock.send(b"".join(frames))
    for each in ("handshake", "login"):
        answer = knock.receive()
        knock.note(each, "answered" if isinstance(answer, bytes) else answer)
    knock.metadata("Metadata")


@corner
def scram_logins(knock: Knock) -> None:
    for mechanism, algorithm in ((SHA_256, "sha256"), (SHA_512, "sha512")):
        for wrong in ({}, {"secret": "wrong"}):
            name = f"{mechanism}, {'wrong' if wrong else 'good'}"
            knock.begin(mechanism)
            said = knock.authenticate(f"{name}: first", client_first("alice"))
            final = client_final(said, "alice", algorithm=algorithm, **wrong)
            knock.authenticate(f"{name}: final", final)
            knock.end(f"{name}: after it")
            knock.again()


@corner
def scram_firsts(knock: Knock) -> None:
    firsts = {
        "nothing": b"",
        "garbage": b"garbage",
        "a channel that is not bound": client_first("alice", "y,,"),
        "a channel that is bound": client_first("alice", "p=tls-unique,,"),
        "for herself": client_first("alice", "n,a=alice,"),
        "for another": client_first("alice", "n,a=bob,"),
        "no nonce": client_first("alice", nonce=""),
        "an extension": client_first("alice", more=",x=1"),
        "a mandatory extension": b"n,,m=1,n=alice,r=abc",
        "a token's login": client_first("alice", more=",tokenauth=true"),
        "a bad escape": client_first("ali=41ce"),
    }
    for name, first in firsts.items():
        knock.begin(SHA_256)
        knock.authenticate(name, first)
        knock.end(f"after {name}")
        knock.again()


@corner
def scram_finals(knock: Knock) -> None:
    def final(name: str, make: Callable[[bytes], bytes]) -> None:
        said = knock.begin_scram()
        knock.authenticate(name, make(said))
        knock.again()

    final("nothing", lambda _: b"")
    final("garbage", lambda _: b"garbage")
    final("the first again", lambda _: client_first("alice"))
    final("another nonce", lambda said: client_final(said, "alice", nonce="other"))
    final("another header", lambda said: client_final(said, "alice", header="y,,"))
    knock.begin_scram()
    knock.api_versions("ApiVersions in the middle")
    knock.again()
    knock.begin_scram()
    knock.handshake("a handshake in the middle", PLAIN)


@corner
def after_a_login_that_lasts(knock: Knock) -> None:
    log_in(knock, "alice")
    knock.api_versions("ApiVersions")
    knock.api_versions("ApiVersions again", 0)
    for mechanism, version in ((PLAIN, 1), (PLAIN, 0), (SHA_256, 1), ("GSSAPI", 1)):
        knock.handshake(f"handshake {version} of {mechanism}", mechanism, version)
    for version in (0, 1, 2):
        knock.plain(f"SaslAuthenticate {version}", "alice", version=version)
    knock.metadata("Metadata")


def login_again(knock: Knock, name: str, user: str = "alice", **how: str) -> None:
    knock.handshake(f"{name}: handshake", SHA_256)
    said = knock.authenticate(f"{name}: first", client_first(user))
    if said:
        knock.authenticate(f"{name}: final", client_final(said, user, **how))


@corner
def logins_again(knock: Knock) -> None:
    def begin() -> None:
        knock.again()
        log_in_by_scram(knock, "alice")

    begin()
    login_again(knock, "at once")
    knock.metadata("at once: Metadata")
    login_again(knock, "within a second")
    knock.metadata("within a second: Metadata")
    begin()
    login_again(knock, "another user", "bob")
    knock.end("another user: after it")
    begin()
    login_again(knock, "a wrong password", secret="wrong")
    begin()
    knock.handshake("another mechanism: handshake", PLAIN)
    knock.plain("another mechanism", "alice")
    begin()
    knock.handshake("a mechanism that is none: handshake", "GSSAPI")
    begin()
    knock.authenticate("without a handshake", client_first("alice"))
    knock.metadata("without a handshake: Metadata")
    begin()
    knock.handshake("Metadata between: handshake", SHA_256)
    knock.metadata("Metadata between")
    begin()
    knock.handshake("ApiVersions between: handshake", SHA_256)
    knock.api_versions("ApiVersions between")
    begin()
    knock.handshake("two handshakes: one", SHA_256)
    knock.handshake("two handshakes: two", SHA_256)
    begin()
    knock.handshake("handshake 0", SHA_256, 0)
    knock.authenticate("SaslAuthenticate after handshake 0", client_first("alice"))


@corner
def sessions_that_have_expired(knock: Knock) -> None:
    for step in ("Metadata", "ApiVersions", "SaslAuthenticate", "a login", "silence"):
        knock.again()
        log_in_by_scram(knock, "alice")
        knock.wait_expired()
        match step:
            case "Metadata":
                knock.metadata(step)
            case "ApiVersions":
                knock.api_versions(step)
            case "SaslAuthenticate":
                knock.authenticate(step, client_first("alice"))
            case "a login":
                login_again(knock, step)
                knock.metadata(f"{step}: Metadata")
            case _:
                knock.end(step)
