"""The commands of the how-to page, and of the page for agents, run in a project as they have it."""

import json
from pathlib import Path

import pytest

from advisor.errors import OPTIMIZE_EXIT_CODES, BudgetTooSmallError
from tests.support import pages
from tests.support.processes import ran

TRAIN = """\
import argparse
import torch, yaml
parser = argparse.ArgumentParser()
parser.add_argument("configs", nargs="*")
parser.add_argument("--config")
parser.add_argument("--epochs", type=int, default=10000)
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
values = {"batch_size": args.batch_size}
for path in [*args.configs, *filter(None, [args.config])]:
    values |= yaml.safe_load(open(path))
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.rand(20000, 8))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(100):
    for (x,) in torch.utils.data.DataLoader(data, batch_size=values["batch_size"]):
        if args.evaluate:
            with torch.no_grad():
                model(x)
            continue
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""
SETTINGS = """\
[workload.train]
config = "config/train.yaml"
command = "python train.py --config {config}"

[workload.serve]
config = "config/serve.yaml"
command = "python train.py --evaluate --config {config}"
"""
SHORT = {
    "gpu-advisor optimize": "gpu-advisor optimize --budget 20s --window 0.5s",
    "--whole 10m": "--whole 5s",
    "gpu-advisor compare": "gpu-advisor compare --rounds 2 --window 0.5s",
}
ENDS = {"optimize": {*OPTIMIZE_EXIT_CODES.values(), BudgetTooSmallError.exit_code}, "compare": {3}}
"""Exit codes beside 0: so short a time proves nothing."""

pytest.importorskip("torch")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in ("config", "old", "new", ".git", "home/.local/share/bash-completion/completions"):
        (folder / name).mkdir(parents=True)
    for name in ("train.py", "old/train.py", "new/train.py"):
        (folder / name).write_text(TRAIN)
    for name in ("config/train.yaml", "config/serve.yaml", "data.yaml"):
        (folder / name).write_text("batch_size: 4\n")
    (folder / "model.yaml").write_text("width: 8\n")
    (folder / "gpu-advisor.toml").write_text(SETTINGS)
    return folder


@pytest.mark.slow
@pytest.mark.nightly
def test_each_command_of_the_page_runs(project) -> None:
    found = pages.blocks("how-to.md", "text|sh", SHORT)
    for block, code, stdout, stderr in pages.run(found, project, HOME=str(project / "home")):
        assert code in {0, *ENDS.get(pages.command_of(block), ())}, block + stdout + stderr
        assert "Traceback" not in stderr, block + stderr


OF_AGENTS = {
    "--keep-if 2% --budget 5m": "--keep-if 2% --budget 20s --window 0.5s",
    "--budget 10m": "--budget 20s --window 0.5s",
    "config.yaml": "config/train.yaml",
    "profile": "profile --window 0.5s",
    "-- python train.py\n": "-- python train.py --config config/train.yaml\n",
}
"""What the project has elsewhere, and times shorter than an agent would give."""


@pytest.mark.slow
@pytest.mark.nightly
def test_each_command_of_the_page_for_agents_runs(project) -> None:
    git = ("git", "-c", "user.name=Dev", "-c", "user.email=dev@example.com")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "what works")):
        ran(*git, *words, cwd=project, check=True)
    (project / "train.py").write_text(f"{TRAIN}# an edit\n")
    found = pages.blocks("../templates/skill.md", "sh", OF_AGENTS)
    ends = {"compare": {0, 1, 3}, "optimize": ENDS["optimize"], "profile": set()}
    for block, code, stdout, stderr in pages.run(found, project):
        assert code in {0, *ends[pages.command_of(block)]}, block + stdout + stderr
        assert "Traceback" not in stderr, block + stderr
        assert code not in {0, 1, 3} or json.loads(stdout), block
