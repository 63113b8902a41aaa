"""docs/security.md lists every door, as the code opens it and as it answers."""

import json
import os
import re
import shlex
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typer.testing import CliRunner

from smq.app.front.insides import insides
from smq.app.front.queries import Queries
from smq.cli.documentation.metrics import ONE_OF_EACH
from smq.cli.verbs import _Commands, app
from smq.client.client import connect
from smq.front.application import application
from smq.front.console.console import Console
from smq.front.console.guard import Guard
from smq.front.console.history import History
from smq.front.console.routes import console_routes
from smq.front.gate import Gate
from smq.front.metrics.page import page
from smq.front.origin import TOKEN_HEADER
from smq.front.rights import FREE, HttpRights
from smq.front.space import NO_QUOTA, Space
from smq.model.config import SETTINGS, Config
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.model.topic_configs import TOPIC_CONFIGS
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.testing.memory_store import MemoryStore
from smq.testing.smq_broker import SmqBroker
from tests.app.front.console_pages import PAGES
from tests.docs.doors import Door, all_doors, doors_of, libraries
from tests.front.asgi import Answer, Call, at_once, broker
from tests.front.console.fake_desk import FACTS, FakeDesk
from tests.front.users import SUPER, as_user, may, may_with_cluster, rights_for
from tests.load.test_page import a_result

PAGE = Path("docs/security.md").read_text()
PLACE = re.compile(r"`([a-z_0-9/]+\.py)`(?: \(([\w, ]+)\))?")
FAR, HERE = "192.0.2.7", "127.0.0.1"
TOKEN = "secret-of-the-console"
METRICS_TOKEN = "secret-of-metrics"
NONE: Mapping[str, str] = {}
NO_MODES: Mapping[str, set[int]] = {}
AT_CONSOLE = "users at the console"
METHODS = ("GET", "PUT", "POST", "DELETE")


