"""Finds where the packages that are shipped open doors: by their syntax trees, not by a list.

A place is `path:function`, or `path` for what a module does when it is imported. A name counts
wherever it is mentioned, but in annotations: who hands `os.fork` to somebody opens a door too.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from enum import Enum
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

_WHEEL = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
PACKAGES: list[str] = _WHEEL["packages"]
_EXCLUDED: list[str] = _WHEEL["exclude"]


class Door(Enum):
    """A kind of door. The value is the heading of its section in docs/security.md."""

    LISTEN = "Sockets that listen"
    CONNECT = "Connections"
    MEMORY = "Memory and descriptors"
    PROCESS = "Processes"
    FILE = "Files"
    ROUTE = "Routes"


# Mentioned under their full names.
_NAMES = {
    Door.LISTEN: {
        *("socket.create_server", "asyncio.start_server", "asyncio.start_unix_server"),
        *("uvicorn.Server", "uvicorn.run", "moto.server.main", "wsgiref.simple_server.make_server"),
    },
    Door.CONNECT: {
        *("socket.create_connection", "asyncio.open_connection", "asyncio.open_unix_connection"),
        *("http.client.HTTPConnection", "http.client.HTTPSConnection"),
        *("urllib.request.urlopen", "urllib.request.build_opener", "urllib.request.urlretrieve"),
    },
    Door.MEMORY: {"os.memfd_create", "socket.socketpair", "socket.fromfd"},
    Door.PROCESS: {
        *("subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_call"),
        *("subprocess.check_output", "subprocess.getoutput", "subprocess.getstatusoutput"),
        *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
        *("os.fork", "os.forkpty", "os.system", "os.popen", "os.posix_spawn", "os.posix_spawnp"),
        *("pty.fork", "pty.spawn", "concurrent.futures.ProcessPoolExecutor"),
    },
    Door.FILE: {
        *("os.link", "os.symlink", "os.mkdir", "os.makedirs", "os.mkfifo", "os.mknod"),
        *("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move"),
        *("tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.TemporaryDirectory"),
        *("tempfile.NamedTemporaryFile", "tempfile.TemporaryFile", "sqlite3.connect"),
        *("tarfile.open", "zipfile.ZipFile", "pyarrow.parquet.ParquetWriter"),
    },
    Door.ROUTE: {
        *("starlette.routing.Route", "starlette.routing.Mount", "starlette.routing.Router"),
        *("starlette.routing.WebSocketRoute", "smq.front.gate.Page"),
    },
}
# Of whole families every function counts.
_PREFIXES = {
    Door.LISTEN: ("http.server.", "socketserver."),
    Door.CONNECT: ("ftplib.", "smtplib.", "telnetlib.", "xmlrpc."),
    Door.PROCESS: ("os.exec", "os.spawn", "multiprocessing."),
}
# Called as methods of anything, as these words mean nothing else.
_METHODS = {
    Door.LISTEN: {"bind", "create_server", "create_unix_server", "add_insecure_port"},
    Door.CONNECT: {"connect_ex", "sock_connect", "create_unix_connection"},
    Door.PROCESS: {"subprocess_exec", "subprocess_shell"},
    Door.FILE: {"write_text", "write_bytes", "mkdir", "hardlink_to", "symlink_to"},
    Door.ROUTE: {"add_route", "add_websocket_route", "mount"},
}
_CREATING = frozenset("wax+")


def sources() -> Iterator[Path]:
    """The Python files of the wheel."""
    for package in PACKAGES:
        for path in sorted(Path(package).rglob("*.py")):
            parents = [str(path), *map(str, path.parents)]
            if not any(fnmatch(name, each) for name in parents for each in _EXCLUDED):
                yield path


def doors_of(path: Path, text: str) -> set[tuple[Door, str]]:
    """The doors of one file."""
    return set(_Finder(str(path), ast.parse(text)).found())


@cache
def all_doors() -> dict[Door, set[str]]:
    """The places of each kind of door."""
    found: dict[Door, set[str]] = {kind: set() for kind in Door}
    for path in sources():
        for kind, place in doors_of(path, path.read_text()):
            found[kind].add(place)
    return found


def libraries() -> set[str]:
    """What is imported, and is neither ours nor Python's."""
    names = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {*PACKAGES}


class _Finder:
    def __init__(self, path: str, tree: ast.Module) -> None:
        self._path, self._tree = path, tree
        self._imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    first = each.name.partition(".")[0]
                    self._imported[each.asname or first] = each.name if each.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    self._imported[each.asname or each.name] = f"{node.module}.{each.name}"

    def found(self) -> Iterator[tuple[Door, str]]:
        yield from self._below(self._tree, "")

    def _below(self, node: ast.AST, function: str) -> Iterator[tuple[Door, str]]:
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    inside = function
                    if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                        inside = child.name
                    for kind in self._kinds(child):
                        yield kind, f"{self._path}:{inside}" if inside else self._path
                    yield from self._below(child, inside)

    def _kinds(self, node: ast.AST) -> Iterator[Door]:
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = self._full_name(node)
            for kind in Door:
                if name in _NAMES[kind] or name.startswith(_PREFIXES.get(kind, ())):
                    yield kind
        elif isinstance(node, ast.Call):
            yield from self._kinds_of_call(node)

    def _kinds_of_call(self, call: ast.Call) -> Iterator[Door]:
        name, method = self._full_name(call.func), ""
        if isinstance(call.func, ast.Attribute):
            method = call.func.attr
        yield from (kind for kind, methods in _METHODS.items() if method in methods)
        if name == "socket.socket":  # Everywhere else it is a type.
            yield Door.CONNECT
        flags = {each.attr for each in ast.walk(call) if isinstance(each, ast.Attribute)}
        if (name == "os.open" and flags & {"O_CREAT", "O_TMPFILE"}) or _creates(call, name, method):
            yield Door.FILE

    def _full_name(self, node: ast.expr) -> str:
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._imported.get(node.id, node.id), *reversed(parts)])


def _creates(call: ast.Call, name: str, method: str) -> bool:
    """Whether it is an `open` or `touch` that makes a file."""
    if method == "touch":  # Others of that name take what they touch.
        return not call.args
    if name in {"os.open", "os.fdopen"} or "open" not in {name, method}:
        return False
    place = 1 if name == "open" else 0  # A path opens itself.
    given = call.args[place : place + 1]
    given += [each.value for each in call.keywords if each.arg == "mode"]
    texts = [each.value for each in given if isinstance(each, ast.Constant)]
    modes = [each for each in texts if isinstance(each, str) and set(each) <= set("rwaxbt+")]
    return any(_CREATING & set(each) for each in modes)
