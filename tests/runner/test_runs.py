"""What a Run says of a program that did its work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from advisor.executor.engines import EngineSettings
from advisor.executor.engines.local import LocalEngine
from advisor.model import MeasurePlan, OutputPattern, Run
from advisor.runner.output import TAIL_BYTES
from advisor.runner.resources import TreeSampler
from advisor.runner.trial import run_trial
from advisor.tuner import output_check
from tests.runner.conftest import failed, measured, processes_of, program

pytestmark = pytest.mark.slow

LINES = 'for i in $(seq {n}); do echo "tile $i: 4 pixels"; sleep 0.02; done; echo end'
WHOLE = MeasurePlan(mode="whole")


def test_a_training_program_is_measured_by_the_probe(make_trial) -> None:
    """Rate, effects, memory and window come together in one Run; the program is stopped."""
    trial = make_trial(
        *program("fail_training", "never-ends"), plan=MeasurePlan(measure_s=0.5, min_steps=20)
    )
    said: list[str] = []
    run = LocalEngine(EngineSettings(on_progress=said.append)).run(trial)
    assert isinstance(run, Run), run
    assert run.units_per_s > 0
    assert run.units > 0
    assert len(run.windows) > 1
    assert run.effects.batch == 8
    assert run.effects.workers == 0
    assert run.exit_code == 0
    assert run.peak_host_gib > 0.05
    assert run.telemetry.gaps
    assert run.files_created == ()
    assert said
    assert processes_of(trial.scratch) == []


FORKS = """\
import os, time
held = b"x" * (200 << 20)
if not os.fork():
    own = b"y" * (100 << 20)
    print("forked", flush=True)
time.sleep(600)
"""


def test_pages_forked_from_the_parent_count_once() -> None:
    """Many workers read what their parent read before; only what is their own is added."""
    command = ("sh", "-c", f"{sys.executable} -c '{FORKS}'; true")
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as root:
        root.stdout.readline()
        tree = TreeSampler(root.pid)
        tree.sample()
        os.killpg(root.pid, signal.SIGKILL)
    assert tree.peak_gib == pytest.approx(300 / 1024, abs=0.05)


@pytest.mark.parametrize("how", ["slow-start", "slow-update"])
def test_a_busy_first_step_is_no_hang(how, make_trial) -> None:
    """torch.compile works for minutes between the first batch and the first step, and an update of
    many passes may be silent for as long in each of them."""
    trial = make_trial(
        *program("fail_training", how), plan=MeasurePlan(measure_s=0.5), hang_limit_s=2.0
    )
    measured(trial)


def test_a_program_without_torch_is_counted_by_the_users_pattern(make_trial) -> None:
    """Matching lines after the first are the units; the program is stopped when it is enough."""
    plan = MeasurePlan(measure_s=0.5, min_steps=5, unit_regex=r"^tile \d+: (\d+) pixels")
    trial = make_trial("bash", "-c", LINES.format(n=100_000), plan=plan, unit="pixel")
    run = measured(trial)
    assert run.unit == "pixel"
    assert run.units % 4 == 0
    assert run.units >= 20
    assert len(run.windows) > 1
    assert "output lines" in run.rate_source


def test_one_matching_line_tells_of_the_whole_run(make_trial) -> None:
    """`processed 1,200 images` at the end: units over the time of the run."""
    plan = MeasurePlan(mode="whole", unit_regex=r"processed ([\d,]+) images")
    run = measured(make_trial("sh", "-c", "sleep 0.2; echo processed 1,200 images", plan=plan))
    assert run.units == 1200
    assert run.units_per_s == pytest.approx(1200 / run.wall_s)
    assert "whole run" in run.rate_source


def test_a_pattern_without_a_match_is_a_failure(make_trial) -> None:
    """Never a rate counted in another way than the one asked for."""
    plan = MeasurePlan(mode="whole", unit_regex=r"^row (\d+)")
    outcome = failed(make_trial("bash", "-c", LINES.format(n=2), plan=plan))
    assert outcome.kind == "no-steps"
    assert "output lines that match '^row" in outcome.evidence


def test_a_whole_run_counts_as_one_where_nothing_else_can(make_trial) -> None:
    """The rate's source says so. Of a line that is redrawn the last state is shown."""
    script = r"printf '\033[31mred\033[0m\r\n 1%%\r100%%\ndone\377'; sleep 0.2"
    run = measured(make_trial("bash", "-c", script, plan=WHOLE))
    assert run.unit == "run"
    assert run.units == 1.0
    assert run.units_per_s == pytest.approx(1 / run.wall_s)
    assert "whole run" in run.rate_source
    assert run.stdout_tail == "red\n100%\ndone\ufffd"


