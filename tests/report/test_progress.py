"""Progress goes to stderr: a live table on a terminal, one plain line a trial elsewhere."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, BEFORE, ABTest, TrialRequest, TrialResult, Variant
from advisor.executor.rounds import Round
from advisor.model import Failure, MeasurePlan, Purpose
from advisor.report import progress
from advisor.report.progress import Progress, is_terminal
from tests.report import golden
from tests.runs import a_run
from tests.support.processes import ran

ROOT = Path(__file__).resolve().parents[2]

STORY = """
import sys, time
from advisor.model import Disturbance, Interval, Neighbour
from advisor.report.progress import Progress
from tests.report.test_progress import attempt

load = Disturbance(disturbed=True, others_cpus=1.0, who=(Neighbour(name="cc1plus", cpus=1.0),))
with Progress(unit="tile", budget_s=600) as progress:
    progress.stage("baseline")
    time.sleep(0.6)  # drawn before anything was measured
    progress.trial_started(1, "original")
    progress.trial_done(attempt("original", "baseline",
        units_per_s=0.51, wait_share=0.21, peak_mem_gib=0.4, wall_s=6.21))
    progress.stage("search")
    progress.note("12 workers on 2 CPUs: [bold]fewer[/bold] are tried")
    for n, (label, rate) in enumerate((("batch 4", 1.2), ("batch 8", 1.61)), 2):
        progress.trial_started(n, label)
        progress.trial_done(attempt(label, number=n,
            units_per_s=rate, wait_share=0.0, peak_mem_gib=0.4, wall_s=6.2))
    progress.trial_started(4, "batch [red]16")
    progress.trial_done(attempt("batch [red]16", number=4, failed="gpu-oom", wall_s=3.0))
    progress.trial_started(5, "batch 2")
    progress.trial_done(attempt("batch 2", number=5, units_per_s=0.8, wall_s=6.2, disturbance=load))
    progress.trial_started(6, "batch 32")
    progress.status("11 steps")
    progress.status("12 steps")
print("result")
sys.exit("rich" in sys.modules)
"""


def on_terminal(columns: int, story: str = STORY, **environment: str) -> tuple[str, str]:
    """Output of a story on a terminal of that width, and on stdout."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-c", story],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=clean | {"TERM": "xterm-256color"} | environment,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux says so when the other end has gone
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    stdout, _ = process.communicate(timeout=30)
    return seen.decode(), stdout.decode()


