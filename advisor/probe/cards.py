"""Which card the model is on, and what it has: asked only once the program uses CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .log import Root

GIB = 1024.0**3


def in_use(torch: Any, roots: list[Root]) -> int | None:
    """Index of the card that holds most of what the program calls, as CUDA counts; None where no
    card is used.

    Without any parameter to go by (a compiled function, plain tensors) it is the current one.
    """
    if torch is None or not torch.cuda.is_initialized():
        return None
    held: dict[int, int] = {}
    elsewhere = False
    for root in roots:
        module = root.module()
        if module is None or not root.parameters:
            continue
        for parameter in module.parameters():
            if parameter.device.type == "cuda":
                index = parameter.device.index or 0
                held[index] = held.get(index, 0) + parameter.nbytes
            else:
                elsewhere = True
    if held:
        return max(held, key=lambda index: held[index])
    return None if elsewhere else int(torch.cuda.current_device())


def told(torch: Any, roots: list[Root]) -> dict[str, Any] | None:
    """The record's entry on the card in use; None without one. Raises what CUDA raises."""
    index = in_use(torch, roots)
    if index is None:
        return None
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    uuid = getattr(facts, "uuid", None)  # torch 2.5 and later
    return {
        "index": index,
        "name": facts.name,
        "uuid": None if uuid is None else str(uuid),
        "total_gib": total / GIB,
        "available_gib": (free + torch.cuda.memory_reserved(index)) / GIB,
        "compute_capability": f"{facts.major}.{facts.minor}",
    }
