"""The tutorial's commands do what the page says, in the page's order."""

from pathlib import Path

import pytest

from tests.support import pages

SHORT = {"--budget 3m": "--budget 90s", "--rounds 4": "--rounds 2"}
UNPROVEN = {"optimize": 5, "revert": 18, "compare": 3}
"""Exit codes where a busy machine proves nothing in so short a time."""


@pytest.mark.slow
@pytest.mark.nightly
def test_each_command_of_the_page_ends_well_and_the_config_comes_back(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    texts: dict[str, str] = {}
    for block, code, stdout, stderr in pages.run(pages.blocks("tutorial.md", "sh", SHORT), project):
        name = pages.command_of(block)
        assert code in {0, UNPROVEN.get(name, 0)}, block + stdout + stderr
        texts[name] = stdout
    assert "batch_size" in texts["inspect"]
    assert "pictures/s" in texts["profile"] or "samples/s" in texts["profile"]
    assert "against A" in texts["compare"]
    written = (project / "predict.yaml").read_text()
    assert written.startswith("# settings of predict.py\nbatch_size: 1   # pictures at once\n")
    assert (project / "report.md").read_text().startswith("# predict.yaml: ")
