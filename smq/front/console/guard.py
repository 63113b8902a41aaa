"""Access to the console: pages for programs on this host, actions for holders of the token.

`smq serve` prints the token in the console's address, after the #, which browsers do not send. The
page keeps it in the browser's storage and sends it as a header with each action. There is no
cookie, so another site's page cannot act in the operator's name (CSRF), and other servers on this
host do not receive the token, as they would receive a cookie.
"""

import secrets
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from smq.front.debug import is_from_here
from smq.front.origin import TOKEN_HEADER

# Only our own files; no framing by other pages. Scripts and styles are never inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

Answer = Callable[[Request], Awaitable[Response]]


class Guard:
    """Wraps the console's endpoints. Actions require `token`."""

    def __init__(self, token: str) -> None:
        assert token
        self._token = token.encode()

    def page(self, answer: Answer) -> Answer:
        """An endpoint for programs on this host."""

        async def guarded(request: Request) -> Response:
            if not is_from_here(request):
                return PlainTextResponse(
                    "The console answers only browsers on the broker's host, and only under "
                    "127.0.0.1, ::1 or localhost. From another host: "
                    "ssh -L 8080:127.0.0.1:<http.port> <host>, then http://127.0.0.1:8080/\n",
                    403,
                    HEADERS,
                )
            response = await answer(request)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return guarded

    def action(self, answer: Answer) -> Answer:
        """An endpoint that also requires the token."""

        async def guarded(request: Request) -> Response:
            given = request.headers.get(TOKEN_HEADER, "").encode()
            if not secrets.compare_digest(given, self._token):
                return PlainTextResponse(
                    "To change something, open the address with the token that `smq serve` "
                    "printed at its start.",
                    403,
                )
            return await answer(request)

        return self.page(guarded)