def lines(seen: str) -> list[str]:
    """Lines as they stood on the terminal: without colours, cut where the cursor moved."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", plain).split("\n")


def attempt(
    label: str,
    purpose: Purpose = "search",
    *,
    number: int = 1,
    failed: str = "",
    reused: bool = False,
    **run: Any,
) -> TrialResult:
    """One process with this end."""
    request = TrialRequest(variant=Variant(), purpose=purpose, plan=MeasurePlan(), title=label)
    result = Failure(kind=failed, evidence="", next_step="", **run) if failed else a_run(**run)
    return TrialResult(
        id=f"{number:03d}", request=request, result=result, reused=reused, remaining_s=1.0
    )


def plain(**how: object) -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    return Progress(unit="tile", stream=stream, **how), stream  # type: ignore[arg-type]


def test_a_finished_report_has_its_first_screen_on_the_terminal() -> None:
    """Verdict, table, diff and the next command, in colour; elsewhere as Markdown."""
    shows = "from tests.report import golden; from advisor.report import progress; import sys\n"
    shows += "progress.show(golden.report('improved'), sys.stderr)"
    seen, _ = on_terminal(80, shows)
    plain = io.StringIO()
    progress.show(golden.report("improved"), plain)
    assert "\x1b[" in seen
    for text in ("\n".join(lines(seen)), plain.getvalue()):
        for part in ("Improved.", "tiles/s", '+      "batch_size": 8', "revert config"):
            assert part in text, part


def test_a_terminal_shows_the_round_its_gain_so_far_and_what_follows() -> None:
    rounds = 'progress.stage("confirm")\n    '
    rounds += 'progress.round_done(2, 6, "batch 8", Interval(estimate=3.1, low=2.9, high=3.4, n=2))'
    last = 'progress.trial_started(6, "batch 32")'
    seen, _ = on_terminal(110, STORY.replace(last, f"{rounds}\n    {last}"))
    shown = lines(seen)
    assert any("round 3 of 6: batch 8, 3.10x (2.90 to 3.40) so far" in line for line in shown)
    assert any("then: the report, or further changes" in line for line in shown)


def test_elsewhere_each_trial_is_one_plain_line_on_stderr() -> None:
    done = ran(sys.executable, "-c", STORY, cwd=ROOT)
    assert done.returncode == 0, "rich was imported without a terminal"
    assert done.stdout == "result\n"
    assert re.sub(r"[0-9.]+ s of", "0 s of", done.stderr).splitlines() == [
        "baseline: the command as it is (0 s of 10 min)",
        "trial 1  original  baseline  0.510 tiles/s  wait 21 %  peak 410 MiB  6.2 s",
        "search: batch, workers and other settings (0 s of 10 min)",
        "12 workers on 2 CPUs: [bold]fewer[/bold] are tried",
        "trial 2  batch 4  search  1.20 tiles/s  wait 0 %  peak 410 MiB  6.2 s",
        "trial 3  batch 8  search  1.61 tiles/s  wait 0 %  peak 410 MiB  6.2 s",
        "trial 4  batch [red]16  search  gpu-oom  3.0 s",
        "trial 5  batch 2  search  0.800 tiles/s  6.2 s  others keep 1.0 CPUs busy (cc1plus 1.0)",
    ]


def test_the_live_view_has_budget_variants_gains_and_what_runs() -> None:
    """Steps of the running trial replace each other; the cursor is given back."""
    seen, stdout = on_terminal(100)
    assert stdout == "result\n"
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert "[bold]fewer[/bold]" in seen  # a note is no markup
    last = lines(seen[seen.rindex("search: batch") :])
    drawn = [line for line in last if line.strip()]
    original, *others = [line.count("█") for line in drawn[4:8]]
    assert original < max(others) == others[0], "the longest bar is that of batch 8"
    shown = [" ".join(re.sub("[▏▎▍▌▋▊▉█]", "", line).split()) for line in drawn]
    assert set(shown.pop(2)) == {"━"}
    assert re.fullmatch(r"\S+ s of 10 min", shown[1])
    assert shown[:1] + shown[2:] == [
        "search: batch, workers and other settings",
        "variant tiles/s gain runs memory",
        "original 0.510 1.00x 1 410 MiB",
        "batch 8 1.61 3.16x 1 410 MiB",
        "batch 4 1.20 2.35x 1 410 MiB",
        "batch 2 0.800 1.57x 1",
        "batch [red]16 gpu-oom 1",
        "now: trial 6, batch 32",
        "12 steps",
        "others keep 1.0 CPUs busy (cc1plus 1.0)",
        "then: the proof, in interleaved rounds",
    ]


def test_the_live_view_fits_a_narrow_terminal() -> None:
    assert max(map(len, lines(on_terminal(8)[0]))) <= 8


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "CI": "1"}, False)],
)
def test_only_a_colour_terminal_gets_the_live_view(environment, expected, monkeypatch) -> None:
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        assert is_terminal(terminal) is expected


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"label": "batch 8", "reused": True}, "kept run  batch 8  search  1.00 tiles/s  2.0 s"),
        ({"label": "batch 9", "counted": "step"}, "trial 1  batch 9  search  1.00 steps/s  2.0 s"),
        ({"label": "a\nb\x1b[31m", "failed": "timeout"}, "trial 1  a b  search  timeout  2.0 s"),
    ],
)
def test_a_trial_is_one_line_with_what_was_measured(fields, shown) -> None:
    progress, stream = plain()
    progress.trial_done(attempt(wall_s=2.0, **fields))
    assert stream.getvalue() == f"{shown}\n"


def test_a_reader_that_went_away_does_not_stop_the_work() -> None:
    read, write = os.pipe()
    stream = os.fdopen(write, "w")
    progress = Progress(unit="tile", stream=stream)
    os.close(read)
    progress.note("nobody listens")
    progress.trial_done(attempt("batch 8"))
    progress.__exit__()
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    stream.close()
    progress.note("nobody listens")


def comparison(
    after_rate: float,
    rounds: int,
    *,
    purpose: Purpose = "whatif",
    arms: Sequence[str] = (BEFORE, AFTER),
    **end: Any,
) -> str:
    """Lines on a suggestion of two workers, after so many of six rounds at 10 and `after_rate`."""
    runs = {
        arm: attempt(arm, purpose, units_per_s=rate, wall_s=1.0)
        for arm, rate in zip(arms, (10.0, after_rate), strict=True)
    }
    test = ABTest(
        purpose=purpose,
        names=tuple(runs),
        requests=tuple(replace(each.request, title="workers 2") for each in runs.values()),
        rounds=6,
    )
    of_runs = tuple(Round(number=number, runs=runs) for number in range(1, rounds + 1))
    shown, stream = plain()
    shown.compared(Comparison(ab_test=test, rounds=of_runs, remaining_s=9.0, **end))
    return stream.getvalue()


ENDS = {
    "all rounds": ((14.2, 6), {}, "1.42x (1.42 to 1.42) in 6 rounds"),
    "cut short": ((14.2, 3), {"cut_short": True}, "in 3 of 6 rounds; the budget ended them"),
    "cut short before it tells": (
        (14.2, 1),
        {"cut_short": True},
        "1.42x in 1 of 6 rounds, too few to tell; the budget",
    ),
    "cut short at once": ((14.2, 0), {"cut_short": True}, "nothing in 0 of 6 rounds; the budget"),
    "a failure": (
        (14.2, 2),
        {"failure": Failure(kind="gpu-oom", evidence="", next_step="")},
        "gpu-oom in its rounds, so no gain is proven",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_rounds_says_what_they_showed(end) -> None:
    """Of a suggestion that was stopped, too; a table of `compare` follows its rounds anyhow."""
    (rate, rounds), how, expected = ENDS[end]
    line = comparison(rate, rounds, **how)
    assert line.startswith("workers 2: ")
    assert expected in line
    assert comparison(rate, rounds, purpose="confirm", arms="AB", **how) == ""


def test_the_live_table_holds_what_is_only_suggested() -> None:
    """Beside what may be written, with the same figures."""
    last = 'progress.trial_started(6, "batch 32")'
    tried = 'progress.trial_done(attempt("threads 2 in the code", "whatif", units_per_s=0.9))'
    seen, _ = on_terminal(110, STORY.replace(last, f"{tried}\n    {last}"))
    assert any(re.match(r"threads 2 in the code\W+0\.900 .*1\.76x", each) for each in lines(seen))
