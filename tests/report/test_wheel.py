"""The installed package works without the source tree: the wheel has its templates."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from advisor.report import html, sections, writing
from tests.report import examples

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "advisor", "templates")

RENDER = """
import sys; from pathlib import Path
from advisor.report import html, sections, writing
sys.stdout.write(sections.render(writing.load(Path(sys.argv[1]))))
print("templates at", html.templates_folder(), file=sys.stderr)
"""


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run where neither the source tree nor PYTHONPATH can help."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )


def clean_environment(folder: Path) -> Path:
    """A virtual environment with this one's dependencies to import, and no gpu-advisor."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    # A plain path: an editable gpu-advisor there is found through a .pth, which is not read.
    link = Path(site.stdout.strip()) / "dependencies.pth"
    link.write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return python


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what is shipped, so that building leaves nothing in the repository."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_an_installed_package_renders_a_report(
    editable: bool, source: Path, tmp_path: Path
) -> None:
    python = clean_environment(tmp_path / "venv")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    if editable:
        run(*pip, "--no-build-isolation", "--editable", source, cwd=tmp_path)
        templates = source / "templates"
    else:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
        (wheel,) = tmp_path.glob("gpu_advisor-*.whl")
        with zipfile.ZipFile(wheel) as packed:  # of Python alone: installing it is no more
            packed.extractall(next((tmp_path / "venv").glob("lib/python*/site-packages")))
        shutil.rmtree(source)
        templates = tmp_path / "venv"

    record = tmp_path / "report.json"
    record.write_text(writing.dump(examples.improved()), encoding="utf-8")
    done = run(python, "-c", RENDER, record, cwd=tmp_path)
    assert done.stdout == sections.render(examples.improved())
    assert f"templates at {templates}" in done.stderr


def test_the_source_tree_uses_its_own_templates() -> None:
    assert html.templates_folder() == ROOT / "templates"
