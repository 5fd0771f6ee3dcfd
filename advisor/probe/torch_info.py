"""Facts of an interpreter's torch, and rates of its cards, printed by it.

The last line is JSON. Nothing of the package is imported, and nothing is written.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from time import perf_counter as clock  # `doctor` runs this file alone, without its package
from typing import Any, Callable

BLOCKS = 5
"""Blocks of calls, of which the fastest counts.

Judgement: fewer may all be slowed by others, more lengthen each calibration."""
BLOCK_S = 0.05
"""Shortest time of a block, in seconds.

Judgement: shorter lets one wait for the card move the rate, longer lengthens each calibration."""
LONG_S = 2e-3
"""Seconds that a product or a copy has to take to be large enough.

Judgement: shorter measures the launch beside it, longer takes more of a small card's memory."""
TENSOR_CORES = (8, 0)
"""Compute capability from which a card has TF32 and bfloat16."""


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
    lines = [str(warning.message).split("\n")[0] for warning in caught]
    facts["warned"] = [
        line for line in dict.fromkeys(lines) if "CUDA" in line or "NVIDIA" in line
    ]
    return facts


def seconds(
    call: Callable[[], object], wait: Callable[[], object], block_s: float
) -> float:
    """Seconds of one call, by the fastest of several blocks."""
    times = 1
    call_s: list[float] = []
    call()
    while len(call_s) < BLOCKS:
        wait()
        began = clock()
        for _ in range(times):
            call()
        wait()
        took = clock() - began
        if took < block_s:
            times *= 2
        else:
            call_s.append(took / times)
    return min(call_s)


def rates(torch: Any, device: str) -> dict[str, Any]:
    """Rates of one device, named as in a profile."""
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None

    def fastest(
        work: Callable[[Any], object], sides: range, dtype: Any
    ) -> tuple[int, float]:
        """Side of the first matrix large enough, and seconds of its work."""
        matrix: Any = None
        for power in sides:
            matrix = torch.ones(2**power, 2**power, dtype=dtype, device=device)
            if seconds(lambda: work(matrix), wait, 0.0) > LONG_S:  # noqa: B023  called at once
                break
        return len(matrix), seconds(lambda: work(matrix), wait, BLOCK_S)

    side, copied_s = fastest(lambda matrix: matrix.clone(), range(10, 15), torch.float32)
    one = torch.ones(1, device=device)
    measured = {
        "bandwidth_gb_per_s": 8e-9 * side**2 / copied_s,
        "launch_s": seconds(lambda: one.add_(1), wait, BLOCK_S),
    }
    modern = device == "cpu" or torch.cuda.get_device_capability(device) >= TENSOR_CORES
    of_amd = getattr(torch.version, "hip", None)
    names = {"fp32": torch.float32, "fp16": torch.float16}
    names.update({"bf16": torch.bfloat16} if modern else {})
    names.update({"tf32": torch.float32} if modern and not of_amd else {})
    for name, dtype in names.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        side, product_s = fastest(
            lambda matrix: torch.mm(matrix, matrix), range(9, 14), dtype
        )
        measured[f"{name}_tflops"] = 2e-12 * side**3 / product_s
    return {name: float(f"{rate:.3g}") for name, rate in measured.items()}


def cards() -> list[dict[str, Any]]:
    torch = importlib.import_module("torch")
    cards_told = []
    for index in range(torch.cuda.device_count()):
        torch.cuda.set_device(index)
        facts = torch.cuda.get_device_properties(index)
        named = {"name": facts.name, "memory_gib": round(facts.total_memory / 1024**3, 2)}
        cards_told.append({**named, **rates(torch, f"cuda:{index}")})
    return cards_told


ANSWERS: dict[str, Callable[[], object]] = {"facts": facts, "cards": cards}

if __name__ == "__main__":
    # Nothing in the working directory may be taken for one of torch's modules.
    sys.path[:] = [folder for folder in sys.path if folder]
    print("\n" + json.dumps(ANSWERS[sys.argv[1]]()))
