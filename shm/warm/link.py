"""Links all kernels into one library, which is used without Numba: `python -m shm.warm.link`.

    Numba's LLVM code of each version ──LLVM──▶ position-independent machine code ──┐
    versions written in C: check, unpack, call, pack; shm/kernels/base/linked.c ──cc┴─▶ library

It compiles kernels that are not in Numba's cache yet, and needs a C compiler and Python's headers.
`shm/kernels/base/library.py` says where the library is put and when it is used. As a program it
links for this machine.
"""

import fcntl
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shm.kernels.base.later import LaterModule
from shm.kernels.base.library import (
    COMPILED_OTHERWISE,
    FILE,
    MANIFEST,
    SOURCES,
    code_line,
    have_sources_changed,
    machine_folder,
    sources_line,
)
from shm.private import open_lock

C_COMPILER = "cc"
# Beside a machine's library: why the last attempt to make one failed. A full disk leaves it empty.
WHY_NOT = f"{FILE}.failed"
RUNTIME = SOURCES / "kernels" / "base" / "linked.c"
# Loaded after `main` has set the environment: Numba reads it when it is imported.
llvm: Any = LaterModule("llvmlite.binding")
registry: Any = LaterModule("numba.core.registry")
compiler: Any = LaterModule("shm.kernels.base.compiler")
types: Any = LaterModule("numba.core.types")

# Numba's default. That it is set has `kernel` compile instead of looking for a library.
_COMPILE = {"NUMBA_OPT": "3"}
WHY_CHARACTERS_MAX = 300
_POLITE = 19  # A broker serves meanwhile.
_DTYPES = {
    "uint8": ("u", 1),
    "int32": ("i", 4),
    "int64": ("i", 8),
    "uint64": ("u", 8),
    "bool": ("b", 1),
}
_RESULTS = {
    "int64": ("int64_t", "PyLong_FromLongLong({})"),
    "uint32": ("uint32_t", "PyLong_FromUnsignedLong({})"),
    "uint64": ("uint64_t", "PyLong_FromUnsignedLongLong({})"),
    "bool": ("uint8_t", "PyBool_FromLong({})"),
    "none": ("void *", "Py_NewRef(Py_None)"),
}


class Version(NamedTuple):
    """A compiled version of a kernel: its kernel's name, its types, symbol and LLVM code."""

    kernel: str
    arguments: tuple[Any, ...]
    result: Any
    symbol: str
    code: Any


def versions() -> list[Version]:
    """All that this process has loaded or compiled."""
    found: list[Version] = []
    for name, dispatcher in compiler.COMPILED.items():
        for each in dispatcher.overloads.values():
            code = each.library._get_module_for_linking()  # noqa: SLF001  (It has no other name.)
            symbol = f"version_{len(found)}"
            module = llvm.parse_bitcode(code.as_bitcode())
            _leave_only(module, each.fndesc.llvm_func_name, symbol)
            signature = each.signature
            found.append(Version(name, signature.args, signature.return_type, symbol, module))
    return found


def _leave_only(module: Any, entry: str, symbol: str) -> None:
    """Make the kernel's function the only one that others see; what it does not need goes later."""
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration:
            each.linkage = "internal"
    function = module.get_function(entry)
    function.linkage, function.visibility, function.name = "external", "hidden", symbol


def object_code(module: Any) -> bytes:
    """The machine code of an LLVM module, for the processor that Numba compiles for."""
    codegen = registry.cpu_target.target_context.codegen()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=codegen._get_host_cpu_name(),  # noqa: SLF001  (They heed NUMBA_CPU_NAME.)
        features=codegen._get_host_cpu_features(),  # noqa: SLF001
        opt=3, reloc="pic", codemodel="small",
    )  # fmt: skip
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))


def source(found: Iterable[Version]) -> str:
    """The versions in C, and the table of entries."""
    by_kernel: dict[str, list[Version]] = {}
    for each in found:
        by_kernel.setdefault(each.kernel, []).append(each)
    text = [RUNTIME.read_text()]
    text += [_version(each) for versions in by_kernel.values() for each in versions]
    table = []
    for number, (name, versions) in enumerate(by_kernel.items()):
        calls = "".join(f"call_{each.symbol}, " for each in versions)
        text.append(f"static Version *const of_{number}[] = {{{calls}NULL}};\n")
        count = len(versions[0].arguments)
        table.append(f'    {{"{name}", {count}, of_{number}}},\n')
    text.append(f"static const Entry entries[] = {{\n{''.join(table)}    {{NULL, 0, NULL}},\n}};\n")
    return "\n".join(text)


def _version(version: Version) -> str:
    """A function of C: NULL if the arguments do not fit this version, else the packed result."""
    unpacked = _Unpacked()
    for number, kind in enumerate(version.arguments):
        unpacked.add(kind, f"arguments[{number}]")
    kind, pack = _result(version.result)
    declared = ", ".join(["void *", "void **", *unpacked.kinds])
    passed = ", ".join(["&result", "&raised", *unpacked.values])
    return f"""/* {version.kernel} */
extern int {version.symbol}({declared});
static PyObject *call_{version.symbol}(PyObject *const *arguments)
{{
{"".join(f"    {line}" for line in unpacked.lines)}
    {kind} result;
    void *raised = NULL;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = {version.symbol}({passed});
    Py_END_ALLOW_THREADS
    if (status != {_OK} && status != {_NONE})
        return failed("{version.kernel}", status);
    return {pack};
}}
"""


_OK, _NONE = 0, -2  # Of Numba's calling convention: with a result, and without.


