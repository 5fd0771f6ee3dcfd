"""Steps: what the card says of itself, and what the probe costs on it."""

from collections.abc import Iterator

from advisor.machine import profiles
from advisor.machine.gpu import read_gpus, uvm_loaded
from advisor.machine.recording import same_uuid
from benchmarks.gpu.bench import Bench, last_json
from benchmarks.gpu.record import Line

ASK = """
import json, platform, torch
cuda = torch.cuda
count = cuda.device_count() if cuda.is_available() else 0
cards = []
for index in range(count):
    facts = cuda.get_device_properties(index)
    free, total = cuda.mem_get_info(index)
    uuid = getattr(facts, "uuid", None)
    cards.append({
        "index": index, "name": facts.name, "uuid": None if uuid is None else str(uuid),
        "capability": f"{facts.major}.{facts.minor}", "total_gib": total / 2**30,
        "free_gib": free / 2**30, "multiprocessors": facts.multi_processor_count,
    })
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda,
                  "python": platform.python_version(), "cards": cards}))
"""
DRIVERS_GIB = 0.5
"""What a driver keeps for itself, which NVML counts and torch does not see."""
OVERHEAD_SHARE = 0.02
"""Of a step of 5 ms."""
LEAST_ROUNDS, ROUNDS = 2, 8


def card_facts(bench: Bench) -> Iterator[Line]:
    """torch's word against NVML's."""
    asked = bench.python("-c", ASK)
    if asked.returncode:
        last_lines = asked.stderr.strip().splitlines()[-1:]
        yield bench.line("torch starts", "it does", str(last_lines), False, "install torch here")
        return
    facts = last_json(asked.stdout)
    cards = facts.pop("cards")
    bench.card = {**facts, **(cards[0] if cards else {}), "cards": cards}
    yield bench.line(
        "torch sees a GPU", "at least one", f"{len(cards)}, torch {facts['torch']}", bool(cards),
        "nvidia-smi, the driver, CUDA_VISIBLE_DEVICES, a torch built for CUDA",
    )  # fmt: skip
    if not cards:
        return
    uvm = uvm_loaded()  # WSL2 and some containers compute without it: torch does, by now
    yield bench.line(
        "the device file of CUDA before a sandbox", "",
        "there, or not needed" if uvm else "absent, and torch computes without it", None,
    )  # fmt: skip
    first = cards[0]
    yield bench.line(
        "the card", "", f"{first['name']}, {first['total_gib']:.1f} GiB, capability "
        f"{first['capability']}, {first['multiprocessors']} multiprocessors", None,
    )  # fmt: skip
    gpus, note = read_gpus(bench.environ)
    seen = next((gpu for gpu in gpus if same_uuid(gpu.uuid, first["uuid"])), None)
    yield bench.line(
        "NVML shows the card that torch computes on", f"UUID {first['uuid']}",
        str([gpu.uuid for gpu in gpus]) if gpus else str(note),
        None if bench.simulated and not gpus else seen is not None,
        "same_uuid, or NVML is not in this container: then telemetry is "
        "missing and the rest must still hold",
    )  # fmt: skip
    profile = profiles.match(first["name"], first["total_gib"])
    yield bench.line(
        "its profile", "one is known", profile.title if profile else "none",
        None if profile is None else True, "add one to advisor/machine/gpus.toml",
    )  # fmt: skip
    if seen is not None and seen.memory_total_gib is not None:
        apart_gib = abs(first["total_gib"] - seen.memory_total_gib)
        yield bench.line(
            "torch and NVML agree on memory", f"within 3 % or {DRIVERS_GIB:g} GiB",
            f"{apart_gib:.2f} of {seen.memory_total_gib:.2f} GiB apart",
            apart_gib < max(DRIVERS_GIB, 0.03 * seen.memory_total_gib),
            "MIG slices and reserved memory: advisor/machine/readings.py read_memory",
        )  # fmt: skip


def probe_overhead(bench: Bench) -> Iterator[Line]:
    """Hooks on and off by turns in one process."""
    rounds = LEAST_ROUNDS if bench.simulated else ROUNDS
    done = bench.python(
        "-m", "benchmarks.probe_overhead", "--device", "cuda", "--json", "--rounds", str(rounds)
    )
    if done.returncode:
        last_lines = done.stderr.strip().splitlines()[-3:]
        yield bench.line("the probe runs", "it does", " ".join(last_lines), False, "advisor/probe")
        return
    found = last_json(done.stdout)
    middle, low, high = found["added_share"]
    added_us = found["added_us"][0]
    yield bench.line(
        "added to a step", f"at most {OVERHEAD_SHARE:.0%}",
        f"{middle:+.2%} ({low:+.2%} to {high:+.2%}, {rounds} rounds), {added_us:+.0f} us of "
        f"{found['step_ms']:.2f} ms",
        None if bench.simulated or bench.made else middle <= OVERHEAD_SHARE,
        "fewer marks: APART_S in advisor/probe/cuda_events.py; the wrappers of watch_device there; "
        "loss copies in training_hooks.py",
    )  # fmt: skip
