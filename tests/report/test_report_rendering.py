"""What a reader of report.md must find, and must never find."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from advisor.model import Disturbance, Interval
from advisor.report import rendering, sentences, surroundings, view
from advisor.report.model import Bottleneck, Gain, Report, TargetEntry
from tests.report import examples
from tests.report.hostile import hostile
from tests.report.reading import PARSER, first_screen, section
from tests.runs import a_run

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = re.compile(r"([\d,.]+) (us|ms|s|min|h|d)\b(?: (\d+) (s|min|h)\b)?")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def held_numbers(part: Any) -> set[float]:
    """Every number in report.json, those inside its sentences too."""
    if isinstance(part, dict):
        return set().union(*map(held_numbers, part.values()), set())
    if isinstance(part, list):
        return set().union(*map(held_numbers, part), {float(len(part))})
    if isinstance(part, str):
        return {float(found.replace(",", "")) for found in NUMBER.findall(part)}
    return {float(part)} if isinstance(part, (int, float)) else set()


@examples.every_example
def test_nothing_unmeasured_is_shown_as_a_value(make: Any) -> None:
    """`None`, `nan`, `null` and unfilled places never reach the reader."""
    text = rendering.render(make(), "figures")
    for word in ("None", "nan", "NaN", "null", "inf", "Undefined", "{{", "{%", "{#"):
        assert not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text), word


@examples.every_example
def test_the_first_screen_is_short(make: Any) -> None:
    assert len(first_screen(rendering.render(make())).strip().splitlines()) <= 42


@examples.every_example
def test_every_number_of_the_first_screen_is_in_the_report(make: Any) -> None:
    """Or follows from it by one division: the time of a unit, of a thousand, of ten thousand."""
    report = make()
    held = held_numbers(json.loads(report.model_dump_json(by_alias=True)))
    held |= {100 * number for number in held} | {1_000.0, 10_000.0, float(len(report.trials))}
    times = {
        count / side.units_per_s + start
        for side in (report.before, report.after)
        if side.units_per_s
        for count in (1, 1_000, 10_000)
        for start in (0.0, side.startup_s or 0.0)
    }

    screen = first_screen(rendering.render(report))
    for found in DURATION.finditer(screen):
        seconds = float(found[1].replace(",", "")) * SECONDS[found[2]]
        seconds += float(found[3] or 0) * SECONDS[found[4] or "s"]
        known = times | {number * SECONDS[found[2]] for number in held}
        assert any(abs(seconds - each) <= 0.03 * each for each in known), found[0]
    for shown in NUMBER.findall(DURATION.sub("", screen)):
        number, decimals = float(shown.replace(",", "")), len(shown.partition(".")[2])
        assert any(abs(number - each) <= 0.501 * 10**-decimals for each in held), shown


@examples.every_example
def test_the_figures_of_the_headline_reach_the_reader(make: Any) -> None:
    """Another rate, gain or memory in the JSON gives another first screen."""
    report = make()
    screen = first_screen(rendering.render(report))
    sides = {"before": ("units_per_s", "peak_mem_gib")}
    if report.changes:
        sides["after"] = ("units_per_s", "peak_mem_gib", "quality")
    for name, fields in sides.items():
        side = getattr(report, name)
        for field in fields:
            value = getattr(side, field)
            other = {k: v * 1.5 for k, v in value.items()} if field == "quality" else value * 1.5
            if value:
                moved = report.model_copy(update={name: side.model_copy(update={field: other})})
                assert first_screen(rendering.render(moved)) != screen, f"{name}.{field}"


def test_the_first_screen_tells_what_changed_gained_cost_and_how_to_undo_it() -> None:
    report = examples.improved()
    screen = first_screen(rendering.render(report))
    for change in report.changes:
        assert change.path in screen
        assert f"`{json.dumps(change.from_)}` | `{json.dumps(change.to)}`" in screen
    assert "1.42x as many tiles a second free, 2.91x with" in screen.splitlines()[0]
    assert "2.71 to 3.12" in screen
    assert "1.42x (1.35 to 1.49)" in screen  # the free settings alone
    assert "2.05x (1.97 to 2.13)" in screen  # what was traded for, apart
    assert "peak memory 0.40 to 0.52 GiB; rmse 0.5124 to 0.5181 (limit 0.5226)" in screen
    assert report.how_to_run in screen
    assert report.how_to_revert in screen
    assert "tuned for this CPU" in screen


def test_gains_of_the_parts_are_named_by_their_class() -> None:
    """A changed training batch is not called free, and one kind of change needs no parts."""
    assert "settings alone" not in first_screen(rendering.render(examples.on_gpu()))
    training = examples.on_gpu().changes[1]
    report = examples.improved(changes=[*examples.improved().changes, training])
    assert "The free and training settings alone" in first_screen(rendering.render(report))
    assert "The quality settings on top of those" in first_screen(rendering.render(report))


def test_unchanged_says_that_the_file_is_as_it_was() -> None:
    text = rendering.render(examples.unchanged())
    screen = first_screen(text)
    assert f"**Unchanged: `{examples.unchanged().config}` is byte for byte as it was.**" in screen
    assert "0.98 to 1.04" in screen
    assert "measured on this CPU" in screen
    assert "tuned for" not in screen
    assert "| before" not in screen
    assert "undo" not in screen


def test_partial_says_what_is_missing() -> None:
    report = examples.partial()
    screen = first_screen(rendering.render(report))
    assert "**Partial: " in screen
    assert f"`{report.config}` was not changed" in screen
    assert "the proof in interleaved rounds; where the time goes" in screen
    assert "5 processes" in screen


def test_a_dry_run_is_named_so() -> None:
    text = rendering.render(examples.improved(dry_run=True, written=None))
    assert "not written (dry run)" in text.splitlines()[0]


def test_what_was_not_measured_says_so() -> None:
    report = examples.partial()
    assert "| CPU utilisation | not measured |" in rendering.render(report)


def test_two_bottlenecks_give_two_texts_and_add_nothing() -> None:
    """The section's sentences are those of report.json, each with a number of the run."""
    heading = "Where the time goes"
    bodies = []
    for report in (examples.improved(), examples.on_gpu()):
        body = section(rendering.render(report), heading)
        said = [line for line in body.splitlines() if line and not line.startswith("|")]
        known = {
            sentence
            for found in (report.bottleneck_before, report.bottleneck_after)
            if found
            for sentence in (found.sentence, *found.evidence)
        }
        assert {re.sub(r"^(- |Before: |After: )", "", line) for line in said} == known
        assert all(NUMBER.search(line) for line in said)
        bodies.append(body)
    assert bodies[0] != bodies[1]


