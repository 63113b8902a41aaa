"""What HTTP answers while access rules decide who may do what.

A request by HTTP says not who asks, so no rule can decide about it: the filer, SQL and the console
would pass by every rule. So only these remain: whether the broker lives and is ready, and, for
holders of a token, its metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest

from starlette.responses import JSONResponse

from smq.front.slots import LIVE_PATH, METRICS_PATH, READY_PATH

FOR_ALL = frozenset({LIVE_PATH, READY_PATH})
CLOSED = (
    "with authorizer.class.name this broker answers by HTTP only /health/live, /health/ready and "
    "/metrics"
)
NO_TOKEN = "/metrics needs a token: set metrics.token, and send it as `Authorization: Bearer …`"  # noqa: S105  (a sentence)
WRONG_TOKEN = "/metrics needs the token of metrics.token, as `Authorization: Bearer …`"  # noqa: S105


@dataclass(frozen=True, slots=True)
class HttpRights:
    """Which requests are answered.

    has_rules       access rules decide who may do what
    metrics_token   what a reader of /metrics must know; empty: nothing, or with rules nobody may
    """

    has_rules: bool = False
    metrics_token: str = ""

    def refusal(self, path: str, headers: Mapping[bytes, bytes]) -> JSONResponse | None:
        """The answer to a request that is refused."""
        if path == METRICS_PATH:
            return self._refusal_of_metrics(headers.get(b"authorization", b""))
        if self.has_rules and path not in FOR_ALL:
            return JSONResponse({"error": CLOSED}, 403)
        return None

    def _refusal_of_metrics(self, authorization: bytes) -> JSONResponse | None:
        if not self.metrics_token:
            return JSONResponse({"error": NO_TOKEN}, 403) if self.has_rules else None
        scheme, _, token = authorization.partition(b" ")
        is_known = compare_digest(token.strip(), self.metrics_token.encode())
        if is_known and scheme.lower() == b"bearer":
            return None
        return JSONResponse({"error": WRONG_TOKEN}, 401, {"www-authenticate": "Bearer"})


FREE = HttpRights()  # Without access rules.
