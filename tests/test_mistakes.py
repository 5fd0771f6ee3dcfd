# ruff: noqa: E501  a row is a mistake with its answer
"""Mistakes in what is typed: one sentence with the right command, an exit code, and no trial."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import config as documents, errors
from advisor.commands.invocation import parse_budget_s, why_not_taken
from advisor.commands.mistakes import Typed, check_words
from advisor.model import MeasurePlan, Run, TrialFile
from advisor.runner.trial import run_trial
from advisor.sandbox.capabilities import detect_isolation
from tests.runs import a_trial

PROGRAM = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--output")
parser.parse_args()
"""
FILES = {
    "eval.yaml": "batch_size: 8\nnum_workers: 0\n",
    "broken.yaml": "batch_size: [8\n",
    "broken.py": "import torch\nloader = (\n",
    "empty.yaml": "",
    "comments.yaml": "# batch_size: 8\n",
    "word.yaml": "settings\n",
    "notes.txt": "batch_size: 8\n",
    "config/train.toml": "batch_size = 8\n",
    "train.py": PROGRAM,
    "bare.py": "import torch\n",
    "asks.py": 'import torch\n\ndef main():\n    steps = int(input("steps? "))\n\nmain()\n',
    "guarded.py": 'import torch\nif __name__ == "__main__":\n    input()\n',
    "pack/train.py": "import torch\nfrom .data import made\n",
    "pack/data.py": "made = 1\n",
    "train.ipynb": "{}",
    "run.sh": "python train.py --config eval.yaml\n",
    "started.sh": "#!/bin/sh\npython train.py --config eval.yaml\n",
    "report.md": "# a report\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, and an interpreter without torch in `bare`."""
    folder = tmp_path_factory.mktemp("project")
    (folder / ".git").mkdir()
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "started.sh").chmod(0o755)
    (folder / "link.yaml").symlink_to("eval.yaml")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", folder / "bare"], check=True, timeout=60
    )
    return folder


RUN = "python train.py --config eval.yaml"
USAGE, MISSING, BROKEN, UNKNOWN, NO_COMMAND, NO_REPORT = 2, 10, 12, 11, 16, 21

