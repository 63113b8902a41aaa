"""Posts events to a webhook. A hanging webhook delays nothing else and uses bounded memory.

The URL may hold a token, so no message has an exception's words, which may repeat it: only its kind
or the answer's status. A redirect is not followed.

A thread of its own sends events from a bounded queue. If the queue is full, the newest event is
dropped and reported on stderr; the log has every event anyway.
"""

import json
import os
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from smq.app.process.clock import sleep
from smq.model.printable import say_error

WAITING_MAX = 100
ANSWER_S_MAX = 5.0
TRIES = 3
PAUSE_S = 2.0  # Between two attempts.

Send = Callable[[bytes], None]
"""Sends a body. Whatever it raises is a failure."""


class Webhook:
    """The sender for one URL."""

    def __init__(self, url: str, send: Send | None = None, pause_s: float = PAUSE_S) -> None:
        self._url, self._pause_s = url, pause_s
        self._send = send or self._post
        self._waiting: queue.Queue[bytes] = queue.Queue(WAITING_MAX)
        threading.Thread(target=self._run, name="webhook", daemon=True).start()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Queue an event. Never blocks."""
        try:
            self._waiting.put_nowait(json.dumps(event).encode())
        except queue.Full:
            say_error("front: the webhook does not answer: an alert was not sent to it")

    def _run(self) -> None:
        while True:
            self._deliver(self._waiting.get())

    def _deliver(self, body: bytes) -> None:
        for left in reversed(range(TRIES)):
            try:
                self._send(body)
            except Exception as reason:  # noqa: BLE001  (A user's URL: its thread must not end.)
                if not left:
                    say_error(f"front: an alert was not sent to the webhook: {_kind(reason)}")
                    return
                sleep(self._pause_s)
            else:
                return

    def _post(self, body: bytes) -> None:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310  (the operator's)
        with _DIRECTLY.open(request, timeout=ANSWER_S_MAX) as answer:
            answer.read(1024)


def _kind(reason: Exception) -> str:
    """The kind of a failure, without words that may hold the URL."""
    if isinstance(reason, urllib.error.HTTPError):
        return f"it answers {reason.code}"
    cause = reason.reason if isinstance(reason, urllib.error.URLError) else reason
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    return type(cause if isinstance(cause, Exception) else reason).__name__


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: its target is not what the operator has set."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


_DIRECTLY = urllib.request.build_opener(_NoRedirect)
