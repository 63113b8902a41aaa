"""The server's side of a TLS connection, on memory: ciphertext goes in, plain bytes come out, and
back. Performs no IO.

                 receive(ciphertext)           read_into(view)
    socket ──────────────────────────▶ engine ──────────────────▶ requests
           ◀──────────────────────────        ◀──────────────────
                 take_sent()                   write(view)

OpenSSL gets whole records, and few before it is asked what they hold: it goes on reading until it
finds data, and a peer may send ten thousand that ask for new keys and hold none. Clients send small
records (librdkafka two for each of Kafka's), so the way of one is short. The key exchange is on
P-256 alone (one hello with ffdhe8192 takes 175 ms), there is no renegotiation, and no session is
resumed: a resumed one would show a client certificate without a new proof that the client has its
key.
"""

import _ssl
import ctypes
import ssl
from typing import Any

CURVE = "prime256v1"
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # Of TLS 1.2. Those of 1.3 are all as good.
WRITE_BYTES_MAX = 256 * 1024  # Encrypted at once, as 16 records: the socket takes about as much.
CHAIN_BYTES_MAX = 12 * 1024  # A client's certificates: half a millisecond each, if they are small.
KEYS_MAX = 64  # Records without data of a turn: a millisecond, if each asks for new keys.
READS_MAX = 2048  # Records of a turn: four milliseconds, if they are small.
_HEADER_BYTES, _LENGTH_AT = 5, 3  # A record: type, version, length, then as many bytes.
_RECORD_TYPES = range(20, 25)
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# Of ssl.h: SSL_CTRL_…, SSL_SESS_CACHE_OFF and SSL_MODE_NO_AUTO_CHAIN.
_SET_SESSION_CACHE_MODE, _SESSION_CACHE_OFF = 44, 0
_SET_MODE, _NO_AUTO_CHAIN = 33, 8
_SET_MAX_CERT_LIST = 51


def server_context(versions: str, client_auth: str) -> ssl.SSLContext:
    """A context without keys; `versions` and `client_auth` are settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    spoken = sorted(_VERSIONS[each.strip()] for each in versions.split(","))
    context.minimum_version, context.maximum_version = spoken[0], spoken[-1]
    context.verify_mode = _CLIENT_AUTH[client_auth]
    context.set_ciphers(CIPHERS)
    context.set_ecdh_curve(CURVE)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    _set_for_all(context)
    return context


def _set_for_all(context: ssl.SSLContext) -> None:
    """Turn off the cache from which TLS 1.2 resumes sessions by their ids, and have clients get the
    certificates of the key store, as Kafka's do: else each handshake looks for the authority's, and
    verifies our own. Clients' certificates are bounded.

    The module has no word for these. A context begins with CPython's object header, then the
    pointer to OpenSSL's; a test sees that no session is resumed, and the engine refuses one that
    is.
    """
    control = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)
    control.restype = ctypes.c_long
    openssl = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    control(openssl, _SET_SESSION_CACHE_MODE, _SESSION_CACHE_OFF, None)
    control(openssl, _SET_MODE, _NO_AUTO_CHAIN, None)
    control(openssl, _SET_MAX_CERT_LIST, CHAIN_BYTES_MAX, None)


class TlsEngine:
    """One connection. Whatever a peer sends raises ssl.SSLError, an OSError, or nothing.

    is_established  the handshake is complete
    is_drained      nothing more can be made of what was received
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._received, self._given_to = bytearray(), 0  # OpenSSL has got all up to there …
        self._inside = 0  # … and this many records at most that it was not asked about.
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_established, self.is_drained = False, True

    def receive(self, ciphertext: bytes | memoryview) -> None:
        """Take what the peer has sent."""
        del self._received[: self._given_to]
        self._received += ciphertext
        self._given_to, self.is_drained = 0, False

    def _feed(self, records_max: int) -> int:
        """Give OpenSSL the next whole records; returns how many. What is no record is given too: it
        says what is wrong."""
        received, start = self._received, self._given_to
        end, count, length = start, 0, len(received)
        if start < length and received[start] not in _RECORD_TYPES:
            end, count = length, 1
        while count < records_max and end + _HEADER_BYTES <= length:
            high, low = end + _LENGTH_AT, end + _LENGTH_AT + 1
            after = end + _HEADER_BYTES + (received[high] << 8 | received[low])
            if after > length:
                break
            end, count = after, count + 1
        if count:
            with memoryview(received) as view:
                self._incoming.write(view[start:end])
            self._given_to = end
        return count

    def shake_hands(self) -> None:
        """Go on with the handshake, as far as what was received allows. Raises SSLError."""
        while not self.is_established:
            self._inside = self._feed(KEYS_MAX)
            if not self._inside:
                self.is_drained = True
                return
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if self._object.session_reused:
                raise ssl.SSLError("a session was resumed")
            self.is_established = True

    def read_into(self, view: memoryview) -> int:
        """Decrypt into `view`: the number of bytes, 0 if a record is not whole, -1 at the end.
        Raises SSLError."""
        at = reads = keys = 0
        while at < len(view) and reads < READS_MAX and keys < KEYS_MAX:
            before = reads
            try:
                while at < len(view) and reads < READS_MAX:
                    count: Any = self._object.read(len(view) - at, view[at:])
                    if not count:
                        return at or -1
                    at, reads = at + count, reads + 1
            except ssl.SSLZeroReturnError:
                return at or -1
            except ssl.SSLWantReadError:
                keys += max(0, self._inside - (reads - before))
                self._inside = self._feed(KEYS_MAX - keys)
                if not self._inside and keys < KEYS_MAX:
                    self.is_drained = True
                    break
            else:
                self._inside -= min(self._inside, reads - before)
        return at

    def write(self, view: memoryview) -> int:
        """Encrypt the first bytes of `view`; returns how many. Raises SSLError."""
        return self._object.write(view[:WRITE_BYTES_MAX])

    def take_sent(self) -> bytes:
        """What the peer is to be sent, in pieces of at most WRITE_BYTES_MAX."""
        return self._outgoing.read(WRITE_BYTES_MAX)

    @property
    def unsent_bytes(self) -> int:
        """How much there is for the peer."""
        return self._outgoing.pending

    def end(self) -> None:
        """Tell the peer that nothing follows."""
        if self.is_established:
            try:
                self._object.unwrap()
            except ssl.SSLError:  # It waits for the peer's word, or has seen an error before.
                return

    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client, in DER, once the handshake is complete; None: it
        has shown none."""
        return self._object.getpeercert(binary_form=True)
