"""Nothing of the user's is ever lost: a rewrite can always be taken back, or says why not."""

import os
import random
import stat
import tempfile
from pathlib import Path

import pytest

from advisor import config as documents
from advisor.commands.revert import revert
from advisor.config.originals import Versions, recover
from advisor.errors import (
    ConfigMissingError,
    RevertConflictError,
    StateBusyError,
    StateUnusableError,
)
from advisor.model import JsonScalar
from advisor.state import state_folder
from tests.runs import a_change
from tests.support import kills

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a file system asks no disk to keep up with a thousand syncs."""
ORIGINAL = b'{\r\n  "batch_size": 1, // keep this comment\r\n  "lr": 1e-3,\r\n  "workers": 12\r\n}'


def rewrite(config: Path, **values: JsonScalar) -> None:
    """What `optimize` does once a winner is proven."""
    document = documents.read(config)
    keep_only(config, **values)
    documents.write_atomic(config, document.with_values(values), document.raw)


def keep_only(config: Path, **values: JsonScalar) -> Versions:
    """A call that was killed after it kept the original and before it replaced the config."""
    document = documents.read(config)
    changes = [
        a_change(path, document=str(config), old=document.scalars[path].value, new=value)
        for path, value in values.items()
    ]
    versions = Versions(state_folder(config.parent), config)
    versions.keep(document, document.with_values(values), changes)
    return versions


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "train.json"
    path.write_bytes(ORIGINAL)
    return path


def test_one_rewrite_or_all_of_them_go_back_byte_for_byte(config) -> None:
    """Originals are open to their user alone."""
    config.chmod(0o600)
    for everything in (False, True):
        rewrite(config, batch_size=8)
        tuned = config.read_bytes()
        rewrite(config, batch_size=16, workers=0)
        assert revert([config], everything=everything) == {config: 1 + everything}
        assert config.read_bytes() == (ORIGINAL if everything else tuned)
        if not everything:
            (kept,) = state_folder(config.parent).glob("versions/*/*.json")
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            revert([config])


def test_in_an_edited_file_only_our_spans_go_back(config) -> None:
    rewrite(config, batch_size=8)
    config.write_bytes(config.read_bytes().replace(b'"lr": 1e-3', b'"lr": 5e-4, "new": true'))
    revert([config])
    assert config.read_bytes() == ORIGINAL.replace(b'"lr": 1e-3', b'"lr": 5e-4, "new": true')


def test_a_value_that_is_no_longer_ours_is_refused_with_a_diff(config) -> None:
    config.write_bytes(ORIGINAL.replace(b'"lr": 1e-3', b'"api_key": "hunter2hunter2"'))
    rewrite(config, batch_size=8)
    edited = config.read_bytes().replace(b'"batch_size": 8', b'"batch_size": 24')
    config.write_bytes(edited)
    match = r"(?s)batch_size is now 24, we wrote 8.*\+.*24"
    with pytest.raises(RevertConflictError, match=match) as caught:
        revert([config])
    assert "hunter2" not in str(caught.value)
    assert config.read_bytes() == edited


def test_all_of_them_go_back_or_none(config) -> None:
    """A conflict in an earlier rewrite leaves the later one in the file, as its message says."""
    rewrite(config, batch_size=8)
    rewrite(config, workers=2)
    edited = config.read_bytes().replace(b'"batch_size": 8', b'"batch_size": 24')
    config.write_bytes(edited)
    with pytest.raises(RevertConflictError, match="Nothing was changed"):
        revert([config], everything=True)
    assert config.read_bytes() == edited
    assert revert([config]) == {config: 1}
    assert b'"workers": 12' in config.read_bytes()


def test_a_rewrite_that_was_never_put_in_place_is_no_edit_and_hides_none(config) -> None:
    """Even when the config was edited since."""
    keep_only(config, batch_size=8)
    assert revert([config]) == {config: 0}
    assert config.read_bytes() == ORIGINAL
    rewrite(config, batch_size=8)
    keep_only(config, batch_size=16)
    config.write_bytes(config.read_bytes().replace(b"1e-3", b"5e-4"))
    assert revert([config]) == {config: 1}
    assert config.read_bytes() == ORIGINAL.replace(b"1e-3", b"5e-4")


@pytest.mark.parametrize("content", [b"{", b'{"changes": 3}'])
def test_a_record_that_cannot_be_read_breaks_no_call(config, content) -> None:
    rewrite(config, batch_size=8)
    versions = keep_only(config, batch_size=16)
    (newest,) = state_folder(config.parent).glob("versions/*/0002.json")
    newest.write_bytes(content)
    assert [version.number for version in versions.all()] == [1]
    rewrite(config, workers=2)
    assert revert([config], everything=True) == {config: 2}
    assert config.read_bytes() == ORIGINAL


def test_what_a_killed_call_left_beside_the_config_goes_and_nothing_else(config) -> None:
    """Candidates of dead trials, and files of a replacement that was not finished."""
    rewrite(config, batch_size=8)
    mine = [".train.gpu-advisor-notes.json", ".train.json.swp", ".gpu-advisor-x.draft"]
    for name in [".train.gpu-advisor-002.json", *mine]:
        (config.parent / name).write_text("{}")
    assert recover(config) == []
    names = {path.name for path in config.parent.iterdir()}
    assert names == {config.name, ".gpu-advisor", *mine}


def test_two_calls_do_not_rewrite_one_config_at_once(config) -> None:
    versions = Versions(state_folder(config.parent), config)
    rewrite(config, batch_size=8)
    with versions.held(), pytest.raises(StateBusyError, match="Another gpu-advisor works on"):
        revert([config])


@pytest.mark.parametrize(
    ("every", "least"),
    [(21, 40), pytest.param(1, 800, marks=[pytest.mark.slow, pytest.mark.nightly])],
)
def test_killed_at_any_line_the_config_is_whole_and_the_next_call_right(every, least) -> None:
    """Lines of the write and of the revert."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        assert kills.kill_at_lines(Path(folder, "k"), every=every) >= least


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
def test_on_a_full_disk_the_config_is_whole_and_the_next_call_right(tmp_path) -> None:
    """With no room left, with one page, with two, ..."""
    done = kills.on_a_full_disk(tmp_path)
    assert done["refused"]
    assert done["done"]


