"""Found by Python at start-up: torch without what only compilation and meta tensors need.

`import torch` registers the meta function of every operator, and the first step of an optimizer
imports torch._dynamo: two thirds of the CPU seconds that a small program takes, in every one of the
hundreds that the tests start. Here both come when a program compiles, and not before. Tests marked
`frameworks`, and those of tests/matrix, run with torch as it is.
"""

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import sys
import types

META = ("torch.distributed._meta_registrations", "torch._meta_registrations")
COMPILER = "torch._dynamo"


class _Compiler(types.ModuleType):
    """What an optimizer's step and torch.func ask of the compiler where nothing is compiled."""

    compiled_autograd = types.SimpleNamespace(_disable=contextlib.nullcontext)

    @staticmethod
    def graph_break():
        pass

    def __getattr__(self, name):
        return getattr(_whole(), name)


class _Light:
    """A finder that answers for those modules until somebody needs them."""

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name == COMPILER or name in META:
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == COMPILER:
            module.__class__ = _Compiler
        elif module.__name__ == META[-1]:
            _generators()


def _generators():
    """What the meta functions bring along for random numbers, in the torch that wants it."""
    core = sys.modules["torch._C"]
    if hasattr(core, "_set_generator_metaclass"):
        base = importlib.import_module("torch._opaque_base")
        core._set_generator_metaclass(base.OpaqueBaseMeta)


class _Undisabled:
    """A finder that changes `torch._compile` once it is loaded.

    What is only kept from being compiled runs as it is while there is no compiler.
    """

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name != "torch._compile":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module._disable_dynamo = functools.partial(_undisabled, module._disable_dynamo)

        spec.loader.exec_module = exec_module
        return spec


def _undisabled(whole, function=None, recursive=True):
    if function is None:
        return functools.partial(_undisabled, whole, recursive=recursive)
    kept = whole(function, recursive)

    @functools.wraps(function)
    def inner(*args, **kwargs):
        return (function if LIGHT in sys.meta_path else kept)(*args, **kwargs)

    return inner


def _whole():
    """The compiler, with what torch had to leave out for it."""
    if LIGHT in sys.meta_path:
        sys.meta_path.remove(LIGHT)
        for name in (*META, COMPILER):
            if sys.modules.pop(name, None) is not None:
                importlib.import_module(name)
    return sys.modules[COMPILER]


LIGHT = _Light()
if not os.environ.get("GPU_ADVISOR_TESTS_WHOLE_TORCH"):
    sys.meta_path[:0] = [LIGHT, _Undisabled()]
