"""`gpu-advisor predict`: cards that are not here."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.commands.predict import loader_rate, needs_cuda, verdict
from advisor.errors import FAILURE_EXIT_CODES, OutputRefusedError, TargetError
from advisor.machine import profiles
from advisor.model import Effects
from advisor.prediction.estimate import (
    Estimate,
    Traced,
    estimates,
    largest_batch,
    step_time,
    suggested_batch,
    workspace_gib,
)
from advisor.prediction.trace import MATRIX, Operation, Trace
from tests import warm
from tests.runs import a_failure, a_run

pytest.importorskip("torch")

TRAIN = """\
import json, sys, torch
batch = json.load(open(sys.argv[1]))["batch_size"]
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(3)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in torch.utils.data.DataLoader(torch.zeros(4096, 2048), batch_size=batch):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
CONFIG = b'{ "batch_size":  16 ,\n\t"lr": 1e-2}'
SETTINGS = '[workload.w]\ncommand = "x"\n[price]\n"RTX 4060" = 0.5\nh100 = 2\n'
CUDA = """\
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
batch = parser.parse_args().batch_size
assert torch.cuda.is_available() and "4060" in torch.cuda.get_device_name()
host = torch.zeros(1 << 14, 2048)  # 128 MiB that never go to the card
layers = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(3)])
model = torch.nn.DataParallel(layers).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.cuda.amp.GradScaler()
start, stream = torch.cuda.Event(enable_timing=True), torch.cuda.Stream()
torch.Generator(device="cuda").manual_seed(0)
for x in torch.utils.data.DataLoader(torch.zeros(4096, 2048), batch_size=batch, pin_memory=True):
    start.record()
    x = x.to("cuda:0", non_blocking=True) + (host + 1)[: len(x)].cuda()
    with torch.cuda.amp.autocast():
        out = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        assert (out.dtype, out.softmax(1).dtype) == (torch.float16, torch.float32)
        loss = (out * torch.ones(1, device=torch.device("cuda"))).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
"""
KERNEL = "import torch\nmodel = torch.nn.Linear(2, 2).to('cuda')\ntorch.cuda.CUDAGraph().replay()\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "needs_cuda.py").write_text(CUDA)
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "train.json").write_bytes(CONFIG)
    (tmp_path / "gpu-advisor.toml").write_text(SETTINGS)
    return tmp_path


def call(project: Path, gpu_advisor: warm.Server, *words: str) -> tuple[int, str, str]:
    at = words.index("--") + 1
    words = ("predict", "--json", *words[:at], sys.executable, *words[at:])
    done = gpu_advisor.call(*words, cwd=project)
    return done.returncode, done.stdout, done.stderr


def batch_of(entry: dict[str, Any]) -> int:
    return int(entry["batch"])


@pytest.mark.slow
def test_a_larger_batch_takes_more_memory_and_a_larger_card_less_time(project, gpu_advisor) -> None:
    """Each card gets a config of its own, and its command; the user's config stays."""
    words = ("train.json", "--target", "rtx-4060,h100-sxm,t4", "--output", "out")
    command = ("--", "train.py", "train.json")
    code, stdout, stderr = call(project, gpu_advisor, *words, *command)
    assert code == 0, stderr
    found = json.loads(stdout)
    assert found["ok"] is True
    assert found["batch"] == 16
    assert found["trains"] is True
    entries = {(e["card"], e["batch"]): e for e in found["predictions"]}
    small = entries["rtx-4060", 16]
    # a busy machine traces fewer batches, and which is the largest is not the rule here
    large = max((e for (card, _), e in entries.items() if card == "rtx-4060"), key=batch_of)
    assert large["largest_batch"], stderr
    assert large["batch"] > 16
    assert large["memory_gib"] > small["memory_gib"]
    weights_gib = 3 * 2048 * 2049 * 4 / 1024**3
    assert small["allocated_gib"] == pytest.approx(2 * weights_gib, rel=0.1)
    assert entries["h100-sxm", 16]["units_per_s"] > 2 * small["units_per_s"]
    for entry in entries.values():
        low, high = entry["units_per_s_range"]
        assert low < entry["units_per_s"] < high
    assert entries["t4", 16]["price_of_1000"] is None
    hours = 1000 / small["units_per_s"] / 3600
    assert small["price_of_1000"] == pytest.approx(0.5 * hours)

    rates = {(e["card"], e["precision"]): e["units_per_s"] for e in found["precisions"]}
    assert rates["h100-sxm", "bfloat16"] > rates["h100-sxm", "tf32"] > rates["h100-sxm", "float32"]
    assert [dtype for card, dtype in rates if card == "t4"] == ["float32"]
    for card in ("rtx-4060", "h100-sxm", "t4"):
        assert b"predicted, not measured" in (project / f"out/predicted-{card}.svg").read_bytes()

    chosen = {e["card"]: e["batch"] for e in entries.values() if e["suggested"]}
    for step in found["next"]:
        batch = b"%d" % chosen[step["card"]]
        written = f"out/train.predicted-{step['card']}.json"
        assert step["config"] == written
        assert (project / written).read_bytes() == CONFIG.replace(b"16", batch)
        assert step["command"].endswith(f"{written} -- {sys.executable} train.py {written}")
    assert (
        {step["card"] for step in found["next"]} == chosen.keys() == {"rtx-4060", "h100-sxm", "t4"}
    )
    assert (project / "train.json").read_bytes() == CONFIG

    code, stdout, stderr = call(project, gpu_advisor, *words, *command)
    assert code == OutputRefusedError.exit_code
    assert stdout == ""
    assert "--overwrite" in stderr