def test_knobs_left_alone_are_listed_with_the_reason() -> None:
    report = examples.improved()
    body = section(rendering.render(report), "Left alone")
    for entry in view.left_alone(report):
        assert entry.path in body
        assert entry.why.split("`")[0] in body
    assert body.index("sample_num") < body.index("pin_memory")  # ignored comes first


def test_every_trial_is_in_the_table() -> None:
    report = examples.improved()
    body = section(rendering.render(report), "Every trial")
    assert all(f"\n| {trial.id} |" in body for trial in report.trials)
    assert "host-oom" in body
    assert "at step 1" in body  # the last lines of the log, in full


def test_figures_are_linked_with_text_for_those_who_cannot_see_them() -> None:
    text = rendering.render(examples.improved(), "my report-figures")
    links = re.findall(r"!\[([^\n]*)\]\((\S+)\)", text)
    assert {target for _, target in links} == {
        f"my%20report-figures/{name}.svg" for name in ("batch", "time", "quality", "trials")
    }
    assert all(NUMBER.search(alt) for alt, _ in links)


def test_without_figures_one_line_says_how_to_get_them() -> None:
    text = rendering.render(examples.improved(), None)
    assert "![" not in text
    assert 'pip install "gpu-advisor[plots]"' in section(text, "Figures")


def test_a_patch_is_shown_in_full() -> None:
    text = rendering.render(examples.on_gpu())
    assert "train.py:88" in text
    assert "  +model.to(device, memory_format=torch.channels_last)" in text
    assert "1.12x (1.09 to 1.15)" in text


def test_what_waits_for_a_decision_stands_on_the_first_screen() -> None:
    """Proven advice is not buried; what has no interval stays in its section."""
    first = first_screen(rendering.render(examples.on_gpu()))
    assert (
        "Yours to decide, not written: **channels_last**, 1.12x (1.09 to 1.15), 6 pairs." in first
    )
    assert "Disk" not in first


