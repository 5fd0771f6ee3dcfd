"""Tiers: proven points, or a word that they were not; never a figure of the search."""

from __future__ import annotations

from advisor.report import rendering, tiers
from advisor.report.model import ChangeEntry
from tests.report import examples
from tests.report.test_report_rendering import section

FREE = "batch_size=8 num_workers=1"


def test_each_tier_is_what_was_proven_for_it() -> None:
    """Safe is the free part alone; fastest is all of it, with the gain over the original."""
    safe, balanced, fastest = tiers.tiers(examples.improved())
    assert (safe.tier, safe.label, safe.note) == ("safe", FREE, "proven")
    assert safe.gain == examples.improved().comparisons[0].gain
    assert (balanced.label, balanced.gain, balanced.note) == ("", None, "the same as safe")
    assert (fastest.label, fastest.note) == (f"{FREE} n_timestep=500", "written")
    assert fastest.gain == examples.improved().gain
    assert fastest.peak_mem_gib == 0.52
    body = section(rendering.render(examples.improved()), "How far results")
    assert "1.42x (1.35 to 1.49)" in body
    assert "2.91x (2.71 to 3.12)" in body


def test_what_was_proven_only_together_is_not_told_apart() -> None:
    """Precision and steps on top in one proof: balanced has no point of its own."""
    numeric = ChangeEntry(
        path="model.dtype",
        from_="fp32",
        to="bf16",
        class_="numeric",
        kind="precision",
        document="config/dem_completion.json",
    )
    report = examples.improved()
    last = report.comparisons[1]
    both = last.model_copy(update={"settings": {**(last.settings or {}), "model.dtype": "bf16"}})
    report = examples.improved(
        changes=[*report.changes, numeric], comparisons=[report.comparisons[0], both]
    )
    _, balanced, fastest = tiers.tiers(report)
    assert (balanced.label, balanced.gain) == ("", None)
    assert balanced.note == "not proven apart: `--tier balanced` does"
    assert fastest.gain == report.gain


def test_a_tier_beyond_the_one_asked_for_was_not_searched() -> None:
    calm = examples.improved()
    report = examples.improved(
        tier="safe",
        gain=calm.gain_free,
        changes=calm.changes[:2],
        comparisons=calm.comparisons[:1],
    )
    safe, balanced, fastest = tiers.tiers(report)
    assert (safe.label, safe.note, safe.gain) == (FREE, "written", calm.gain_free)
    for other in (balanced, fastest):
        assert (other.label, other.gain) == ("", None)
        assert other.note == f"not searched: `gpu-advisor optimize --tier {other.tier}` does"


def test_a_program_with_one_kind_of_change_has_no_tiers() -> None:
    for report in (examples.on_gpu(), examples.unchanged(), examples.partial()):
        assert tiers.tiers(report) == []
        assert "How far results" not in rendering.render(report)