@pytest.mark.slow
def test_a_program_that_needs_cuda_is_traced_on_a_cpu(project, gpu_advisor) -> None:
    """It takes the path that it takes on the card; what stays on the host takes no memory there."""
    words = ("rtx-4060", "--", "needs_cuda.py", "--batch-size", "4")
    code, stdout, stderr = call(project, gpu_advisor, "--target", *words)
    assert code == 0, stdout + stderr
    found = json.loads(stdout)
    assert found["stand_in"] == "NVIDIA GeForce RTX 4060"
    assert found["dtype"] == "float16"
    weights_gib = 3 * 2048 * 2049 * 4 / 1024**3
    own = next(entry for entry in found["predictions"] if entry["batch"] == 4)
    # weights, gradients, two moments, and the root of one in the update
    assert own["allocated_gib"] == pytest.approx(5 * weights_gib, rel=0.1)
    assert f"--batch-size {max(e['batch'] for e in found['predictions']):g}" in stdout


@pytest.mark.slow
def test_a_program_that_needs_more_of_cuda_fails_by_its_own_kind(project, gpu_advisor) -> None:
    code, stdout, _ = call(project, gpu_advisor, "--target", "h100-sxm", "--", "kernel.py")
    failure = json.loads(stdout)["failure"]
    assert code == FAILURE_EXIT_CODES[failure["kind"]]
    assert "CUDAGraph" in failure["evidence"] or "replay" in failure["evidence"]


def test_an_unknown_card_is_refused_before_any_run(project, gpu_advisor) -> None:
    code, stdout, stderr = call(project, gpu_advisor, "--target", "h1000-sxm", "--", "train.py")
    assert code == TargetError.exit_code
    assert stdout == ""
    assert "h100-sxm" in stderr


@pytest.mark.parametrize(
    ("gib_per_item", "data_items", "expected"),
    [
        (1e-6, 4096, 4096),  # no batch is larger than the data
        (0.01, None, 620),
        (100.0, None, None),
    ],
)
def test_the_largest_batch_fits_and_a_slightly_larger_one_does_not(
    gib_per_item, data_items, expected
) -> None:
    card = profiles.by_name("rtx-4060")
    own, doubled = (
        Trace(batch=n, ops=(), held=(), events=(n * gib_per_item * 2**30, -1)) for n in (1, 2)
    )
    alone = Traced(run=a_run(effects=Effects(data_items=data_items)), step=own)
    found = largest_batch(replace(alone, line=(own, doubled)), card)
    assert found == (expected and pytest.approx(expected, rel=1 / 16))
    assert gib_per_item * (found or 0) <= 0.9 * profiles.usable_gib(card)
    assert largest_batch(alone, card) is None


def test_the_suggested_batch_is_the_smallest_that_ties_with_the_best() -> None:
    """Launches take the same time at every batch until the card's own work takes longer."""

    def at(batch: float, flops: float) -> Trace:
        ops = (Operation(MATRIX, "float32", flops * batch, 1e3, "mm"),) * 20
        return Trace(batch=batch, ops=ops, held=(), events=())

    card, run = profiles.by_name("rtx-4060"), a_run(effects=Effects(data_items=1000))
    heavy, light = (Traced(run=run, step=at(1, f), line=(at(1, f), at(2, f))) for f in (1e9, 1e6))
    assert suggested_batch(heavy, card, 1000) == 1
    assert suggested_batch(light, card, 1000) > 16