def section(heading: str) -> str:
    """The text below a heading, up to the next of its level."""
    level, _, _ = next(
        line for line in PAGE.splitlines() if line.lstrip("# ") == heading and line[0] == "#"
    ).partition(" ")
    after = PAGE.partition(f"\n{level} {heading}\n")[2]
    return re.split(rf"(?m)^#{{1,{len(level)}}} ", after)[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables in a section, without their heads."""
    lines = section(heading).splitlines()
    table = [line for line in lines if line.startswith("| ")]
    heads = {lines[number - 1] for number, line in enumerate(lines) if line.startswith("|---")}
    return [line.strip("| ").split(" | ") for line in table if line not in heads]


def places(heading: str) -> set[str]:
    found = set()
    for path, functions in PLACE.findall(section(heading)):
        found |= {f"{path}:{each}" for each in functions.split(", ")} if functions else {path}
    return found


# --- the source --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Door, ids=lambda kind: kind.name)
def test_the_page_lists_the_places_that_open_doors(kind: Door) -> None:
    doors = all_doors()
    # A socket that listens was made, too.
    found = doors[kind] - (doors[Door.LISTEN] if kind is Door.CONNECT else set())
    assert found
    assert places(kind.value) == found


def test_each_library_is_listed_with_what_it_opens() -> None:
    silent = section("Connections").partition("Libraries that open nothing:")[2]
    cells = [row[0] for row in rows("Connections") if not PLACE.search(row[-1])]
    named = re.findall(r"`(\w+)`", silent) + [
        each for c in cells for each in re.findall(r"`(\w+)`", c)
    ]
    assert len(named) == len(set(named))
    assert set(named) == libraries()


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("socket.create_server(('', 1))", {Door.LISTEN}),
        ("import socket as s\ns.socket().bind(('', 1))", {Door.LISTEN, Door.CONNECT}),
        ("from http.server import HTTPServer\nHTTPServer(('', 1), None)", {Door.LISTEN}),
        ("from urllib.request import urlopen\nopen_it = urlopen", {Door.CONNECT}),
        ("import http.client\nhttp.client.HTTPSConnection('a')", {Door.CONNECT}),
        ("import os\nos.memfd_create('a')", {Door.MEMORY}),
        ("import subprocess as run\nrun.check_output(['a'])", {Door.PROCESS}),
        ("from os import fork\nstart = fork", {Door.PROCESS}),
        ("import os\nos.execvp('a', [])", {Door.PROCESS}),
        ("import multiprocessing\nmultiprocessing.Process()", {Door.PROCESS}),
        ("open('a', 'w')", {Door.FILE}),
        ("path.open(mode='ab')", {Door.FILE}),
        ("path.touch()", {Door.FILE}),
        ("import os\nos.open('a', os.O_RDWR | os.O_CREAT)", {Door.FILE}),
        ("from pathlib import Path\nPath('a').write_text('b')", {Door.FILE}),
        ("from starlette.routing import Mount\nMount('/a')", {Door.ROUTE}),
    ],
)
def test_a_new_door_is_found(line: str, kinds: set[Door]) -> None:
    text = line if "import" in line else f"import socket\n{line}"
    assert doors_of(Path("a.py"), text) == {(kind, "a.py") for kind in kinds}
    body = "".join(f"    {each}\n" for each in text.splitlines())
    assert doors_of(Path("a.py"), f"def f():\n{body}") == {(kind, "a.py:f") for kind in kinds}


def test_code_that_opens_nothing_has_no_door() -> None:
    text = """
import os, socket, subprocess
from pathlib import Path
Taken = dict[socket.socket, int]
def f(sock: socket.socket, child: "subprocess.Popen[str]") -> socket.socket:
    Path("a").open("rb"), open("a"), os.open("a", os.O_RDONLY), replies.touch(sock)
    held: set[socket.socket] = set()
    raise subprocess.TimeoutExpired("a", 1)
"""
    assert doors_of(Path("a.py"), text) == set()


# --- HTTP --------------------------------------------------------------------------------------


def front(rights: HttpRights, host: str) -> ASGIApp:
    """What the front serves, asked from an address."""
    store = MemoryStore()
    guard, desk = Guard(TOKEN, has_rules=rights.has_rules), FakeDesk()
    console = Console(lambda: FACTS, History(), lambda _: desk, store, lambda *_: {}, guard, rights)
    queries = Queries(Path("nowhere"), Config())
    around = replace(
        broker(), insides={**insides(Path("nowhere")), "telemetry": list}, rights=rights
    )
    routes = [*queries.routes(), *console_routes(console)]
    app = application(store, Space(store, NO_QUOTA, 0), around, frozenset(), routes)

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": (host, 5)}, receive, send)

    asked.app = app  # type: ignore[attr-defined]
    return asked


def listed_routes() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, and who is answered without and with an authorizer."""
    for named, without, with_one, _ in rows("Routes"):
        words = named.split(", ")
        methods = {each for word in words for each in word.split() if each in METHODS}
        paths = {each for word in words for each in word.split() if each not in METHODS}
        for method, path in product(sorted(methods), sorted(paths)):
            yield method, path, without, with_one


def is_refused(answer: Answer) -> bool:
    is_sent_on = answer.headers.get("location", "").startswith("/console/login?")
    return answer.status in {401, 403} or is_sent_on


def ask(app: ASGIApp, method: str, path: str, headers: Mapping[str, str] = NONE) -> Answer:
    filled = re.sub(r"\{\w+(:\w+)?\}", "0", path)
    [answer] = at_once(app, [Call(method, filled, headers={"host": HERE, **headers})])
    return answer


def test_the_page_lists_the_routes_of_the_front() -> None:
    gate = front(FREE, HERE).app  # type: ignore[attr-defined]
    assert isinstance(gate, Gate)
    inner = gate._inner.routes  # type: ignore[attr-defined]
    assert all(isinstance(each, Route) for each in inner)
    served = {(method, each.path) for each in inner for method in each.methods - {"HEAD"}}
    listed = [(method, path) for method, path, _, _ in listed_routes()]
    assert len(listed) == len(set(listed))
    assert set(listed) == served


@pytest.mark.parametrize(("method", "path", "who", "_"), [*listed_routes()])
def test_routes_answer_those_of_the_page(method: str, path: str, who: str, _: str) -> None:
    far, here = front(FREE, FAR), front(FREE, HERE)
    assert is_refused(ask(far, method, path)) == who.startswith("this host")
    assert is_refused(ask(far, method, path, {TOKEN_HEADER: TOKEN})) == who.startswith("this host")
    assert is_refused(ask(here, method, path)) == (who == "this host with the token")
    assert not is_refused(ask(here, method, path, {TOKEN_HEADER: TOKEN}))
    assert is_refused(ask(here, method, path, {"sec-fetch-site": "cross-site"}))


def check_console(method: str, path: str, needs: str) -> None:
    """Assert that a route is for users who have logged in at the console, and have the rights that
    the page says."""
    right = re.fullmatch(r" with (\w+) on the (cluster|topic|group)( and all topics)?", needs)
    assert right or needs in {"", ", by topic", ", by Kafka's API"}
    rules = []
    if right:
        kind = ResourceType[right[2].upper()]
        name = {ResourceType.TOPIC: "0", ResourceType.GROUP: "readers"}.get(kind, CLUSTER_NAME)
        rules = [may("alice", Operation[right[1]], name, kind)]
        if right[3]:
            rules.append(may("alice", Operation.DESCRIBE, "*"))
            rules.append(may("alice", Operation.DESCRIBE, "readers", ResourceType.GROUP))
    asked = path + ("?group=readers&key=docs/a" if method == "GET" or right else "")

    def refused(user: str, *, cookie: bool = True, token: bool = True) -> bool:
        app = front(rights_for(*rules, token=METRICS_TOKEN), HERE)
        session = session_of(app, user)
        shown = {"cookie": session[0]} if cookie else as_user(user)
        body = urlencode({"token": session[1]}).encode() if token else b""
        headers = {"host": HERE, TOKEN_HEADER: session[1] if token else TOKEN, **shown}
        filled = re.sub(r"\{\w+(:\w+)?\}", "0", asked)
        [answer] = at_once(app, [Call(method, filled, [body], headers)])
        return is_refused(answer)

    assert refused(SUPER, cookie=False), "a password is no session"
    assert not refused(SUPER)
    assert not refused("alice") or needs == ", by topic"
    assert refused("bob") == bool(right or needs == ", by topic")
    assert method == "GET" or refused(SUPER, token=False)


def session_of(app: ASGIApp, user: str) -> tuple[str, str]:
    """The cookie and the token of a user who has logged in."""
    form = urlencode({"user": user, "password": user[::-1]}).encode()
    [answer] = at_once(app, [Call("POST", "/console/login", [form], {"host": HERE})])
    assert answer.status == 303
    cookie = answer.headers["set-cookie"].partition(";")[0]
    [page] = at_once(app, [Call("GET", "/", headers={"host": HERE, "cookie": cookie})])
    found = re.search('name="smq-token" content="([^"]+)"', page.body.decode())
    assert found
    return cookie, found[1]


@pytest.mark.parametrize(("method", "path", "_", "who"), [*listed_routes()])
def test_routes_behind_an_authorizer_answer_those_of_the_page(
    method: str, path: str, _: str, who: str
) -> None:
    right = re.fullmatch(r"users with (\w+) on the cluster", who)
    rules = [may_with_cluster("alice", Operation[right[1]])] if right else []
    app = front(rights_for(*rules, token=METRICS_TOKEN), HERE)
    bearer = {"authorization": f"Bearer {METRICS_TOKEN}", TOKEN_HEADER: TOKEN}
    others = {"everybody", "nobody", "who has such a token", "users, by topic", "every user"}
    if who.startswith(AT_CONSOLE):
        check_console(method, path, who.removeprefix(AT_CONSOLE))
        return
    assert right or who in others
    logs_in = (method, path) == ("POST", "/console/login")  # An empty form is no login.
    assert is_refused(ask(app, method, path)) == (who != "everybody" or logs_in)
    if logs_in:
        return
    for_token = {"everybody", "who has such a token"}
    assert is_refused(ask(app, method, path, bearer)) == (who not in for_token)
    is_for_root = who not in {"nobody", "who has such a token"}
    assert is_refused(ask(app, method, path, as_user(SUPER))) != is_for_root
    assert is_refused(ask(app, method, path, as_user("bob"))) == (
        who not in {"everybody", "every user"}
    )
    assert not right or not is_refused(ask(app, method, path, as_user("alice")))


def test_each_page_of_the_console_is_tried_in_a_browser() -> None:
    """By a user without rights, with some, with all: tests/app/front/test_pages_of_users.py."""
    listed = {
        path
        for method, path, _, who in listed_routes()
        if method == "GET" and who.startswith(AT_CONSOLE)
    }
    patterns = {each: re.sub(r"\{\w+\}", "[^/]+", each) for each in listed}
    tried = {path.partition("?")[0] for path in PAGES}
    assert [
        each for each, how in patterns.items() if not any(re.fullmatch(how, t) for t in tried)
    ] == []


def test_the_page_lists_the_labels_of_metrics() -> None:
    families = text_string_to_metric_families(page(ONE_OF_EACH).decode())
    labels = {name for each in families for sample in each.samples for name in sample.labels}
    sentence = section("Labels of metrics").partition("these labels:")[2].partition(".\n")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == labels


# --- verbs and files ---------------------------------------------------------------------------


def verbs() -> dict[str, str]:
    """Each verb, and what its options reach."""
    kinds = {(True, False): "broker", (False, True): "directory", (True, True): "either"}
    found = {}
    for name, command in _Commands().items():
        subcommands = getattr(command, "commands", None)
        each = (
            {f"{name} {sub}": c for sub, c in subcommands.items()}
            if subcommands
            else {name: command}
        )
        for verb, leaf in each.items():
            options = {option for parameter in leaf.params for option in parameter.opts}
            reach = ("--bootstrap" in options, "--data-dir" in options)
            found[verb] = kinds.get(reach, "neither")
    return found


def test_the_page_lists_the_verbs_with_what_they_reach() -> None:
    listed = [(verb, reach) for names, reach, *_ in rows("Verbs") for verb in names.split(", ")]
    assert len(listed) == len(dict(listed))
    assert dict(listed) == verbs()


@pytest.fixture(scope="module")
def ruled_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    """One whose listener shows nothing to who has no login."""
    home = tmp_path_factory.mktemp("ruled")
    with SmqBroker(home, {"authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        with connect(broker.data_dir) as client:
            client.create_topic("orders", 1, {"smq.table": "delta"})
        yield broker


WITH_A_DIRECTORY = {
    "serve": "serve --print-config --data-dir {data}",
    "status": "status --data-dir {data}",
    "doctor": "doctor --data-dir {data} --archive {new}",
    "config history": "config history --data-dir {data}",
    "tables list": "tables list --data-dir {data}",
    "tables describe": "tables describe orders --data-dir {data}",
    "snapshot": "snapshot {new} --data-dir {data}",
    "restore": "restore {taken} --data-dir {new}",
    "acl add": "acl add User:a --operation read --topic orders --data-dir {data}",
    "acl list": "acl list --data-dir {data}",
    "acl remove": "acl remove User:gone --data-dir {data}",
    "acl why": "acl why User:a --operation read --topic orders --data-dir {data}",
    "user add": "user add alice --password-file {secret} --data-dir {data}",
    "prepare": "prepare --users {passwords}/ --data-dir {new}",
    "user list": "user list --data-dir {data}",
    "user remove": "user remove gone --data-dir {data}",
    "sql": "sql 'SELECT count(*) FROM orders' --data-dir {data}",
    "certs": "certs {new}",
    "bench list": "bench list",
    "bench report": "bench report {results} --output {new}",
    "spark": "spark lag",
}
"""A call of each verb that takes a directory, or reaches nothing."""


BEFORE = {
    "restore": "snapshot {taken} --data-dir {data}",
    "acl remove": "acl add User:gone --operation read --topic orders --data-dir {data}",
    "user remove": "user add gone --password-file {secret} --data-dir {data}",
}


@pytest.mark.parametrize("verb", WITH_A_DIRECTORY)
def test_verbs_with_a_directory_reach_the_broker_by_unix_sockets_alone(
    verb: str, ruled_broker: SmqBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {each: tmp_path / each for each in ("new", "taken", "results", "secret", "passwords")}
    named["secret"].write_text("a password")
    named["passwords"].mkdir()
    (named["passwords"] / "alice").write_text("a password")
    named["results"].write_text(json.dumps(a_result(1, 1000)))
    families: set[int] = set()
    connect_socket = socket.socket.connect

    def noted(self: socket.socket, address: Any) -> None:
        families.add(self.family)
        connect_socket(self, address)

    def call(text: str) -> None:
        words = shlex.split(text.format(data=ruled_broker.data_dir, **named))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output

    umask = os.umask(0o077)  # Some verbs set it.
    try:
        if verb in BEFORE:
            call(BEFORE[verb])
        monkeypatch.setattr(socket.socket, "connect", noted)
        monkeypatch.setattr(os, "execve", lambda *_: None)  # What follows is Spark's.
        call(WITH_A_DIRECTORY[verb])
    finally:
        os.umask(umask)
    assert families <= (set() if verbs()[verb] == "neither" else {socket.AF_UNIX})


def test_each_verb_with_a_directory_is_called() -> None:
    assert WITH_A_DIRECTORY.keys() == {v for v, reach in verbs().items() if reach != "broker"}


def test_a_brokers_files_have_the_modes_of_the_page(smq_session_broker: SmqBroker) -> None:
    check_files(smq_session_broker)


def test_a_filers_group_reads_the_filer_and_nothing_else(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, {"filer.mode": "0750"}) as broker:
        with connect(broker.data_dir) as client:
            client.create_topic("orders", 1)
        opened = {"<data>/filer*": {0o750, 0o640}, "<data>/iceberg.sqlite": {0o640}}
        opened["<runtime>/*.sock"] = {0o750}  # In directories that are closed.
        check_files(broker, opened)


def check_files(broker: SmqBroker, opened: Mapping[str, set[int]] = NO_MODES) -> None:
    """Assert that each file has the mode of the page; but for those that are opened to a group."""
    modes = {
        pattern: {int(each, 8) for each in mode.split(" or ")}
        for patterns, mode, _ in rows("What a broker keeps")
        for pattern in re.findall(r"`([^`]+)`", patterns)
    }
    runtime, data = broker.runtime_dir, broker.data_dir
    named = {each: f"<data>/{each.relative_to(data)}" for each in data.rglob("*")}
    named |= {runtime.parent: "<runtime>"}
    for each in runtime.parent.rglob("*"):
        place = str(each.relative_to(runtime.parent)).replace(runtime.name, "<cluster>")
        named[each] = f"<runtime>/{place}"
    assert len(named) > 10
    every = [*opened.items(), *modes.items()]
    for path, full_name in named.items():
        name = re.sub("^<data>/logs/[0-9]+", "<data>/logs/<log>", full_name)
        try:
            status = path.lstat()
        except FileNotFoundError:  # A file of the broker's that was there a moment ago.
            continue
        fitting = [mode for pattern, mode in every if fnmatch(name, pattern)]
        assert fitting, f"{name} is not listed"
        assert stat.S_IMODE(status.st_mode) in fitting[0], name
        assert status.st_uid == os.getuid()


def test_the_page_names_settings_that_there_are() -> None:
    named = set(re.findall(r"`([a-z][a-z0-9]*(?:\.[a-z][a-z0-9]*)+)[`=]", PAGE))
    files = {each for each in named if each.endswith((".sock", ".py", ".yml", ".json"))}
    of_clients = {"ssl.endpoint.identification.algorithm", "smq.testing"}
    of_clients.add("sasl.oauthbearer.token.endpoint.url")
    assert named - files - of_clients <= {*SETTINGS, *TOPIC_CONFIGS}


@pytest.mark.parametrize(
    "page", [*Path("docs").glob("*.md"), *Path("deploy").glob("*.md")], ids=str
)
def test_pages_give_flags_of_serve_the_value_that_they_need(page: Path) -> None:
    options = {each.option for each in SETTINGS.values() if each.type is bool}
    assert "--allow-plaintext" in options
    for found in re.findall(rf"({'|'.join(options)})\b(?! (?:true|false))", page.read_text()):
        pytest.fail(f"{found} requires an argument")


def test_the_page_says_what_is_in_neither_half() -> None:
    for each in ("kTLS", "delegation tokens", "JWKS by URL", "encryption at rest"):
        assert each in section("Not there")


def test_the_policy_says_what_is_supported_and_two_private_ways_to_report() -> None:
    policy = Path("SECURITY.md").read_text()
    supported, _, report = policy.partition("## Supported")[2].partition("## How to report")
    assert "the newest commit of the main branch is supported" in supported
    assert "Report a vulnerability" in report
    assert "no mail address" in report
    assert "@" not in report
    for target in re.findall(r"\]\(([^)]+)\)", policy):
        assert target.startswith("https://docs.github.com/") or Path(target).exists(), target


def test_no_page_about_security_defers_a_door() -> None:
    pages = "SECURITY.md", "docs/logins.md", "docs/filer.md", "smq/front/application.py"
    for text in (PAGE, *(Path(each).read_text() for each in pages)):
        assert not re.search(r"second half|is planned|not yet|has no login yet|no authentic", text)
    assert not re.search(r"\blater\b", PAGE)
