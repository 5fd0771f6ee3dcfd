"""Nothing of the user's is ever lost: a rewrite can always be taken back, or says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from advisor import documents
from advisor.errors import ConfigMissingError, RevertConflictError
from advisor.model import Change, JsonScalar
from advisor.revert import revert
from advisor.state import state_folder
from advisor.versions import Versions

if TYPE_CHECKING:
    from pathlib import Path

ORIGINAL = b'{\r\n  "batch_size": 1, // keep this comment\r\n  "lr": 1e-3,\r\n  "workers": 12\r\n}'


def rewrite(config: Path, **values: JsonScalar) -> None:
    """What `optimize` does once a winner is proven."""
    document = documents.read(config)
    new = document.with_values(values)
    changes = [
        Change(
            document=str(config),
            path=path,
            kind="batch_size",
            knob_class="free",
            old=document.scalars[path].value,
            new=value,
        )
        for path, value in values.items()
    ]
    Versions(state_folder(config.parent), config).keep(document, new, changes)
    documents.write_atomic(config, new, document.raw)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "train.json"
    path.write_bytes(ORIGINAL)
    return path


def test_revert_gives_the_original_bytes(config: Path) -> None:
    rewrite(config, batch_size=8, workers=2)
    assert config.read_bytes() != ORIGINAL
    assert revert(config) == 1
    assert config.read_bytes() == ORIGINAL


def test_two_rewrites_go_back_one_at_a_time(config: Path) -> None:
    rewrite(config, batch_size=8)
    between = config.read_bytes()
    rewrite(config, batch_size=16)
    revert(config)
    assert config.read_bytes() == between
    revert(config)
    assert config.read_bytes() == ORIGINAL


def test_all_goes_back_to_the_first_original(config: Path) -> None:
    rewrite(config, batch_size=8)
    rewrite(config, batch_size=16, workers=0)
    assert revert(config, everything=True) == 2
    assert config.read_bytes() == ORIGINAL


def test_in_an_edited_file_only_our_spans_go_back(config: Path) -> None:
    rewrite(config, batch_size=8)
    config.write_bytes(config.read_bytes().replace(b'"lr": 1e-3', b'"lr": 5e-4, "new": true'))
    revert(config)
    assert config.read_bytes() == ORIGINAL.replace(b'"lr": 1e-3', b'"lr": 5e-4, "new": true')


def test_a_value_that_is_no_longer_ours_is_refused_with_a_diff(config: Path) -> None:
    rewrite(config, batch_size=8)
    edited = config.read_bytes().replace(b'"batch_size": 8', b'"batch_size": 24')
    config.write_bytes(edited)
    with pytest.raises(RevertConflictError, match=r"(?s)batch_size is now 24, we wrote 8.*\+.*24"):
        revert(config)
    assert config.read_bytes() == edited


def test_nothing_to_revert_is_an_error_not_a_success(config: Path) -> None:
    with pytest.raises(RevertConflictError, match="never rewritten"):
        revert(config)
    rewrite(config, batch_size=8)
    revert(config)
    with pytest.raises(RevertConflictError):
        revert(config)


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissingError, match=r"nowhere\.json"):
        revert(tmp_path / "nowhere.json")


def test_the_quality_reference_lives_as_long_as_the_config_descends_from_us(config: Path) -> None:
    """A tolerance is always taken from the original, so it cannot add up over repeated calls."""
    versions = Versions(state_folder(config.parent), config)
    versions.keep_quality_reference("key", {"rmse": 0.5})
    assert versions.quality_reference("key") is None
    rewrite(config, batch_size=8)
    assert versions.quality_reference("key") == {"rmse": 0.5}
    assert versions.quality_reference("another measure") is None
    revert(config)
    assert versions.quality_reference("key") is None
