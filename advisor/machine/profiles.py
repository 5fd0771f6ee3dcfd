"""GPU profiles: datasheets by card name and memory."""

import difflib
import functools
import re
import tomllib
from pathlib import Path

from advisor.errors import TargetError
from advisor.model import GpuProfile

FILE = Path(__file__).with_name("gpus.toml")
MARGIN = 0.09
"""Share of the card left free: fragmentation, ECC, driver, a longer input.

Judgement: GDDR with ECC alone takes 6 %. The room of an RTX 3090 is then 21.5 GiB, and 22.3 GiB by
the messages in benchmarks/results/prediction.md."""

MEMORY_TOLERANCE = 0.15
"""Allowed gap to the datasheet's memory: ECC alone takes 6 %."""


@functools.cache
def load_all() -> dict[str, GpuProfile]:
    profiles = {}
    for name, table in sorted(tomllib.loads(FILE.read_text(encoding="utf-8")).items()):
        figures = {
            key: value for key, value in table.items() if key not in {"check", "match"}
        }
        profiles[name] = GpuProfile(name=name, match=tuple(table["match"]), **figures)
    return profiles


def by_name(name: str) -> GpuProfile:
    """Find the profile of a card's common name. Raises TargetError."""
    profiles = load_all()
    wanted = _plain(name)
    for profile in profiles.values():
        names = (profile.name, profile.short, profile.title, *profile.match)
        if wanted in {_plain(text) for text in names if text}:
            return profile
    plain = {_plain(profile_name): profile_name for profile_name in profiles}
    near = [plain[hit] for hit in difflib.get_close_matches(wanted, plain, n=3, cutoff=0.5)]
    hint = f"Near names: {', '.join(near)}." if near else f"Known: {', '.join(profiles)}."
    msg = f"No GPU profile is named {name!r}. {hint}"
    raise TargetError(msg)


def match(device_name: str, memory_gib: float | None = None) -> GpuProfile | None:
    """Find a profile by NVML name, or None.

    Names are compared whole: `RTX 4060 Ti` is no `RTX 4060`. Of equal names memory
    decides; one far from the profile's (a vGPU, a slice) is another card.
    """
    wanted = _plain(device_name)
    hits = [
        profile for profile in load_all().values() if wanted in map(_plain, profile.match)
    ]
    if memory_gib is not None:
        hits = [p for p in hits if abs(memory_gib / p.memory_gib - 1) <= MEMORY_TOLERANCE]
    return min(
        hits, key=lambda p: abs(p.memory_gib - (memory_gib or p.memory_gib)), default=None
    )


def usable_gib(profile: GpuProfile, total_gib: float | None = None) -> float:
    """Usable memory of a card with its own total, which is less."""
    total = min(profile.memory_gib, total_gib or profile.memory_gib)
    return total * (1 - MARGIN) - profile.context_mib / 1024


def describe(profile: GpuProfile) -> str:
    """One line: what this GPU could do."""
    names = ("fp32", "tf32", "fp16", "bf16")
    rates = {name: getattr(profile, f"{name}_tflops") for name in names}
    listed = ", ".join(f"{name} {rate:.4g}" for name, rate in rates.items() if rate)
    return (
        f"{profile.title}: {profile.memory_gib:g} GiB ({usable_gib(profile):.1f} usable), "
        f"{profile.bandwidth_gb_per_s:,.0f} GB/s, dense TFLOPS {listed}, {profile.tdp_w:g} W"
    )


def _plain(text: str) -> str:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "".join(
        word for word in words if word not in {"nvidia", "geforce", "tesla", "gpu"}
    )