def test_an_edit_at_the_moment_of_the_write_is_never_lost() -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        kills.save_amid_rewrites(18, Path(folder, "e"), random.Random(os.environ.get("SEED", "")))


def test_nothing_to_revert_is_an_error_not_a_success(config) -> None:
    with pytest.raises(RevertConflictError, match="never rewritten"):
        revert([config])
    with pytest.raises(ConfigMissingError, match=r"nowhere\.json"):
        revert([config.with_name("nowhere.json")])
    rewrite(config, batch_size=8)
    revert([config])
    with pytest.raises(RevertConflictError):
        revert([config])


QUALITY = """
[workload.a]
command = "sh run.sh c.json"
config = "c.json"
unit-regex = "done"
[workload.a.quality.loss]
pattern = "loss ([0-9.]+)"
tolerance = "5%"
"""


def test_a_version_store_that_cannot_be_written_is_refused_before_the_first_trial(
    tmp_path, gpu_advisor
) -> None:
    """Else the search would end without a report and without a config."""
    (tmp_path / "c.json").write_text('{"batch_size": 1}')
    (tmp_path / "run.sh").write_text("while true; do echo done; echo loss 1; sleep 0.1; done")
    (tmp_path / "gpu-advisor.toml").write_text(QUALITY)
    versions = Versions(state_folder(tmp_path), tmp_path / "c.json")
    with versions.held():
        pass
    (place,) = state_folder(tmp_path).glob("versions/*/quality")
    place.rmdir()
    place.write_text("a file")
    done = gpu_advisor.call("optimize", "c.json", "--budget", "5s", cwd=tmp_path)
    assert done.returncode == StateUnusableError.exit_code, done.stderr
    assert f"{place} cannot hold originals" in done.stderr
    assert "trial 1" not in done.stderr


def test_the_quality_reference_lives_as_long_as_the_config_descends_from_us(config) -> None:
    """A tolerance is always taken from the original, so it cannot add up over repeated calls."""
    versions = Versions(state_folder(config.parent), config)
    versions.keep_quality_reference("key", {"rmse": 0.5})
    assert versions.quality_reference("key") is None
    rewrite(config, batch_size=8)
    assert versions.quality_reference("key") == {"rmse": 0.5}
    assert versions.quality_reference("another measure") is None
    revert([config])
    assert versions.quality_reference("key") is None
