"""Torch facts of an interpreter, printed by it.

The last line that it prints is one JSON object. Nothing of the package is
imported, and nothing is written.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from typing import Any, Callable

QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda torch: str(torch.__version__),
    "cuda": lambda torch: torch.version.cuda,
    "rocm": lambda torch: getattr(torch.version, "hip", None),
    "available": lambda torch: bool(torch.cuda.is_available()),
}


def facts() -> dict[str, Any]:
    """Facts of the interpreter; unavailable ones are None."""
    facts: dict[str, Any] = {
        "python": sys.version.split()[0],
        "executable": sys.executable,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch = importlib.import_module("torch")
        except Exception as problem:
            facts["missing"] = f"{type(problem).__name__}: {problem}"
            return facts
        for name, ask in QUESTIONS.items():
            try:
                facts[name] = ask(torch)
            except Exception:
                facts[name] = None
    lines = [str(each.message).split("\n")[0] for each in caught]
    facts["warned"] = [line for line in dict.fromkeys(lines) if "CUDA" in line or "NVIDIA" in line]
    return facts


if __name__ == "__main__":
    # What lies in the working directory must not be taken for one of torch's modules.
    sys.path[:] = [folder for folder in sys.path if folder]
    print("\n" + json.dumps(facts()))
