"""Parts: kernels in the form that other kernels link, lowered but not optimized.

Numba optimizes and compiles a function for itself and again in each caller: a kernel ten calls
deep, ten times. A part is linked into its callers as lowered, so LLVM sees all of a kernel at once,
and once.

Written to Numba's documented way of customizing its compiler (Developer manual, "Customizing the
Compiler"); Numba builds its own subroutines with `no_compile` and `insert_user_function`.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _PartLibrary(JITCodeLibrary):
    """The LLVM code of a part, and of the parts that it calls."""

    def _optimize_final_module(self) -> None:
        """Do nothing: the linking caller does."""

    def _finalize_final_module(self) -> None:
        """No machine code."""
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower a kernel, and let its callers find it."""
        target = state.targetctx
        state.library = _PartLibrary(target.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        key = list[int]().append  # Numba asks for a built-in function; no other list has this one.
        target.insert_user_function(key, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=key)
        return True


class PartCompiler(Compiler):
    """Numba's compiler without its last step."""

    def define_pipelines(self) -> list[Any]:
        """Numba's own pipelines, with our lowering in place of theirs."""
        pipelines: list[Any] = super().define_pipelines()
        for each in pipelines:
            each.passes = [
                (_PartLowering if step is NativeLowering else step, why)
                for step, why in each.passes
            ]
        return pipelines
