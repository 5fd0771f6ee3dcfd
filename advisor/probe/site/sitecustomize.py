# ruff: noqa: INP001
"""Start-up hook that loads the probe by PYTHONPATH.

The shadowed `sitecustomize`, if any, runs after it.
"""

import importlib
import importlib.util
import os
import sys


def _load_probe(spec_path: str) -> None:
    name = "_gpu_advisor_probe"
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[name] = package
    spec.loader.exec_module(package)  # type: ignore[union-attr]
    boot = importlib.import_module(name + ".boot")
    boot.start(spec_path)
    if os.environ.get("GPU_ADVISOR_PARSE_ONLY"):
        arguments = importlib.import_module(name + ".arguments")
        arguments.start_recording(os.environ["GPU_ADVISOR_PARSE_ONLY"], boot.when_imported)


def _chain() -> None:
    """Import the next sitecustomize on the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as problem:
        if problem.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


try:
    if os.environ.get("GPU_ADVISOR_SPEC"):
        _load_probe(os.environ["GPU_ADVISOR_SPEC"])
except Exception:  # the program goes on unharmed; the launcher sees that no boot came
    pass
_chain()
