"""Parts: kernels as other kernels take them in, lowered but neither optimized nor machine code.

Numba optimizes a function, and makes machine code of it, for itself and once again in each that
calls it: a kernel that others call ten deep, ten times. A part is linked into its callers as it was
lowered, so LLVM sees all of a kernel at once, and once.

Written to Numba's documented way of customizing its compiler (Developer manual, "Customizing the
Compiler"); `no_compile` and `insert_user_function` are what its own subroutines are made with.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _PartLibrary(JITCodeLibrary):
    """LLVM's code of a part, and of the parts it calls."""

    def _optimize_final_module(self) -> None:
        """The caller that links it does."""

    def _finalize_final_module(self) -> None:
        """No machine code."""
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower a kernel, and have kernels find it that call it."""
        target = state.targetctx
        state.library = _PartLibrary(target.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        key = list[int]().append  # Numba asks for a built-in function; no other list has this one.
        target.insert_user_function(key, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=key)
        return True


class PartCompiler(Compiler):
    """Numba's compiler, but for the last step."""

    def define_pipelines(self) -> list[Any]:
        """Numba's own, with our lowering in the place of its."""
        pipelines: list[Any] = super().define_pipelines()
        for each in pipelines:
            each.passes = [
                (_PartLowering if step is NativeLowering else step, why)
                for step, why in each.passes
            ]
        return pipelines
