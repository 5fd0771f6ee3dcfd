"""The installed wheel works without the source tree: it has its templates."""

import os
import sys
import zipfile
from pathlib import Path

from advisor.report import writing
from tests.report import examples
from tests.support.processes import Done, ran

RENDER = """
import sys; from pathlib import Path
sys.path.insert(0, sys.argv[1])
from advisor.report import writing
sys.stdout.write(writing.page(writing.load(Path(sys.argv[2]))))
"""


def run(*command: object, cwd: Path) -> Done:
    """Run where neither the source tree nor PYTHONPATH can help."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return ran(*map(str, command), cwd=cwd, env=environment, check=True)


def test_the_unpacked_wheel_renders_a_page(tmp_path, root) -> None:
    """A wheel of Python alone: installing it is unpacking it."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=root)
    (wheel,) = tmp_path.glob("gpu_advisor-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(package := tmp_path / "package")

    record = tmp_path / "report.json"
    record.write_text(writing.dump(examples.improved()), encoding="utf-8")
    done = run(sys.executable, "-c", RENDER, package, record, cwd=tmp_path)
    assert done.stdout == writing.page(examples.improved())
