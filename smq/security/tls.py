"""The server's side of a TLS connection, on memory: ciphertext goes in, plain bytes come out, and
back. Performs no IO.

                 receive(ciphertext)           read_into(view)
    socket ──────────────────────────▶ engine ──────────────────▶ requests
           ◀──────────────────────────        ◀──────────────────
                 take_sent()                   write(view)

OpenSSL gets one record at a time, so that a turn can be bounded by records: a peer may send ten
thousand that ask for new keys and hold no data. The key exchange is on P-256 alone (one hello with
ffdhe8192 takes 175 ms), there is no renegotiation, and no session is resumed: a resumed one would
show a client certificate without a new proof that the client has its key.
"""

import _ssl
import ctypes
import ssl

CURVE = "prime256v1"
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # Of TLS 1.2. Those of 1.3 are all as good.
WRITE_BYTES_MAX = 256 * 1024  # Encrypted at once, as 16 records: the socket takes about as much.
RECORDS_MAX = 64  # Of a turn: a megabyte if they are large, and a millisecond if they are keys.
_HEADER_BYTES, _LENGTH_AT = 5, 3  # A record: type, version, length, then as many bytes.
_RECORD_TYPES = range(20, 25)
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SET_SESSION_CACHE_MODE, _SESSION_CACHE_OFF = 44, 0  # SSL_CTRL_… and SSL_SESS_CACHE_… of ssl.h.


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
    _forget_sessions(context)
    return context


def _forget_sessions(context: ssl.SSLContext) -> None:
    """Turn off the cache from which TLS 1.2 resumes sessions by their ids.

    The module has no word for it. A context begins with CPython's object header, then the pointer
    to OpenSSL's; a test sees that no session is resumed, and the engine refuses one that is.
    """
    control = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)
    control.restype = ctypes.c_long
    openssl = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    control(openssl, _SET_SESSION_CACHE_MODE, _SESSION_CACHE_OFF, None)


class TlsEngine:
    """One connection. Whatever a peer sends raises ssl.SSLError, an OSError, or nothing.

    is_established  the handshake is complete
    is_drained      nothing more can be made of what was received
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._received = bytearray()  # What OpenSSL has not got yet.
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_established, self.is_drained = False, True

    def receive(self, ciphertext: bytes | memoryview) -> None:
        """Take what the peer has sent."""
        self._received += ciphertext
        self.is_drained = False

    def _feed(self) -> bool:
        """Give OpenSSL the next record; False: it is not whole. What is no record is given too: it
        says what is wrong."""
        received = self._received
        if not received:
            return False
        length = len(received)
        if received[0] in _RECORD_TYPES:
            if length < _HEADER_BYTES:
                return False
            length = _HEADER_BYTES + int.from_bytes(received[_LENGTH_AT:_HEADER_BYTES])
            if len(received) < length:
                return False
        with memoryview(received) as view:
            self._incoming.write(view[:length])
        del received[:length]
        return True

    def shake_hands(self) -> None:
        """Go on with the handshake, as far as what was received allows. Raises SSLError."""
        while not self.is_established:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                if not self._feed():
                    self.is_drained = True
                    return
                continue
            if self._object.session_reused:
                raise ssl.SSLError("a session was resumed")
            self.is_established = True

    def read_into(self, view: memoryview) -> int:
        """Decrypt into `view`: the number of bytes, 0 if a record is not whole, -1 at the end.
        Raises SSLError."""
        at = fed = 0
        while at < len(view):
            try:
                count = self._into(view[at:])
            except ssl.SSLWantReadError:
                if fed == RECORDS_MAX:
                    return at
                if not self._feed():
                    self.is_drained = True
                    return at
                fed += 1
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            if not count:
                return at or -1
            at += count
        return at

    def _into(self, view: memoryview) -> int:
        """What one record holds, or the rest of it."""
        count: object = self._object.read(len(view), view)
        assert isinstance(count, int), "it was given memory to fill"
        return count

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
