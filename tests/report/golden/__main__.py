"""Render every golden report again."""

from tests.report import golden

for name in golden.NAMES:
    (golden.FOLDER / f"{name}.md").write_text(golden.markdown(name), encoding="utf-8")