MISTAKES = {
    # the separator
    f"optimize eval.yaml {RUN}": (USAGE, f"needs `--` before it: `gpu-advisor optimize eval.yaml -- {RUN}`"),
    f"profile {RUN}": (USAGE, f"needs `--` before it: `gpu-advisor profile -- {RUN}`"),
    "profile ./started.sh": (USAGE, "needs `--` before it: `gpu-advisor profile -- ./started.sh`"),
    "predict eval.yaml torchrun train.py": (USAGE, "`gpu-advisor predict eval.yaml -- torchrun train.py`"),
    f"optimize eval.yaml -- -- {RUN}": (USAGE, f"`--` stands twice. Write `gpu-advisor optimize eval.yaml -- {RUN}`"),
    "optimize eval.yaml --": (USAGE, "Nothing stands after `--`"),
    "optimize run.sh": (USAGE, "`gpu-advisor optimize -- bash run.sh`"),
    "optimize train.py": (NO_COMMAND, "  gpu-advisor optimize -- python train.py\n"),
    "optimize eval.yaml train.py": (NO_COMMAND, "  gpu-advisor optimize eval.yaml -- python train.py\n"),
    "optimize": (NO_COMMAND, "gpu-advisor optimize -- python YOUR_SCRIPT.py"),
    # options
    f"optimize eval.yaml -- {RUN} --budget 5m": (USAGE, f"`gpu-advisor optimize eval.yaml --budget 5m -- {RUN}`"),
    "profile -- python bare.py --window=2s": (USAGE, "`gpu-advisor profile --window=2s -- python bare.py`"),
    f"optimize --bugdet 5m eval.yaml -- {RUN}": (USAGE, "--bugdet (did you mean --budget?)"),
    f"compare --round 3 eval.yaml a.yaml -- {RUN}": (USAGE, "--round (did you mean --rounds?)"),
    f"optimize --config eval.yaml -- {RUN}": (USAGE, "Configs are named without an option"),
    f"optimize --budget 5 eval.yaml -- {RUN}": (USAGE, "write 5m for minutes, or 5s for seconds"),
    f"optimize --budget soon eval.yaml -- {RUN}": (USAGE, "write 90s, 10m, 3m30s or 1h"),
    f"optimize --budget -5m eval.yaml -- {RUN}": (USAGE, "'-5m' is no duration above zero"),
    f"profile --window=-1s eval.yaml -- {RUN}": (USAGE, "'-1s' is no duration above zero"),
    f"optimize --budget -- {RUN}": (USAGE, "argument --budget: expected one argument"),
    f"optimize --objective speed eval.yaml -- {RUN}": (USAGE, "choose from"),
    f"optimize --constraint 'memory<' eval.yaml -- {RUN}": (USAGE, "memory<=7GiB"),
    f"optimize --report new.md --target rtx-4061 eval.yaml -- {RUN}": (19, "rtx-4060"),
    # the subcommand
    "optimise eval.yaml": (USAGE, "Did you mean 'optimize'?"),
    f"eval.yaml -- {RUN}": (USAGE, f"`gpu-advisor optimize eval.yaml -- {RUN}`"),
    RUN: (USAGE, f"`gpu-advisor optimize -- {RUN}`"),
    f"--budget 5m optimize -- {RUN}": (USAGE, f"`gpu-advisor optimize --budget 5m -- {RUN}`"),
    # the command
    f"optimize eval.yaml -- DEBUG=1 {RUN}": (USAGE, f"`gpu-advisor optimize eval.yaml -- env DEBUG=1 {RUN}`"),
    f"optimize eval.yaml -- '{RUN}'": (USAGE, f"as one word. Write `gpu-advisor optimize eval.yaml -- {RUN}`"),
    f"profile -- '{RUN} | tee log'": (USAGE, f"`gpu-advisor profile -- bash -c '{RUN} | tee log'`"),
    f"profile -- '{RUN} &'": (USAGE, f"as one word. Write `gpu-advisor profile -- {RUN}`"),
    "profile -- source bin/activate": (USAGE, "`source` is a word of the shell"),
    "profile -- sbatch job.sh": (USAGE, "--engine slurm runs the trials on the cluster"),
    "profile -- tmux new -d 'python train.py'": (USAGE, "`tmux` starts the program elsewhere"),
    "profile -- docker run -d image": (USAGE, "`docker` starts the program elsewhere"),
    f"profile -- bash -c '{RUN} &'": (USAGE, f"`gpu-advisor profile -- bash -c '{RUN}'`"),
    "profile -- jupyter nbconvert --execute train.ipynb": (USAGE, "`jupyter nbconvert --to script train.ipynb`"),
    "profile -- python train.ipynb": (USAGE, "then `gpu-advisor profile -- python train.py`"),
    "profile -- train.py": (USAGE, "`gpu-advisor profile -- python train.py`"),
    "profile -- ./run.sh": (USAGE, "`gpu-advisor profile -- bash ./run.sh`"),
    "profile -- started.sh": (USAGE, "`gpu-advisor profile -- ./started.sh`"),
    "profile -- gpu-advisor optimize": (USAGE, "is gpu-advisor itself"),
    "profile -- python gone.py": (NO_COMMAND, "gone.py does not exist"),
    "profile -- no-such-program": (NO_COMMAND, "is not in PATH"),
    "profile -- python": (USAGE, "`python` starts no program. Write `gpu-advisor profile -- python YOUR_SCRIPT.py`"),
    "optimize eval.yaml -- python -m": (USAGE, "`python -m` starts no program"),
    "optimize eval.yaml -- python -c": (USAGE, "`python -c` starts no program"),
    "profile -- bash": (USAGE, "`gpu-advisor profile -- bash YOUR_SCRIPT.sh`"),
    "profile -- torchrun": (USAGE, "`torchrun` starts no program"),
    "profile -- ssh node python train.py": (USAGE, "runs the program on another machine"),
    "optimize -- eval.yaml": (USAGE, "`gpu-advisor optimize eval.yaml -- python YOUR_SCRIPT.py`"),
    # the program
    "profile -- python broken.py": (USAGE, "Line 2 of broken.py is no valid Python"),
    "profile -- python -m no.such.module": (USAGE, "finds no module no, neither installed nor in"),
    "profile -- python asks.py": (USAGE, "asks by input(), and a trial has no keyboard"),
    "profile -- python guarded.py": (USAGE, "asks by input(), and a trial has no keyboard"),
    "profile -- python pack/train.py --lr 1": (USAGE, "`gpu-advisor profile -- python -m pack.train --lr 1`"),
    "profile -- bare/bin/python train.py": (USAGE, "bare/bin/python has no torch"),
    "compare -- python train.py --vs A=1 python train.py": (USAGE, "env A=1 python train.py"),
    # the config
    "optimize train.py -- python train.py": (USAGE, "`gpu-advisor optimize -- python train.py`"),
    f"optimize evl.yaml -- {RUN}": (MISSING, "Did you mean eval.yaml?"),
    f"optimize eval.yml -- {RUN}": (MISSING, "Did you mean eval.yaml?"),
    f"optimize train.toml -- {RUN}": (MISSING, "Did you mean config/train.toml?"),
    f"optimize '*.yaml' -- {RUN}": (MISSING, "The shell replaces a pattern only without quotes"),
    f"optimize '~/eval.yaml' -- {RUN}": (MISSING, "The shell replaces `~`"),
    f"profile https://host/eval.yaml -- {RUN}": (MISSING, "An address is no file"),
    f"optimize empty.yaml -- {RUN}": (USAGE, "empty.yaml holds no setting"),
    f"optimize comments.yaml -- {RUN}": (USAGE, "comments.yaml holds no setting"),
    f"optimize word.yaml -- {RUN}": (USAGE, "word.yaml holds no setting"),
    f"optimize notes.txt -- {RUN}": (UNKNOWN, "its name ends in none of .json"),
    f"optimize broken.yaml -- {RUN}": (BROKEN, "line"),
    f"optimize config -- {RUN}": (UNKNOWN, "is a directory"),
    f"optimize eval.yaml eval.yaml -- {RUN}": (USAGE, "named twice. Write `gpu-advisor optimize eval.yaml ...`"),
    f"profile eval.yaml link.yaml -- {RUN}": (USAGE, "link.yaml is named twice, also as eval.yaml"),
    "revert evl.yaml": (MISSING, "Did you mean eval.yaml?"),
    "inspect evl.yaml": (MISSING, "Did you mean eval.yaml?"),
    # the report
    "report": (NO_REPORT, "report.json is not there"),
    "report eval.yaml": (NO_REPORT, "Name a report.json of `optimize`"),
    "report report.md": (NO_REPORT, "Name a report.json of `optimize`"),
}  # fmt: skip


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_answered_by_what_to_write_and_nothing_runs(
    gpu_advisor, project, line
) -> None:
    """Whatever was mistyped, the answer is there before a program starts."""
    code, answer = MISTAKES[line]
    own = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
    before = sorted(project.rglob("*"))
    done = gpu_advisor.call(*shlex.split(line), cwd=project, env=env)
    assert answer in done.stderr
    assert done.returncode == code
    assert "trial 1" not in done.stderr
    assert done.stdout == ""
    assert sorted(project.rglob("*")) == before


