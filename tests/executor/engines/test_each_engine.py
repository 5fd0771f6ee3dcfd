"""`--engine a,b` tunes one config for each node, and compares speed and price."""

import json
import sys

import pytest

from advisor.errors import EngineError, UsageError

PACED = """\
import json, os, sys, time
batch = json.load(open(sys.argv[1]))["batch_size"]
while True:
    time.sleep(float(os.environ.get("PACE", 1)) * (0.02 + 0.0002 * batch))
    print("done", batch, "signals", flush=True)
"""
SETTINGS = """\
[workload.lines]
config = "c.json"
command = "{python} lines.py {{config}}"
unit-regex = "done ([0-9]+) signals"
phase = "test"
[engine.large]
command = "env PACE=1"
price = 2.0
[engine.small]
command = "env PACE=3"
price = 0.1
[engine.away]
command = "false"
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "lines.py").write_text(PACED)
    (tmp_path / "c.json").write_text('{"batch_size": 1}\n')
    (tmp_path / "gpu-advisor.toml").write_text(SETTINGS.format(python=sys.executable))
    return tmp_path


@pytest.mark.slow
@pytest.mark.nightly
def test_each_node_gets_its_config_and_one_page_compares_them(project, gpu_advisor) -> None:
    """The original stays; a node that is not there costs its row only, and the exit code.

    A config is tuned over a pipe as it is here.
    """
    words = ("optimize", "c.json", "--window", "0.2s", "--budget", "90s")
    done = gpu_advisor.call(*words, "--engine", "local,large,away,small", "--json", cwd=project)
    assert done.returncode == EngineError.exit_code, done.stderr
    assert json.loads((project / "c.json").read_text()) == {"batch_size": 1}
    found = json.loads(done.stdout)["engines"]
    assert "No agent came up" in found["away"]["problem"]
    for name in ("local", "large", "small"):
        assert found[name]["verdict"] == "improved"
        assert found[name]["written"] == f"c.{name}.json"
        assert json.loads((project / f"c.{name}.json").read_text())["batch_size"] > 1
        assert (project / f"report.{name}.md").exists()
    assert found["local"]["price_of_1000"] is None
    assert found["large"]["price_of_1000"] > found["small"]["price_of_1000"]
    page = (project / "report.md").read_text()
    assert " is fastest: " in page
    assert "small is cheapest: " in page
    again = gpu_advisor.call(
        *words[:2], "--engine", "large,small", "--output", "x.json", cwd=project
    )
    assert again.returncode == UsageError.exit_code
