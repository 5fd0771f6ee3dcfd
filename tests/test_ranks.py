"""`gpu-advisor compare --ranks`: how a training scales, and what holds it back."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.commands.rank_scaling import counts_of, what_limits, with_ranks
from advisor.errors import UsageError
from advisor.model import Disturbance, Shares
from tests.runs import a_run

PROGRAM = """\
import fcntl, os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 20_000
    def __getitem__(self, number):
        if sys.argv[1] == "disk":
            with open("disk", "w") as disk:
                fcntl.flock(disk, fcntl.LOCK_EX)
                time.sleep(0.008)
        return torch.zeros(16)
data = Data()
sampler = torch.utils.data.DistributedSampler(data)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005 if sys.argv[1] == "disk" else 0.03)
"""


def test_the_number_of_ranks_is_put_in_its_place() -> None:
    for command, expected in {
        "torchrun --nproc_per_node 1 a.py -n 3": "torchrun --nproc_per_node 4 a.py -n 3",
        "env X=1 torchrun --nproc-per-node=gpu a.py": "env X=1 torchrun --nproc-per-node=4 a.py",
        "torchrun a.py": "torchrun --nproc_per_node 4 a.py",
        "x -m torch.distributed.run a.py": "x -m torch.distributed.run --nproc_per_node 4 a.py",
        "accelerate launch --num_processes 2 a.py": "accelerate launch --num_processes 4 a.py",
        "accelerate launch a.py": "accelerate launch --num_processes 4 a.py",
        "mpirun -n 2 python a.py -n 7": "mpirun -n 4 python a.py -n 7",
        "python a.py --devices=2": "python a.py --devices=4",
    }.items():  # fmt: skip
        assert " ".join(with_ranks(command.split(), 4)) == expected
    with pytest.raises(UsageError, match="found no number of ranks"):
        with_ranks(["python", "a.py"], 2)


def test_numbers_of_ranks_are_two_different_ones_or_more() -> None:
    assert counts_of("1,2,4") == (1, 2, 4)
    for text in ("1", "1,1", "0,2", "one,two"):
        with pytest.raises(ValueError, match=r"\w"):
            counts_of(text)


def test_a_cause_is_cpus_data_or_the_exchange() -> None:
    one = a_run(units_per_s=100.0, ranks=1, wait_share=0.5, disturbance=Disturbance(own_cpus=1.0))
    two = replace(one, ranks=2, units_per_s=120.0)
    assert "all 2 CPUs were busy" in what_limits(
        [one], [replace(two, disturbance=Disturbance(own_cpus=1.9))], 2
    )
    assert "waited for data 80 %" in what_limits([one], [replace(two, wait_share=0.8)], 8)
    assert "wait for each other. " in what_limits([one], [replace(two, wait_share=0.3)], 8)
    timed = replace(two, wait_share=0.3, shares=Shares(exchange=0.4))
    assert "wait for each other 40 % of the time" in what_limits([one], [timed], 8)


def test_what_was_not_measured_is_not_called_free() -> None:
    """A program without a DataLoader has no wait for data, and a host may tell of no load."""
    one_cpu, blind = Disturbance(own_cpus=1.0), Disturbance()
    for wait, load, missing in (
        (None, one_cpu, "waits for data were not measured"),
        (0.0, blind, "busy CPUs were not measured"),
        (None, blind, "waits for data and busy CPUs were not measured"),
    ):
        one = a_run(units_per_s=100.0, ranks=1, wait_share=wait, disturbance=load)
        two = replace(one, ranks=2, units_per_s=120.0)
        said = what_limits([one], [two], 8)
        assert said.startswith(f"the ranks may wait for each other ({missing}). ")
        timed = what_limits([one], [replace(two, shares=Shares(exchange=0.4))], 8)
        assert timed.startswith("the ranks wait for each other 40 % of the time (")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("how", "efficiency"), [("compute", (0.85, 1.1)), ("disk", (0.4, 0.75))])
def test_a_training_is_compared_with_one_and_two_ranks(
    how, efficiency, tmp_path: Path, gpu_advisor
) -> None:
    """Where both ranks read from one disk in turn, that is the cause."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    words = ("--ranks", "1,2", "--window", "1s", "--rounds", "2", "--budget", "4m", "--json")
    done = gpu_advisor.call("compare", *words, "--", *launcher, "train.py", how, cwd=tmp_path)
    assert done.stdout, done.stderr
    one, two = json.loads(done.stdout)["variants"]
    assert one["ranks"] == 1
    assert two["ranks"] == 2
    assert one["label"] == "1 rank"
    assert two["label"] == "2 ranks"
    assert two["gain"], two
    low, high = efficiency
    assert low < two["gain"]["ratio"] / 2 < high
    assert "efficiency" in two["reason"]
    assert ("waited for data" in two["reason"]) == (how == "disk")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_rank_0_without_a_record_leaves_the_word_to_the_next(tmp_path: Path, gpu_advisor) -> None:
    """Its Python keeps the probe out; nobody stopped the ranks then."""
    pytest.importorskip("torch")
    isolated = (
        "import os, sys\n"
        "if os.environ['RANK'] == '0' and not sys.flags.isolated:\n"
        "    os.execv(sys.executable, [sys.executable, '-I', *sys.argv])\n"
    )
    (tmp_path / "train.py").write_text(isolated + PROGRAM)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    words = ("--window", "1s", "--json", "--", *launcher, "--nproc_per_node", "2")
    done = gpu_advisor.call("profile", *words, "train.py", "compute", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["notes"] == [
        "1 of 2 ranks have a window: the rate is 2 times their mean"
    ]