PLACES = {
    "in the code": (sys.executable, "lines.py"),
    "in a script": ("sh", "run.sh"),
    "in a makefile": ("make", "-s", "train"),
}
LINES = """\
import re, time
batch = int(re.search(r"batch_size: ([0-9]+)", open("conf/eval.yaml").read())[1])
while True:
    time.sleep(0.02)
    print("done", batch, flush=True)
"""


@pytest.mark.parametrize("place", PLACES)
def test_a_config_that_the_command_never_names_is_changed_where_it_is_read(tmp_path, place) -> None:
    """A path in the code, in a script or in a makefile: the candidate lies at that path."""
    if detect_isolation(str(tmp_path)).kind != "overlay" or shutil.which(PLACES[place][0]) is None:
        pytest.skip("nothing can stand in the config's place here")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "eval.yaml").write_text("batch_size: 2\n")
    (tmp_path / "lines.py").write_text(LINES)
    (tmp_path / "run.sh").write_text(f"{sys.executable} lines.py\n")
    (tmp_path / "Makefile").write_text(f"train:\n\t{sys.executable} lines.py\n")
    asked = documents.read(tmp_path / "conf" / "eval.yaml")
    assert why_not_taken(PLACES[place], asked, tmp_path) is None
    tuned = asked.with_values({"batch_size": 16})
    trial = a_trial(
        *PLACES[place],
        cwd=str(tmp_path),
        scratch=str(tmp_path.with_name(f"{tmp_path.name}-scratch")),
        files=(TrialFile(original=asked.name, content=tuned),),
        plan=MeasurePlan(measure_s=0.2, unit_regex="done ([0-9]+)"),
    )
    run = run_trial(trial)
    assert isinstance(run, Run), run
    assert "done 16" in run.stdout_tail
    assert "done 2\n" not in run.stdout_tail