WRITES = """\
import os, pathlib
os.mkdir("out"); pathlib.Path("out/a").write_text("new"); pathlib.Path("out/b").write_text("new")
pathlib.Path("log.txt").open("a").write("more"); os.remove("old.txt"); os.remove("out/b")
"""


def test_files_written_outside_scratch_are_listed_where_nothing_isolates(
    make_trial, work, by_names
) -> None:
    """New ones that remain, and the user's own that changed or are gone."""
    for name in ("log.txt", "old.txt"):
        (work / name).write_text("")
        os.utime(work / name, (1, 1))
    command = (sys.executable, "-c", WRITES)
    run = measured(make_trial(*command, plan=WHOLE, allow_writes=True))
    assert run.files_created == ("out/a",)
    assert run.files_changed == ("log.txt", "old.txt")
    assert run.notes[0].startswith("not isolated: what the program writes is real")
    assert run.notes[1:] == ("the program changed or removed log.txt, old.txt",)


def test_a_later_trial_may_write_over_what_an_earlier_one_created(make_trial, by_names) -> None:
    """The same command twice in one search."""
    engine = LocalEngine()
    for _ in range(2):
        run = engine.run(make_trial(*program("fail_overwrites"), plan=WHOLE))
        assert isinstance(run, Run), run


def test_an_endless_printer_fills_no_disk(make_trial) -> None:
    """The last 64 KiB are kept, and nothing of it is written."""
    script = f"yes 0123456789abcde | head -c {64 * TAIL_BYTES}; echo; echo the end"
    trial = make_trial("sh", "-c", script, plan=WHOLE)
    run = measured(trial)
    assert len(run.stdout_tail) == TAIL_BYTES
    assert run.stdout_tail.endswith("the end\n")
    assert sum(path.stat().st_size for path in Path(trial.scratch).rglob("*")) < TAIL_BYTES


TELLS_EARLY = """\
import traceback
print("score: 0.25")
{}
print("nothing of note\\n" * 20_000)
"""
CAUGHT = "try:\n    int('x')\nexcept ValueError:\n    traceback.print_exc()"
SKIPPED = "print('WARNING: ran out of memory, skipping batch')"


@pytest.mark.parametrize("words", [CAUGHT, SKIPPED], ids=["traceback", "message"])
def test_lost_work_is_found_wherever_it_is_told(make_trial, words) -> None:
    """Also where so much is printed after it that only the end is kept."""
    outcome = failed(make_trial(sys.executable, "-c", TELLS_EARLY.format(words), plan=WHOLE))
    assert outcome.kind == "work-not-done"


def test_a_figure_is_read_wherever_it_is_printed(make_trial) -> None:
    asked = OutputPattern(name="score", pattern=r"score: (\S+)", matches="each")
    plan = MeasurePlan(mode="whole", figures=(asked,))
    run = measured(make_trial(sys.executable, "-c", TELLS_EARLY.format(""), plan=plan))
    assert run.figures == {"score": ("0.25",)}


def test_many_trials_lose_no_last_words_no_descriptor_and_no_child(make_trial) -> None:
    """However fast the programs end after their words. A search runs hundreds in one process."""
    run_trial(make_trial("true", plan=WHOLE))
    before = held()
    for number in range(8):
        run = measured(make_trial("echo", str(number), plan=WHOLE))
        assert run.stdout_tail == f"{number}\n"
    assert held() == before


def held() -> tuple[int, int]:
    """Open descriptors and children of this process."""
    return len(list(Path("/proc/self/fd").iterdir())), len(psutil.Process().children())


