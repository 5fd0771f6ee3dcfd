"""What an edit cannot fake: changes that look faster and do less or other work, over real runs."""

import json
import sys
from typing import Any

import pytest

from tests.gate.repos import Repo

pytestmark = pytest.mark.slow

TRAINING = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.arange(1920.0).reshape(240, 8) / 1920, torch.ones(240, 1))
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(data, batch_size=8):
    time.sleep(0.004)
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
INFERENCE = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


net = Net().eval()
with torch.no_grad():
    for (x,) in DataLoader(TensorDataset(torch.rand(240, 8)), batch_size=8):
        net(x)
"""
CHEATS: dict[str, tuple[str, str, str, str]] = {
    "half of the batches": (
        TRAINING, "    time.sleep(0.004)\n",
        "    if int(x[0, 0] * 240 + 0.5) // 8 % 2:\n        continue\n    time.sleep(0.004)\n",
        "other-work",
    ),
    "fewer items": (TRAINING, "batch_size=8", "batch_size=8, sampler=range(120)", "other-work"),
    "a smaller model": (TRAINING, "64", "16", "smaller-model"),
    "larger batches": (TRAINING, "batch_size=8", "batch_size=24", "other-work"),
    "work put off": (
        TRAINING, "    time.sleep(0.004)\n",
        "    if not x[0, 0]:\n        import atexit\n        atexit.register(time.sleep, 3)\n",
        "work-after-the-steps",
    ),
    "other outputs": (INFERENCE, "return self.layer(x)", "return x * 0.5", "other-outputs"),
}  # fmt: skip
"""Program, what the edit replaces and by what, and the cause for which it is dropped."""


def judged(repo: Repo, program: str, edited: str, *flags: str) -> dict[str, Any]:
    repo.of(program)
    (repo.path / "bench.py").write_text(edited)
    words = ("compare", "--base-ref", "HEAD", "--json", *flags, "--", sys.executable, "bench.py")
    done = repo.gpu_advisor.call(*words, cwd=repo.path, env=repo.environment())
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CHEATS)
def test_less_or_other_work_is_dropped_before_any_pair(repo, name) -> None:
    program, old, new, cause = CHEATS[name]
    assert old in program
    record = judged(repo, program, program.replace(old, new))
    assert record["verdict"] == "drop", record["reason"]
    assert record["cause"] == cause, record["reason"]
    assert record["processes"] <= 4


@pytest.mark.nightly
def test_a_model_called_layer_by_layer_is_no_smaller_one(repo) -> None:
    apart = TRAINING.replace("(net(x) - y)", "(net[2](net[1](net[0](x))) - y)")
    record = judged(repo, TRAINING, apart, "--keep-if", "50%", "--budget", "40s")
    assert record["cause"] in ("gain-ruled-out", "budget", "noise"), record["reason"]


@pytest.mark.nightly
def test_a_clock_that_the_program_patches_moves_no_rate(repo) -> None:
    patched = (
        "import time\n_clocks = time.perf_counter, time.monotonic, time.time\n"
        "time.perf_counter, time.monotonic, time.time = (\n"
        "    (lambda real: lambda: real() / 4)(each) for each in _clocks\n)\n"
    )
    record = judged(repo, TRAINING, patched + TRAINING, "--keep-if", "50%")
    assert record["cause"] == "gain-ruled-out", record  # by its rate, and by no other guard


@pytest.mark.nightly
def test_what_a_run_left_is_gone_in_the_next(repo) -> None:
    cached = (
        "import os\nleft = os.path.exists('left')\nopen('left', 'w').close()\n"
        "import time\ntime.sleep = (lambda s: None) if left else time.sleep\n"
    )
    repo.env.clear()  # the best kind of isolation here: without any, what a run wrote stays
    record = judged(repo, TRAINING, cached + TRAINING, "--keep-if", "50%")
    assert record["cause"] == "gain-ruled-out", record  # it could write, and found nothing