@examples.every_example
@pytest.mark.parametrize("form", ["report", "summary"])
def test_strings_of_the_users_cannot_become_markup(make: Any, form: str) -> None:
    """No heading, link, image, HTML or code block beyond those of the template."""

    def parts(report: Report) -> dict[str, list[str]]:
        text = (
            rendering.render(report, "figures") if form == "report" else rendering.summary(report)
        )
        tokens = PARSER.parse(text)
        inline = [child for token in tokens for child in token.children or ()]
        return {
            "headings": [t.tag for t in tokens if t.type == "heading_open"],
            "html": [t.content for t in tokens if t.type == "html_block"]
            + [child.content for child in inline if child.type == "html_inline"],
            "links": [child.type for child in inline if child.type == "link_open"],
            "images": [str(child.attrs["src"]) for child in inline if child.type == "image"],
            "blocks": [t.info for t in tokens if t.type in ("fence", "code_block")],
        }

    report = make()
    # Long details get a block of their own; the harmless ones are long as well.
    trials = [trial.model_copy(update={"detail": f"{trial.detail}x\ny"}) for trial in report.trials]
    report = report.model_copy(update={"trials": trials})
    calm, found = parts(report), parts(hostile(report))
    assert found["headings"] == calm["headings"]
    assert found["blocks"] == calm["blocks"]
    assert found["links"] == []
    assert all(re.fullmatch(r"figures/\w+\.svg", source) for source in found["images"])
    assert not any(
        re.sub(r"</?details>|<summary>[^<]*</summary>|<br>|\s", "", html) for html in found["html"]
    )


def test_the_templates_escape_without_being_asked() -> None:
    """A template that forgets a filter is still safe."""
    found = rendering.environment().from_string("{{ bad }} {{ absent }} {{ number }}")
    shown = found.render(bad="<b> *x* | [y](z)", absent=None, number=1.23456)
    assert shown == "&lt;b&gt; \\*x\\* | \\[y\\](z) not measured 1.23"


def test_the_summary_is_the_first_screen() -> None:
    summary = rendering.summary(examples.improved())
    assert "1.42x as many tiles a second free, 2.91x with" in summary
    assert "gpu-advisor revert" in summary
    assert len(summary.encode()) < 64 * 1024


def test_rendering_is_pure() -> None:
    first = rendering.render(examples.improved(), "f")
    assert rendering.render(examples.improved(), "f") == first


def test_another_unit_and_bottleneck_are_named() -> None:
    calm = Bottleneck(name="disk", sentence="41 % of the time is reading tiles.", evidence=[])
    text = rendering.render(examples.improved(unit="query", bottleneck_before=calm))
    assert "| queries/s |" in text
    assert "41 % of the time is reading tiles." in text


def test_the_price_of_a_thousand_units_is_told_where_an_hour_has_one() -> None:
    """3.60 an hour are 0.001 a second: the time of 1,000 samples in thousandths."""
    label = "cost of 1,000 samples at 3.6 an hour"
    rows = {row.label: row for row in view.measures(examples.on_gpu(price_per_hour=3.6))}
    report = examples.on_gpu()
    assert report.before.startup_s is not None
    assert report.before.units_per_s is not None
    seconds = 1000 / report.before.units_per_s + report.before.startup_s
    assert float(rows[label].before) == pytest.approx(seconds / 1000, rel=0.005)
    assert label not in {row.label for row in view.measures(report)}


@pytest.mark.parametrize(("proven", "said"), [(True, False), (False, True)])
def test_a_quality_that_was_not_proven_is_said_in_the_title(proven: bool, said: bool) -> None:
    """Beside what costs nothing, which leads."""
    report = examples.improved(quality_proven=proven)
    title = rendering.render(report).splitlines()[0]
    assert title.index("free") < title.index("n_timestep 500")
    assert ("(quality not proven)" in title) is said


def test_what_confirmed_stands_in_the_table_with_its_bounds() -> None:
    """Before what chose, whatever came later; the row's limit is that of the confirming runs."""
    chosen = examples.improved().quality
    confirmed = chosen[0].model_copy(
        update={"stage": "confirmed", "low": 0.5101, "high": 0.5203, "limit": 0.5255, "runs": 4}
    )
    report = examples.improved(quality=[*chosen, confirmed, *chosen[2:]])
    text = rendering.render(report)
    assert "| rmse (limit 0.5255) | 0.5124 | 0.5181 (0.5101 to 0.5203) |" in text
    assert "confirmed, 4 pairs" in section(text, "Quality")
    assert "out of tolerance when chosen, 1 pair" in section(text, "Quality")


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("latency", "2.91x shorter latency"),
        ("energy", "2.91x less energy for a tile"),
        ("cost", "a tile 2.91x cheaper"),
    ],
)
def test_the_title_tells_what_was_aimed_at(objective: str, said: str) -> None:
    """And the bound that was kept, where the original was outside of it."""
    free = [change for change in examples.improved().changes if change.class_ == "free"]
    report = examples.improved(
        objective=objective, changes=free, mended=["latency_p95<=80ms"], gain_free=None
    )
    title = rendering.render(report).splitlines()[0]
    assert said in title
    assert "inside latency_p95&lt;=80ms, " in title


