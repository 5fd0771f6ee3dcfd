"""Torch facts of an interpreter, printed by it.

The last line is one JSON object. Nothing of the package is imported, and nothing is written.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from typing import Any


def facts() -> dict[str, Any]:
    """Facts of the interpreter, and why torch's are `missing`."""
    facts: dict[str, Any] = {"python": sys.version.split()[0], "executable": sys.executable}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch = importlib.import_module("torch")
            facts.update(
                torch=str(torch.__version__),
                cuda=torch.version.cuda,
                rocm=getattr(torch.version, "hip", None),
                available=bool(torch.cuda.is_available()),
            )
        except Exception as problem:
            facts["missing"] = f"{type(problem).__name__}: {problem}"
    lines = [str(each.message).split("\n")[0] for each in caught]
    facts["warned"] = [line for line in dict.fromkeys(lines) if "CUDA" in line or "NVIDIA" in line]
    return facts


if __name__ == "__main__":
    # What lies in the working directory must not be taken for one of torch's modules.
    sys.path[:] = [folder for folder in sys.path if folder]
    print("\n" + json.dumps(facts()))
