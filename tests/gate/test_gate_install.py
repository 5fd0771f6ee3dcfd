"""The action's first step: an environment of its own, made of what the lock names."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tests.gate.repos import ROOT, STEADY
from tests.gate.runner import ACTION, Runner, steps_of

WITH_PIP = """\
#!/bin/sh
# Python itself; but an environment gets the pip that is here, in place of one unpacked anew.
case " $* " in *" -m venv "*) set -- "$@" --without-pip ;; esac
{python} "$@" || exit
for site in {home}/venv/lib/python*/site-packages; do
  [ ! -d "$site" ] || ln -sfn {pip} "$site/pip"
done
"""
SHADOWS = ("venv.py", "logging.py", "pip.py", "sysconfig.py", "sitecustomize.py", "platform.py")


def test_no_module_of_the_checkout_is_run_by_the_installation(repo, tmp_path: Path) -> None:
    """Whatever it is called: it would run before anybody asked whose code it is."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("rm", "mkdir", "cp", "ln"):
        (tools / name).symlink_to(shutil.which(name) or name)
    pip = importlib.util.find_spec("pip")
    assert pip is not None
    python = WITH_PIP.format(
        python=sys.executable, home=tmp_path / "gpu-advisor", pip=Path(str(pip.origin)).parent
    )
    (tools / "python3.11").write_text(python)
    (tools / "python3.11").chmod(0o755)
    ran = tmp_path / "ran"
    repo.commit({name: f"open({str(ran)!r}, 'a').write(__file__)\n" for name in SHADOWS})
    env = {"PYTHONPATH": str(repo.path), "PIP_INDEX_URL": (tmp_path / "none").as_uri()}
    runner = Runner(workspace=repo.path, temp=tmp_path, env={**env, "PATH": str(tools)})
    found = runner.call(skip_install=False, command="python bench.py")
    assert found.code == 2, found.log  # there is no package index
    assert (tmp_path / "gpu-advisor" / "venv" / "bin" / "python").exists()
    assert not ran.exists(), ran.read_text()


def test_the_lock_names_every_dependency_with_its_hashes() -> None:
    """Of ours, and theirs: pip is told to take nothing else."""
    (install,) = (
        step["run"] for step in steps_of(ACTION) if "-m pip install" in step.get("run", "")
    )
    for flag in ("--no-deps", "--require-hashes", "--only-binary :all:", "requirements.lock"):
        assert flag in install
    lock = (ROOT / "requirements.lock").read_text()
    hashes = r"((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)"
    entries = re.findall(rf"^([\w.-]+)==\S+.*\n{hashes}", lock, re.MULTILINE)
    names = {name for name, _ in entries}
    assert len(names) == len(re.findall(r"^\S+==", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=!~ ;]", each)[0] for each in project["dependencies"]}
    assert wanted <= names
    for name in wanted:  # what those need is locked too
        for line in metadata.requires(name) or ():
            if "extra ==" not in line and "python_version <" not in line:
                needed = re.split(r"[<>=!~ ;(\[]", line)[0]
                assert needed.lower().replace("_", "-") in names, line


@pytest.mark.slow
def test_the_first_step_installs_without_touching_any_torch(repo, tmp_path: Path) -> None:
    """From a package index, into an environment of its own; then a whole gate with it."""
    temp = tmp_path / "runner"
    temp.mkdir()
    repo.commit({"bench.py": STEADY.format(rate=100)})
    repo.commit({"x": "1"})
    found = Runner(workspace=repo.path, temp=temp).call(
        skip_install=False, command="python bench.py"
    )
    assert found.code == 0, found.log
    assert found.outputs["verdict"] == "pass"
    packages = [path.name for path in (temp / "gpu-advisor/venv/lib").rglob("site-packages/*")]
    assert "gpu-advisor.pth" in packages
    assert (temp / "gpu-advisor" / "app" / "advisor" / "__main__.py").is_file()
    assert "torch" not in packages