ONE_OF_MANY = re.compile(
    r"(?<![\d.,] )(?<![\d.,])1 (?:interleaved )?"
    r"(?:processes|trials|CPUs|GPUs|rounds|pairs|workers|files|items|samples|tiles)\b"
)


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    """A container of one CPU, a call that was stopped after its first process, one pair."""
    gain = Gain(ratio=1.2, low=1.1, high=1.3, pairs=1)
    calm = examples.on_gpu()
    report = examples.on_gpu(
        runs=1,
        trials=calm.trials[:1],
        machine=calm.machine.model_copy(update={"cpus": 1}),
        advice=[calm.advice[0].model_copy(update={"gain": gain})],
        busy=surroundings.busy(
            [a_run(disturbance=Disturbance(disturbed=True, others_cpus=0.4))], [], 1, stood_in=False
        ),
        reason=f"It {sentences.gained(Interval(estimate=1.2, low=1.1, high=1.3, n=1), 'sample')}.",
        before=calm.before.model_copy(update={"data_items": 1}),
    )
    assert not ONE_OF_MANY.findall(rendering.render(report, "figures"))


def test_what_fell_is_no_cost() -> None:
    """Less memory and less energy stand beside what rose, under a word that is true of both; what
    reads the same before and after did not change."""
    calm = examples.on_gpu()
    after = calm.after.model_copy(update={"peak_mem_gib": 2.0})
    screen = first_screen(rendering.render(examples.on_gpu(after=after)))
    assert "What else changed: peak memory 3.1 to 2.0 GiB; energy 0.380 to 0.240 J" in screen
    assert "cost" not in screen
    alike = calm.after.model_copy(update={"peak_mem_gib": 3.101, "energy_j_per_unit": None})
    assert "What else changed" not in first_screen(rendering.render(examples.on_gpu(after=alike)))


def test_a_proven_advice_is_not_denied_by_what_was_cut_short() -> None:
    gain = Gain(ratio=1.2, low=1.1, high=1.3, pairs=4)
    advice = [examples.on_gpu().advice[0].model_copy(update={"gain": gain})]
    screen = first_screen(rendering.render(examples.partial(advice=advice)))
    assert "before it could prove a gain that may be written" in screen
    assert "Yours to decide, not written: **channels_last**, 1.20x" in screen


@pytest.mark.parametrize("command", ["python 'train.py", ""])
def test_a_command_that_is_no_shell_text_is_shown_as_it_is(command: str) -> None:
    text = rendering.render(examples.unchanged(config="", command=command))
    assert text.startswith(f"# {command or 'the program'}")


def test_the_title_names_whatever_was_traded() -> None:
    """Not only steps and precision: a flag or an attention that rounds is named too, and what only
    moves along is not."""
    calm = examples.improved()
    flag = calm.changes[2].model_copy(
        update={"path": "model.attn", "kind": "attention", "class_": "numeric", "to": "sdpa"}
    )
    report = examples.improved(changes=[*calm.changes[:2], flag])
    assert rendering.render(report).splitlines()[0].endswith("free, 2.91x with attn sdpa")
    assert "linear_end" not in rendering.render(calm).splitlines()[0]


def test_a_machine_without_a_gpu_is_told_once() -> None:
    """What was aimed at is the machine itself: no rows that repeat it, and none without a head."""
    cpu = TargetEntry(
        name="cpu",
        title="AMD EPYC 7B13",
        present=True,
        figures="AMD EPYC 7B13: 2 CPUs, 7.8 GiB",
        note="no NVIDIA driver was found Everything is for this CPU.",
    )
    body = section(rendering.render(examples.improved(target=cpu)), "The machine")
    assert body.count("AMD EPYC 7B13") == 1
    assert body.count("no NVIDIA driver") == 1
    noted = examples.on_gpu().target.model_copy(update={"note": "Its limits were measured."})
    body = section(rendering.render(examples.on_gpu(target=noted)), "The machine")
    assert "| of the target | Its limits were measured. |" in body


def test_a_measured_advice_says_once_that_it_was_measured() -> None:
    """The gain stands with the title, as on the first screen; the words say how it was seen."""
    entry = examples.on_gpu().advice[0]
    said = f"{entry.detail} Measured in 6 interleaved pairs of fresh processes."
    report = examples.on_gpu(advice=[entry.model_copy(update={"detail": said})])
    body = section(rendering.render(report), "Yours to decide")
    assert "- **channels_last** at `train.py:88`, 1.12x (1.09 to 1.15): " in body
    assert body.count("easured") == 1
