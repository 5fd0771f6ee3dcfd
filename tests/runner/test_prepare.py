"""The job of a trial: the candidate beside the original, argv that names it, outputs apart."""

import json
import os
from pathlib import Path

import pytest

from advisor.config.originals import candidate_path
from advisor.errors import ConfigReadOnlyError
from advisor.model import MeasurePlan, TrialFile
from advisor.runner.job import prepare, replace_paths
from advisor.runner.trial import run_trial
from tests.runner.conftest import measured


@pytest.fixture
def config(work: Path) -> Path:
    """A config of the user's in a folder of the working directory."""
    path = work / "config" / "dem.json"
    path.parent.mkdir()
    path.write_text("{}")
    return path


NEW = "config/.dem.gpu-advisor-001.json"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("config/dem.json", NEW),
        ("./config/dem.json", f"./{NEW}"),
        ("config/../config/dem.json", "config/../config/.dem.gpu-advisor-001.json"),
        ("--config=config/dem.json", f"--config={NEW}"),
        ("run.config=config/dem.json", f"run.config={NEW}"),
        ("base.json,config/dem.json", f"base.json,{NEW}"),
        ("python run.py -c 'config/dem.json' && echo ok", f"python run.py -c '{NEW}' && echo ok"),
        ("config/dem.json.bak", "config/dem.json.bak"),
        ("dem.json", "dem.json"),
        ("config", "config"),
        ("", ""),
        ("x" * 5000, "x" * 5000),
    ],
)
def test_tokens_that_name_the_config_name_the_candidate(token, expected, config, work) -> None:
    """Whole tokens and parts of tokens, spelled as the user spelled them; nothing else moves."""
    copies = {str(config): candidate_path(str(config), "001")}
    assert replace_paths([token], str(work), copies) == (expected,)


def test_paths_are_recognised_by_the_file_they_lead_to(config, work) -> None:
    """An absolute path, a link, and a name with spaces as a token or behind an equals sign."""
    spaced = work / "my config.json"
    spaced.write_text("{}")
    (work / "current.json").symlink_to(config)
    copies = {str(each): candidate_path(str(each), "001") for each in (config, spaced)}
    tokens = [str(config), "current.json", "my config.json", "--cfg=my config.json"]
    beside = ".my config.gpu-advisor-001.json"
    expected = (str(work / NEW), str(work / NEW), beside, f"--cfg={beside}")
    assert replace_paths(tokens, str(work), copies) == expected


def test_the_program_reads_the_candidate_beside_the_original(
    make_trial, config, work, by_names
) -> None:
    """Same folder and mode; the original is untouched, and the candidate is gone afterwards."""
    config.chmod(0o640)
    trial = make_trial(
        "sh", "-c", "cat config/dem.json; stat -c ' %a' config/.dem*; cat config/dem.json > seen",
        files=(TrialFile(original=str(config), content=b'{"batch": 8}'),),
        plan=MeasurePlan(mode="whole"),
    )  # fmt: skip
    outcome = measured(trial)
    assert outcome.stdout_tail == '{"batch": 8} 640\n'
    assert (work / "seen").read_text() == '{"batch": 8}'
    assert config.read_text() == "{}"
    assert [path.name for path in config.parent.iterdir()] == ["dem.json"]


def test_a_config_in_a_folder_that_takes_no_file_is_one_clear_error(make_trial) -> None:
    """It names the candidate's path and what to do."""
    file = TrialFile(original="no-such-folder/a.json", content=b"{}")
    with pytest.raises(ConfigReadOnlyError, match=r"no-such-folder.*Make that folder writable"):
        run_trial(make_trial("true", files=(file,)))


def test_the_environment_is_the_users_with_trackers_apart(make_trial) -> None:
    """Trackers are offline; one that is switched off stays off. Paths are only put in front of."""
    given = (("WANDB_MODE", "online"), ("CLEARML_OFFLINE_MODE", "disabled"), ("FLAVOUR", "mint"))
    trial = make_trial("true", env=given)
    mine = {"PATH": "/mine/bin:/bin", "PYTHONPATH": "/mine/lib", "SWANLAB_MODE": "disabled"}
    env = dict(prepare(trial, mine).env)
    assert env["WANDB_MODE"] == "offline"
    assert env["SWANLAB_MODE"] == "disabled"
    assert env["CLEARML_OFFLINE_MODE"] == "disabled", "a workload's own variables count too"
    assert env["MLFLOW_TRACKING_URI"].startswith(f"file://{trial.scratch}")
    assert env["FLAVOUR"] == "mint"
    site, *rest = env["PYTHONPATH"].split(":")
    shims, *others = env["PATH"].split(":")
    assert rest == ["/mine/lib"]
    assert others == ["/mine/bin", "/bin"]
    assert Path(site, "sitecustomize.py").is_file()
    assert os.access(Path(shims, "python3"), os.X_OK)


def test_a_deep_scratch_still_has_room_for_sockets(make_trial, tmp_path) -> None:
    """A socket's path has 107 characters; multiprocessing makes some under TMPDIR."""
    deep = tmp_path / ("deep" * 30)
    code = (
        "import tempfile, socket, os; d = tempfile.mkdtemp(prefix='pymp-');"
        "socket.socket(socket.AF_UNIX).bind(os.path.join(d, 'listener-12345678')); print('bound')"
    )
    trial = make_trial("python3", "-c", code, scratch=str(deep), plan=MeasurePlan(mode="whole"))
    outcome = measured(trial)
    assert outcome.stdout_tail == "bound\n"
    assert not Path(dict(prepare(trial).env)["TMPDIR"]).exists()


def test_what_is_compiled_is_kept_for_the_trials_of_a_call(
    make_trial, tmp_path, monkeypatch
) -> None:
    """Inductor compiles below TMPDIR, of which each trial has its own: one folder a call instead.
    Where the user has one, that is used."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    caches = str(tmp_path / "caches")
    trials = [make_trial("x", scratch=str(tmp_path / name), caches=caches) for name in "ab"]
    first, second = (dict(prepare(trial).env) for trial in trials)
    assert first["TMPDIR"] != second["TMPDIR"]
    assert first["TORCHINDUCTOR_CACHE_DIR"] == second["TORCHINDUCTOR_CACHE_DIR"]
    assert first["TORCHINDUCTOR_CACHE_DIR"].startswith(str(Path(caches).resolve()))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    own = dict(prepare(trials[0]).env)
    assert own["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)


def test_the_probe_is_told_the_plan(make_trial, work) -> None:
    """spec.json holds what the probe needs; with a pattern of the user's it does not stop."""
    trial = make_trial("true", plan=MeasurePlan(unit_regex="^done"))
    spec = json.loads(prepare(trial).spec)
    assert spec["plan"]["mode"] == "observe"
    assert spec["protect"] == str(work)
    assert spec["allow_writes"] is False
