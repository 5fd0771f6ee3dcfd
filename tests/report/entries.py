"""Entries of a report, each with what a test gives of it: a decision, a change, a comparison."""

from __future__ import annotations

from advisor.report.model import ChangeEntry, ComparisonEntry, DecisionEntry, Gain, RoundEntry

DOCUMENT = "config/dem_completion.json"


def decision(
    path: str, kind: str, outcome: str, old: object, new: object, **rest: object
) -> DecisionEntry:
    """What was decided of a free knob, unless `rest` has another class."""
    return DecisionEntry(
        path=path,
        kind=kind,
        document=DOCUMENT,
        outcome=outcome,
        from_=old,
        to=new,
        **({"class_": "free", "why": ""} | rest),
    )


def change(
    path: str,
    kind: str,
    old: object,
    new: object,
    *,
    class_: str = "free",
    document: str = DOCUMENT,
) -> ChangeEntry:
    """A value that was written."""
    return ChangeEntry(path=path, kind=kind, document=document, class_=class_, from_=old, to=new)


PATHS = {
    "num_workers": "datasets.test.dataloader.args.num_workers",
    "batch_size": "datasets.test.dataloader.args.batch_size",
    "n_timestep": "model.beta_schedule.test.n_timestep",
}


def settings(label: str, paths: dict[str, str]) -> dict[str, object]:
    """What `batch_size=8 num_workers=1` sets, by path; the end of the schedule moves with the
    steps."""
    pairs = [word.split("=") for word in label.split() if "=" in word]
    found = {paths[name]: int(value) for name, value in pairs}
    if PATHS["n_timestep"] in found:
        found["model.beta_schedule.test.linear_end"] = 0.02
    return found


def comparison(
    before: str, after: str, old: float, new: float, gain: Gain, paths: dict[str, str]
) -> ComparisonEntry:
    """Six rounds that counted and one that others disturbed."""
    return ComparisonEntry(
        purpose="confirm",
        title=f"{after} against {before}",
        before=before,
        after=after,
        settings=settings(after, paths),
        gain=gain,
        rounds=[
            RoundEntry(
                round=number,
                before=old + number / 1000,
                after=new + number / 500,
                disturbed="after" if number == 3 else None,
                counted=number != 3,
            )
            for number in range(1, 8)
        ],
    )
