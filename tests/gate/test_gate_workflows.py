"""action.yml and the workflows as they are written: linted, pinned, with few rights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import __version__
from tests.gate.repos import ROOT
from tests.gate.runner import ACTION, OUTPUTS, load, steps_of

WORKFLOWS = sorted(
    [
        *(ROOT / ".github" / "workflows").glob("*.yml"),
        *(ROOT / "docs/examples/workflows").glob("*.yml"),
    ]
)


def tool(name: str) -> str:
    found = shutil.which(
        name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if found is None:
        pytest.skip(f"{name} is not installed: pip install gpu-advisor[dev]")
    return found


def test_the_schemas_hold() -> None:
    for schema, files in (("actions", [ACTION]), ("workflows", WORKFLOWS)):
        done = subprocess.run(
            [tool("check-jsonschema"), "--builtin-schema", f"vendor.github-{schema}", *files],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [tool("zizmor"), "--offline", "--persona=auditor", "--format=plain", ACTION, *WORKFLOWS],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "No findings to report" in done.stdout


def test_actionlint_finds_nothing() -> None:
    """Nor in the workflow that the guide begins with."""
    config = ("-no-color", "-config-file", str(ROOT / ".github" / "actionlint.yaml"))
    lint = (tool("actionlint"), *config, "-shellcheck", tool("shellcheck"))
    guide = (ROOT / "docs" / "gate.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (shown,) = (text for text in examples if "jobs:" in text)
    for files, given in ((list(map(str, WORKFLOWS)), ""), (["-"], shown)):
        done = subprocess.run(
            [*lint, *files], input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    """In the steps of the action; those of workflows actionlint shows to it."""
    scripts = []
    for step in (step for step in steps_of(ACTION) if "run" in step):
        scripts.append(tmp_path / step["name"].replace(" ", "-"))
        scripts[-1].write_text(step["run"])
    done = subprocess.run(
        [tool("shellcheck"), "--shell=bash", *scripts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.name)
def test_no_expression_reaches_a_shell_and_every_use_is_pinned(path: Path) -> None:
    for step in steps_of(path):
        assert "${{" not in step.get("run", "")
        if step.get("uses", "./") not in {"./", f"gpu-advisor/gpu-advisor@v{__version__}"}:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
    assert 40 * "0" not in path.read_text()


def test_workflows_hold_no_more_than_they_need() -> None:
    for path in WORKFLOWS:
        content = load(path)
        assert content["permissions"] == {}
        triggers = content[True]  # YAML reads the key `on` as a boolean
        assert "pull_request_target" not in triggers
        if "workflow_run" in triggers:
            assert not any("checkout" in step.get("uses", "") for step in steps_of(path))
        for step in steps_of(path):
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_every_input_has_a_text_as_default_and_every_output_a_value() -> None:
    content = load(ACTION)
    for name, entry in content["inputs"].items():
        assert isinstance(entry["default"], str), name
        assert entry["description"]
    assert set(content["outputs"]) == OUTPUTS
    documented = (ROOT / "docs" / "gate.md").read_text()
    for name in [*content["inputs"], *content["outputs"]]:
        assert f"`{name}`" in documented, name
