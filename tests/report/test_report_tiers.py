"""Tiers: proven points, or a word that they were not; never a figure of the search."""

from __future__ import annotations

from advisor.report import rendering, tiers
from tests.report import examples
from tests.report.entries import change, comparison
from tests.report.reading import section

FREE = "batch_size=8 num_workers=1"


def test_each_tier_is_what_was_proven_for_it() -> None:
    """Safe is the free part alone; fastest is all of it, with the gain over the original."""
    safe, balanced, fastest = tiers.tiers(examples.improved())
    assert (safe.tier, safe.label) == ("safe", FREE)
    assert safe.note == "proven; `--tier safe` writes it"
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
    numeric = change("model.dtype", "precision", "fp32", "bf16", class_="numeric")
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


def test_smaller_batches_are_points_of_the_lower_tiers() -> None:
    """Proven by pairs of their own, with their memory; one that is not proven says so."""
    calm = examples.improved()
    only = calm.changes[:1]
    path = only[0].path
    proof = calm.comparisons[0].model_copy(
        update={"after": "batch_size=8", "settings": {path: only[0].to}}
    )
    pairs = proof.model_copy(
        update={"purpose": "tier", "tier": "safe", "after": "batch_size=4", "settings": {path: 4}}
    )
    trials = [
        calm.trials[0].model_copy(update={"label": label, "peak_mem_gib": gib, "settings": None})
        for label, gib in (("batch_size=4", 1.0), ("batch_size=8", 2.0))
    ]
    report = examples.improved(
        changes=only,
        gain=calm.gain_free,
        gain_free=calm.gain_free,
        gain_quality=None,
        comparisons=[proof, pairs],
        trials=trials,
        lower_tiers={"safe": "batch_size=4", "balanced": "batch_size=6"},
        target=examples.on_gpu().target,
    )
    safe, balanced, fastest = tiers.tiers(report)
    assert (safe.label, safe.gain) == ("batch_size=4", pairs.gain)
    assert safe.note == "proven; `--tier safe` writes it"
    assert safe.risk.startswith("results do not change; ")
    assert (balanced.label, balanced.gain) == ("batch_size=6", None)
    assert "not proven in this budget" in balanced.note
    assert (fastest.label, fastest.note) == ("batch_size=8", "written")
    assert safe.margin is not None
    assert fastest.margin is not None
    assert safe.margin > fastest.margin


def test_a_program_with_one_kind_of_change_has_no_tiers() -> None:
    for report in (examples.on_gpu(), examples.unchanged(), examples.partial()):
        assert tiers.tiers(report) == []
        assert "How far results" not in rendering.render(report)


def test_rates_of_tiers_are_rates_whatever_decided() -> None:
    """Where latency decides, the rounds hold milliseconds, which are no tiles a second."""
    calm = examples.improved()
    free, traded = calm.comparisons
    later = traded.model_copy(
        update={
            "rounds": [
                each.model_copy(update={"before": 1961.0, "after": 672.0}) for each in traded.rounds
            ]
        }
    )
    report = examples.improved(
        objective="latency", objective_unit="ms/tile", comparisons=[free, later]
    )
    *_, fastest = tiers.tiers(report)
    assert fastest.units_per_s is not None
    assert 1.4 < fastest.units_per_s < 1.6


def test_a_batch_that_is_made_up_for_is_told_alike_wherever_it_is_told() -> None:
    """One setting is no change of the optimisation in one table and no change in the next."""
    label = "batch_size=32 accumulation=1"
    paths = {"batch_size": "batch_size", "accumulation": "accumulation"}
    gain = examples.improved().gain
    assert gain is not None
    changes = [
        change(path, kind, old, new, class_="training", document="a.yaml")
        for path, old, new, kind in (
            ("batch_size", 4, 32, "batch_size"),
            ("accumulation", 8, 1, "grad_accum"),
        )
    ]
    report = examples.improved(
        changes=changes,
        lower_tiers={"safe": "batch_size=16"},
        comparisons=[comparison("original", label, 1.0, 2.9, gain, paths)],
    )
    text = rendering.render(report)
    assert text.count("an update has as many samples as before") == 3
    assert "optimisation changes" not in text
    assert "results do not change" not in text
    wider = [changes[0].model_copy(update={"class_": "quality"}), changes[1]]
    text = rendering.render(report.model_copy(update={"changes": wider}))
    assert "training: optimisation changes" in text
