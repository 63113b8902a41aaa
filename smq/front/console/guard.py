"""Access to the console. Where access rules decide, pages are for users who have logged in, and an
action shows the token of their session, which its pages have. Without rules pages are for programs
on this host, actions for holders of the token.

`smq serve` prints the token in the console's address, after the #, which browsers do not send. The
page keeps it in the browser's storage and sends it as a header with each action. There is no
cookie then, so another site's page cannot act in the operator's name (CSRF), and other servers on
this host do not receive the token, as they would receive a cookie.
"""

import secrets
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from smq.front.debug import is_from_here
from smq.front.origin import TOKEN_HEADER
from smq.front.rights import LOGIN_PATH, visit_of

NOT_SHOWN = (
    "To change something, open the address with the token that `smq serve` printed at its start."
)
OF_ANOTHER = "To change something, open the page again: it is of another session."
# Only our own files; no framing by other pages. Scripts and styles are never inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}

Answer = Callable[[Request], Awaitable[Response]]


class Guard:
    """Wraps the console's endpoints. Actions require `token`, or with rules that of the session."""

    def __init__(self, token: str, *, has_rules: bool = False) -> None:
        assert token
        self._token, self._has_rules = token, has_rules

    def open(self, answer: Answer) -> Answer:
        """An endpoint for everybody."""

        async def guarded(request: Request) -> Response:
            return _with_headers(await answer(request))

        return guarded

    def page(self, answer: Answer) -> Answer:
        """An endpoint for programs on this host, or for users who have logged in."""

        async def guarded(request: Request) -> Response:
            if self._has_rules and visit_of(request) is None:  # The gate sees to that, too.
                return PlainTextResponse(f"Log in at {LOGIN_PATH}.", 401, HEADERS)
            if not is_from_here(request):
                return PlainTextResponse(
                    "The console answers only browsers on the broker's host, and only under "
                    "127.0.0.1, ::1 or localhost. From another host: "
                    "ssh -L 8080:127.0.0.1:<http.port> <host>, then http://127.0.0.1:8080/\n",
                    403,
                    HEADERS,
                )
            return _with_headers(await answer(request))

        return guarded

    def action(self, answer: Answer) -> Answer:
        """An endpoint that also requires the token."""

        async def guarded(request: Request) -> Response:
            if not self.is_right(request, request.headers.get(TOKEN_HEADER, "")):
                return PlainTextResponse(OF_ANOTHER if self._has_rules else NOT_SHOWN, 403)
            return await answer(request)

        return self.page(guarded)

    def is_right(self, request: Request, token: str) -> bool:
        """Whether a request that shows this token may change something."""
        visit = visit_of(request)
        wanted = visit.token if visit is not None else self._token
        is_for = (visit is not None) == self._has_rules
        return is_for and secrets.compare_digest(token.encode(), wanted.encode())


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