def test_results_that_a_batch_would_lose_are_counted(make_trial) -> None:
    """A program that keeps the first item of each batch leaves fewer files for as many items."""
    plan = MeasurePlan(measure_s=0.5, min_steps=20)
    asked = (("1", "each"), ("8", "each"), ("8", "first"))
    runs = [run_trial(make_trial(*program("ok_results", *words), plan=plan)) for words in asked]
    assert [isinstance(run, Run) for run in runs] == [True] * 3, runs
    single, several, fewer = runs
    counts = [(r.files_in_window, r.whole_units, r.units) for r in runs]
    assert not output_check.output_regression([single], several), counts
    assert output_check.output_regression([single], fewer), counts


def test_a_program_that_writes_over_its_own_files_loses_nothing(make_trial) -> None:
    """A ring of files, and a file that is begun anew with each pass over the data."""
    plan = MeasurePlan(measure_s=0.1, min_steps=100)
    for which, most in (("ring", "8"), ("passes", "64")):
        few, many = (
            measured(make_trial(*program("ok_results", batch, which), plan=plan))
            for batch in ("1", most)
        )
        assert output_check.output_regression([few], many) == ""


def test_processes_that_were_stopped_do_not_make_their_parent_a_failure(make_trial) -> None:
    """Two side by side are measured to the end of the window; the parent then misses what they
    would have written, which is our doing."""
    plan = MeasurePlan(measure_s=0.5, min_steps=10)
    run = measured(make_trial(*program("ok_shards"), plan=plan))
    assert run.ranks == 2
    assert run.units_per_s == pytest.approx(sum(run.rank_units_per_s))


ANSWERS_LOUDLY = """\
import signal, torch
def answer(*_): raise RuntimeError("preempted")
signal.signal(signal.SIGTERM, answer)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for rows in torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=4):
    optimizer.zero_grad(); model(rows).sum().backward(); optimizer.step()
    print("step", flush=True)
"""


def test_what_a_program_raises_when_we_end_it_is_no_failure(make_trial) -> None:
    """A trainer that answers SIGTERM by an exception, ended at the end of its window."""
    plan = MeasurePlan(measure_s=0.5, min_steps=5, unit_regex="^step")
    run = measured(make_trial(sys.executable, "-c", ANSWERS_LOUDLY, plan=plan))
    assert "output lines" in run.rate_source


SKIPS_WHAT_IT_CANNOT_READ = """\
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        if index == 97: raise OSError("row 97 is damaged")
        return torch.ones(4)
model, rows = torch.nn.Linear(4, 1), iter(torch.utils.data.DataLoader(Rows(), batch_size=4))
while True:
    try: model(next(rows))
    except OSError: continue
    except StopIteration: break
"""


def test_a_batch_that_could_not_be_loaded_is_lost_work(make_trial) -> None:
    """The program caught the error without a word, and went on with the next batch."""
    failure = failed(make_trial(sys.executable, "-c", SKIPS_WHAT_IT_CANNOT_READ, plan=WHOLE))
    assert failure.kind == "work-not-done"
    assert failure.evidence == "caught in the loading: OSError: row 97 is damaged"


BUILDS_A_LOADER = (
    "import torch; data = list(range(99))\n"
    "loader = torch.utils.data.DataLoader(data, batch_size=7)\n"
    "raise ValueError('12 is no multiple of 5')\n"
)


def test_a_program_that_fails_tells_what_it_came_to(make_trial) -> None:
    """The loader that it built is known, though it never took a step; of a network nothing is."""
    failure = failed(make_trial(sys.executable, "-c", BUILDS_A_LOADER))
    assert failure.effects.batch_asked == 7
    assert failure.effects.workers is None
    failure = failed(make_trial(sys.executable, "-c", "raise RuntimeError(1)"))
    assert failure.effects is None


def test_a_run_of_which_only_effects_are_asked_stops_in_time(make_trial) -> None:
    """A window that would take minutes is read as it stands."""
    plan = MeasurePlan(measure_s=300.0, longest_s=1.0)
    run = measured(make_trial(*program("fail_training", "never-ends"), plan=plan))
    assert run.effects.batch == 8
    assert run.effects.batch_asked == 8
    assert run.effects.workers == 0
    assert run.window_end - run.window_start < 60