LEFT_ALONE = {
    "a question in a function": ("import torch\ndef f():\n    x = input()\nfor _ in range(1): f()\n", "no keyboard"),
    "a terminal": ("import torch, os\nos.get_terminal_size()\n", "needs a terminal"),
    "a notebook": ("import torch\nget_ipython().system('ls')\n", "that of a notebook"),
    "a daemon": ("import os, time\nif not os.fork():\n    time.sleep(60)\n", "in the foreground"),
}  # fmt: skip


@pytest.mark.parametrize("habit", LEFT_ALONE)
def test_a_program_that_cannot_run_alone_fails_with_its_remedy(
    gpu_advisor, tmp_path, habit
) -> None:
    """What only a run can show ends the first trial, and the answer names what to change."""
    source, remedy = LEFT_ALONE[habit]
    (tmp_path / "main.py").write_text(source)
    done = gpu_advisor.call("profile", "--", sys.executable, "main.py", cwd=tmp_path)
    assert remedy in done.stdout
    assert done.returncode in errors.FAILURE_EXIT_CODES.values()


SPELLED = {"5min": 300, "90 sec": 90, "1 hour 5 minutes": 3900, "2hrs": 7200, "1.5m": 90}


@pytest.mark.parametrize("text", SPELLED)
def test_a_time_is_read_as_a_person_writes_it(text) -> None:
    assert parse_budget_s(text) == SPELLED[text]


RIGHT = {
    "an option that the program has, too": "train.py --output out",
    "an option that a parser passes on": "passes.py --budget 5",
    "a module of the project may read it": "wrapper.py --window 3s",
    "input() behind a condition": "may_ask.py",
    "a relative import inside a module": "-m pack.train",
    "torch that may be missing": "optional.py",
}
PROGRAMS = {
    "train.py": PROGRAM,
    "passes.py": "import argparse\nargparse.ArgumentParser().parse_known_args()\n",
    "wrapper.py": "import torch\nfrom pack.data import made\n",
    "may_ask.py": "import sys, torch\nif sys.stdin.isatty():\n    input()\n",
    "optional.py": "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
    "pack/data.py": "made = 1\n",
    "pack/train.py": "from .data import made\n",
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_may_be_meant_is_no_mistake(tmp_path, case) -> None:
    """The checks answer only what cannot work; a program may have options of our names."""
    (tmp_path / "pack").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    options = {"--output": None, "--budget": None, "--window": None}
    typed = Typed(
        name="profile", command=(sys.executable, *shlex.split(RIGHT[case])), cwd=tmp_path,
        environ=os.environ, options=options,
    )  # fmt: skip
    check_words(typed)
