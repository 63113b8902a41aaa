"""Who may ask what by HTTP while access rules decide.

    /health/live, /health/ready    everybody: they name processes and logs, and nothing of clients
    /metrics                       who sends a token of `metrics.token` or its file
    /health                        users with DESCRIBE on the cluster
    /debug, /debug/…               users with ALTER on the cluster
    /filer/…, /sql                 users: by the topics that they name (smq.front.files,
                                   smq.app.front.queries)
    the console's pages            users who have logged in there: by what each page shows

Anything else is for nobody. Who has logged in at the console reads the filer, too, for its links.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import compare_digest

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Scope

from smq.front.cookies import ids_in_head
from smq.front.logins import HttpLogins
from smq.front.origin import READS
from smq.front.sessions import BrowserSessions, Visit
from smq.front.slots import HEALTH_PATH, LIVE_PATH, METRICS_PATH, READY_PATH
from smq.model.catalog import NAMESPACE_DEFAULT
from smq.model.references import PREFIX as PAYLOADS_PREFIX
from smq.model.segments import SEGMENTS_PREFIX
from smq.security.acls import Operation
from smq.security.principals import Principal
from smq.security.rights import EVERYTHING, Rights

FOR_ALL = frozenset({LIVE_PATH, READY_PATH})
DEBUG_PATH, FILER_PATH, SQL_PATH = "/debug", "/filer/", "/sql"
LOGIN_PATH, LOGOUT_PATH, STATIC_PATH = "/console/login", "/console/logout", "/console/static/"
CONSOLE = frozenset(
    {"topics", "groups", "files", "settings", "users", "rules", "sessions", "denied", "console"}
)
"""What the paths of its pages begin with."""
CLOSED = (
    "with authorizer.class.name this broker answers by HTTP only /health, /metrics, /filer, /sql, "
    "/debug and the console's pages"
)
NO_TOKEN = "/metrics needs a token: set metrics.token, and send it as `Authorization: Bearer …`"  # noqa: S105  (a sentence)
WRONG_TOKEN = "/metrics needs the token of metrics.token, as `Authorization: Bearer …`"  # noqa: S105
FILES = "filer/"  # The names of files begin so, for rules.
_OF_TOPICS = SEGMENTS_PREFIX, PAYLOADS_PREFIX  # <prefix><namespace>/<topic>/…
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
_RIGHTS, _VISIT = "smq.rights", "smq.visit"  # In a request's scope.


@dataclass(frozen=True, slots=True)
class HttpRights:
    """Which requests are answered, and which need a login.

    logins          how users log in; None: access rules do not decide who may do what
    metrics_tokens  one of which a reader of /metrics must know; None: nothing, or with rules nobody
                    may
    """

    logins: HttpLogins | None = None
    metrics_tokens: Callable[[], Sequence[str] | None] = lambda: None
    sessions: BrowserSessions = field(default_factory=BrowserSessions)

    @property
    def has_rules(self) -> bool:
        return self.logins is not None

    def refusal(self, path: str, headers: Mapping[bytes, bytes]) -> JSONResponse | None:
        """The answer to a request that is refused whoever asks."""
        if path == METRICS_PATH:
            return self._refusal_of_metrics(headers.get(b"authorization", b""))
        is_open = path in FOR_ALL or _is_for_users(path) or _is_console(path)
        if self.has_rules and not is_open:
            return JSONResponse({"error": CLOSED}, 403)
        return None

    def knows_all(self, path: str) -> bool:
        """Whether all whom `refusal` lets pass are known: without rules, and by the token."""
        return not self.has_rules or path == METRICS_PATH

    def user_of(self, data: bytes) -> str:
        """Who has logged in, as the head of a request shows it while it comes in; else empty. Only
        how soon it is looked at depends on it."""
        if self.logins is None:
            return ""
        found = self.logins.user_of(data)
        users = (found, *map(self.sessions.user_of, ids_in_head(data)))
        return next(filter(None, users), "")

    def needs_login(self, path: str) -> bool:
        """Whether who asks must say who he is."""
        return self.has_rules and _is_for_users(path)

    def needs_session(self, path: str) -> bool:
        """Whether who asks must have logged in at the console."""
        is_open = path == LOGIN_PATH or path.startswith(STATIC_PATH)
        return self.has_rules and _is_console(path) and not is_open

    def _refusal_of_metrics(self, authorization: bytes) -> JSONResponse | None:
        tokens = self.metrics_tokens()
        if tokens is None:
            return JSONResponse({"error": NO_TOKEN}, 403) if self.has_rules else None
        scheme, _, token = authorization.partition(b" ")
        known = [compare_digest(token.strip(), each.encode()) for each in tokens]
        if any(known) and scheme.lower() == b"bearer":
            return None
        return JSONResponse({"error": WRONG_TOKEN}, 401, {"www-authenticate": "Bearer"})


FREE = HttpRights()  # Without access rules.


def refusal_of_user(path: str, rights: Rights) -> JSONResponse | None:
    """The answer to a user who may not ask for a page, whatever it holds."""
    operation = None
    if path == HEALTH_PATH:
        operation = Operation.DESCRIBE
    elif _is_debug(path):
        operation = Operation.ALTER
    if operation is None or rights.asks_cluster(operation):
        return None
    return JSONResponse({"error": f"this needs {operation.name} on the cluster"}, 403)


def api_of(method: str, path: str) -> str:
    """What the audit log calls a request: its method, and the first part of its path."""
    return f"HTTP {method if method in _METHODS else '?'} /{path.split('/')[1]}"


def give_rights(scope: Scope, rights: Rights | None) -> None:
    """Let a request have the rights of who asks; None: everybody may do everything."""
    scope[_RIGHTS] = EVERYTHING if rights is None else rights


def give_visit(scope: Scope, visit: Visit) -> None:
    """Let a request have the session of who asks."""
    scope[_VISIT] = visit


def visit_in(scope: Scope) -> Visit | None:
    """The session of a request; None: it has none."""
    visit: Visit | None = scope.get(_VISIT)
    return visit


def visit_of(request: Request) -> Visit | None:
    """The session of who asks; None: it has none."""
    return visit_in(request.scope)


def may_come_by_session(method: str, path: str) -> bool:
    """Whether a session is login enough where users log in otherwise: to read files."""
    return method in READS and path.startswith(FILER_PATH)


def rights_of(request: Request) -> Rights:
    """What who asks may do."""
    rights: Rights = request.scope[_RIGHTS]
    return rights


def has_logged_in(request: Request) -> bool:
    """Whether who asks has said who he is, so that it does not count from where."""
    return rights_of(request) is not EVERYTHING


def user_in(scope: Scope) -> Principal | None:
    """Who has logged in to ask; None: nobody has."""
    rights: Rights = scope[_RIGHTS]
    return None if rights is EVERYTHING else rights.peer.principal


def check_topic(request: Request, operation: Operation, topic: str) -> None:
    """Raises HTTPException if who asks may not do this with a topic or a file (`resource_of`),
    whether there is one or not."""
    if not rights_of(request).asks_topic(operation, topic):
        raise HTTPException(403, f"this needs {operation.name} on the topic {topic}")


def resource_of(key: str) -> str:
    """The topic whose rules decide about a key of the filer. Other files are, for rules, topics
    named filer/<key>: no topic has a slash in its name."""
    parts = key.split("/", 3)
    if f"{parts[0]}/" in _OF_TOPICS and len(parts) == 4:
        _, namespace, topic, _ = parts
        return topic if namespace == NAMESPACE_DEFAULT else f"{namespace}.{topic}"
    return f"{FILES}{key}"


def spans_topics(prefix: str) -> bool:
    """Whether keys with a prefix may be several topics'."""
    within = f"{prefix.split('/', 1)[0]}/" in _OF_TOPICS and prefix.count("/") < 3
    return within or any(each.startswith(prefix) for each in _OF_TOPICS)


def _is_for_users(path: str) -> bool:
    return path in {HEALTH_PATH, SQL_PATH} or _is_debug(path) or path.startswith(FILER_PATH)


def _is_console(path: str) -> bool:
    return path == "/" or path[1:].partition("/")[0] in CONSOLE


def _is_debug(path: str) -> bool:
    return path == DEBUG_PATH or path.startswith(f"{DEBUG_PATH}/")