class _Unpacked:
    """Lines of C that unpack arguments, and what the kernel is called with."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.kinds: list[str] = []
        self.values: list[str] = []

    def add(self, kind: Any, given: str) -> None:
        """An argument of Numba's type `kind`, which `given` names in C."""
        if isinstance(kind, types.BaseTuple):
            self._check(f"fits_tuple({given}, {len(kind)})")
            for number, each in enumerate(kind):
                self.add(each, f"PyTuple_GET_ITEM({given}, {number})")
        elif isinstance(kind, types.Array):
            self._add_array(kind, given)
        elif kind in {types.int64, types.boolean}:
            c_type, fits = _SCALARS[str(kind)]
            self._declare(c_type, c_type, f"{fits}({given}, &{{}})", "{}")
        else:
            raise NotImplementedError(f"no kernel has had an argument of type {kind}")

    def _add_array(self, kind: Any, given: str) -> None:
        assert kind.layout == "C"
        assert kind.aligned
        letter, item_bytes = _DTYPES[str(kind.dtype)]
        wanted = f"{kind.ndim}, '{letter}', {item_bytes}, {int(kind.mutable)}"
        passed = ", ".join(
            ["void *"] * 2 + ["int64_t"] * 2 + ["void *"] + ["int64_t"] * 2 * kind.ndim
        )
        self._declare(
            "Array", passed, f"fits_array({given}, {wanted}, &{{}})", f"ARRAY_{kind.ndim}({{}})"
        )

    def _declare(self, c_type: str, passed: str, fits: str, value: str) -> None:
        name = f"a{len(self.values)}"
        self.lines.append(f"{c_type} {name};\n")
        self._check(fits.format(name))
        self.kinds.append(passed)
        self.values.append(value.format(name))

    def _check(self, condition: str) -> None:
        self.lines.append(f"if (!{condition})\n        return NULL;\n")


_SCALARS = {"int64": ("int64_t", "fits_integer"), "bool": ("uint8_t", "fits_bool")}


def _result(kind: Any) -> tuple[str, str]:
    """The type of a result in C, and what makes a Python object of `result`."""
    if isinstance(kind, types.BaseTuple):
        items = [_RESULTS[str(each)] for each in kind]
        fields = "".join(f"{c_type} item_{i}; " for i, (c_type, _) in enumerate(items))
        packed = ", ".join(pack.format(f"result.item_{i}") for i, (_, pack) in enumerate(items))
        return f"struct {{ {fields}}}", f'Py_BuildValue("({"N" * len(items)})", {packed})'
    c_type, pack = _RESULTS[str(kind)]
    return c_type, pack.format("result")


def why_unlinkable() -> str:
    """Why this machine can make no library, as a clause; empty if it can."""
    headers = sysconfig.get_path("include")
    if shutil.which(C_COMPILER) is None:
        return "there is no C compiler"
    if not Path(headers, "Python.h").is_file():
        return f"there is no {headers}/Python.h"
    return ""


def why_not_linked() -> str:
    """Why the last attempt on this machine failed, as a line; empty if none has."""
    try:
        text = (machine_folder() / WHY_NOT).read_text(errors="replace")
    except OSError:
        return ""
    return " ".join(text.split())[:WHY_CHARACTERS_MAX] or "the disk was full"


def link(folder: Path) -> None:
    """Make the library of all versions that this process has, in `folder`.

    Raises SystemExit with a sentence, and OSError.
    """
    if why := why_unlinkable():
        raise SystemExit(f"kernels are not linked: {why}")
    if have_sources_changed():
        raise SystemExit("kernels are not linked: their sources have changed meanwhile")
    found = versions()
    made = folder / f"{FILE}.made"
    shutil.rmtree(made, ignore_errors=True)  # A process that was killed has left it.
    made.mkdir(parents=True)
    whole = found[0].code
    for each in found[1:]:
        whole.link_in(each.code)
    (made / "kernels.o").write_bytes(object_code(whole))
    (made / "kernels.c").write_text(source(found))
    command = [
        C_COMPILER, "-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-s",
        f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}", "-o", str(made / FILE),
        str(made / "kernels.c"), str(made / "kernels.o"),
    ]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if said.returncode:
        raise SystemExit(f"kernels are not linked: the C compiler failed:\n{said.stderr}")
    (made / MANIFEST).write_text(f"{sources_line()}\n{code_line(made)}\n")
    for file in (FILE, MANIFEST):  # Without its manifest, a file is not used.
        (made / file).rename(folder / file)
    shutil.rmtree(made)


def link_all(folder: str) -> None:
    """Load or compile every kernel, then `link`."""
    from shm.warm.client import warm_client  # noqa: PLC0415  (They make COMPILED what it is.)
    from shm.warm.reader import warm_reader  # noqa: PLC0415
    from shm.warm.shard import warm  # noqa: PLC0415

    warm()
    warm_client()
    warm_reader()
    link(Path(folder))


def main() -> None:
    """Link for this machine, unless another process does. The environment's wishes do not count.

    A NUMBA_CACHE_DIR may have kernels of other sources: Numba's cache does not see a change in the
    file of a kernel that another one calls.
    """
    for name in (*COMPILED_OTHERWISE, "NUMBA_CACHE_DIR"):
        os.environ.pop(name, None)
    os.environ.update(_COMPILE)
    os.nice(_POLITE)
    folder = machine_folder()
    lock = open_lock(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _try_to_link(folder)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _try_to_link(folder: Path) -> None:
    try:
        link_all(str(folder))
    except (Exception, SystemExit) as reason:
        with suppress(OSError):
            (folder / WHY_NOT).write_text(str(reason))
        raise
    (folder / WHY_NOT).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