def test_a_measured_card_scales_the_other_ones() -> None:
    """A program that is twice as slow here as its datasheet says is so elsewhere."""
    own = Trace(batch=1, ops=(Operation(MATRIX, "float32", 1e12, 1e3, "mm"),), held=(), events=())
    card, other = profiles.by_name("rtx-3090"), profiles.by_name("rtx-4090")
    alone = Traced(run=a_run(), step=own)
    expected_ms = 1000 * step_time(own, card, alone.rates).seconds
    measured = replace(alone, run=replace(alone.run, step_ms=2 * expected_ms), measured_on=card)
    (plain,), (scaled,) = estimates(alone, [other], {}), estimates(measured, [other], {})
    assert scaled.step_ms == pytest.approx(2 * plain.step_ms)


@pytest.mark.parametrize(("rate", "waits"), [(50.0, False), (20.0, True)])
def test_a_card_that_is_quicker_than_the_loader_here_waits_for_it(rate, waits) -> None:
    """Without workers the loader's own rate is known: all of its time is waiting."""
    own = Trace(batch=1, ops=(Operation(MATRIX, "float32", 1e12, 1e3, "mm"),), held=(), events=())
    card = profiles.by_name("rtx-3090")
    (entry,) = estimates(Traced(run=a_run(), step=own), [card], {})
    entry = replace(entry, units_per_s=400.0, units_per_s_range=(300.0, 600.0))
    here = replace(a_run(effects=Effects(workers=0)), units_per_s=rate, wait_share=0.1)
    assert loader_rate(here) == pytest.approx(10 * rate)
    assert (
        "the loader here gives" in verdict([entry], [card], "items", loader_rate(here))
    ) is waits
    assert loader_rate(replace(here, effects=Effects(workers=2))) is None


def estimated(batch: float, units_per_s: float) -> Estimate:
    """A batch that fits, with that rate."""
    return Estimate(
        card="rtx-3090", batch=batch, fits=True, units_per_s=units_per_s,
        units_per_s_range=(0.9 * units_per_s, 1.1 * units_per_s), step_ms=1.0, bound="compute",
        memory_gib=1.0, memory_gib_range=(0.9, 1.1), allocated_gib=1.0, speed_validated=False,
        price_of_1000=None, price_of_1000_range=None,
    )  # fmt: skip


SIZES = [estimated(1, 50.0), estimated(8, 985.0), estimated(40000, 1000.0)]


def test_the_headline_names_the_smallest_batch_that_ties_with_the_best() -> None:
    line = verdict(SIZES, [profiles.by_name("rtx-3090")], "samples")
    assert "with batch 8, predicted, not measured" in line
    assert "40000" not in line


def test_the_headline_is_the_rate_of_the_loader_where_that_is_slower() -> None:
    """With the smallest batch that keeps up with it."""
    line = verdict(SIZES, [profiles.by_name("rtx-3090")], "samples", 46.0)
    assert line.startswith("NVIDIA GeForce RTX 3090: about 46.0 samples/s with batch 1, which the")


FRAME = '  File "/opt/advisor/probe/cuda_stand_in.py", line 3, in launch'
ENDS = {
    "an error of CUDA": (a_failure("crash-step", evidence="RuntimeError: CUDA error"), True),
    "our own file in the stack": (a_failure("crash-step", log_tail=FRAME), False),
    "a slow step": (a_failure("hang", evidence="no step; cuda_stand_in", log_tail=FRAME), False),
}


@pytest.mark.parametrize("end", ENDS)
def test_only_the_programs_own_error_says_that_it_needs_cuda(end) -> None:
    failure, expected = ENDS[end]
    assert needs_cuda(failure) is expected


def test_cublas_takes_more_on_hopper_than_on_other_cards() -> None:
    """torch's defaults: 32 MiB a stream there, 8.125 MiB elsewhere."""
    names = ("rtx-4060", "h100-sxm", "h200-sxm")
    taken = {name: 1024 * workspace_gib(profiles.by_name(name)) for name in names}
    assert taken == {"rtx-4060": 8.125, "h100-sxm": 32.0, "h200-sxm": 32.0}
