"""Monitor of a running trial: it looks ten times a second, and says when and by what it ends.

A window that is full once is kept whatever comes after it. The program may then end while its
parts are measured alone, by a limit or by an error of its own: the rate stands.

A silent program hangs, or compiles. The first steps may be a compilation, which keeps a CPU
busy. So a silence among them may last as long as a start, while something works.
"""

import contextlib
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Literal

import psutil

from advisor import clock
from advisor.machine.contention import LoadMonitor
from advisor.model import Trial
from advisor.probe.env_propagation import isolating
from advisor.runner.launch import Launched
from advisor.runner.measuring import Measuring
from advisor.runner.output import Printed, Tally, joined
from advisor.runner.process_records import ProcessRecord, Records
from advisor.runner.resources import TreeSampler, oom_kills, own_numbers, parts_limit_s

# By judgement: patience costs a trial seconds, and a program that is ended too early a process.
TICK_S = 0.1
"""Interval between looks; the end of the command is seen at once."""
LOST_S = 5.0
"""Longest wait for a first record where the command keeps our variables from its program.

A child of such a program may still have the probe."""
RANKS_GRACE_S = 2.0
"""Longest wait for other processes to stop, once one has stopped with a full window."""
EXIT_S = 0.5
"""Longest wait, in seconds, for the command's own end once its window is full.

Judgement: shorter ends a command that is about to end itself, longer delays trials whose command
stays."""
STACKS_S = 0.5
"""Seconds that a process without steps gets to write the stacks of its threads.

Judgement: shorter loses them on a busy host, longer delays the end of each hang."""
BUSY_S = 10.0
"""Latest seconds that tell if a silent program is busy; never more than its silence at its end.

Judgement: shorter takes a pause of a compiler for a hang, longer takes work before a hang for its
own."""
BUSY_CPUS = 0.05
"""CPUs of a program that compiles rather than waits, even on a crowded host.

Judgement: smaller takes a loop that polls for work, larger ends a compilation that gets little of a
CPU."""
WARM_STEPS = 3
"""Finished steps below which a silence may be a compilation, or a first step of many passes.

Judgement: fewer ends a program that compiles for a second shape, more waits for a real hang until
the start limit."""
PROGRESS_S = 2.0
"""Seconds between words to the user.

Judgement: shorter fills a log with lines, longer looks as if all hung."""
NOBODY = 2**31 - 1
"""Number of no process: Linux ends at 2**22 (PID_MAX_LIMIT, see pid_max in proc(5))."""

End = Literal[
    "exited", "measured", "start-limit", "hang", "total-limit", "cancelled", "not-started"
]  # fmt: skip
"""What ended a trial: the command itself, its full window, a limit of ours, the user, or a refusal
to start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialExit:
    """How a trial ended, and all that is known of it then; `classify.py` says what that means."""

    end: End
    started: float
    """Epoch seconds of the command's start."""
    ended: float
    exit_code: int | None = None
    problem: str = ""
    """Why it was not started; empty otherwise."""
    stdout: str = ""
    stderr: str = ""
    processes: tuple[ProcessRecord, ...] = ()
    silence_s: float | None = None
    """Since the last step; without one, since the start or the end of what stepped before."""
    busy_cpus: float | None = None
    """CPUs that the process tree kept busy in the last BUSY_S of its silence; None: too short."""
    peak_host_gib: float | None = None
    host_growth_gib_per_min: float | None = None
    stacks: str = ""
    oom: Counter[str] = field(default_factory=Counter)
    """The kernel's out-of-memory kills meanwhile, by `cgroup` and `host`."""
    count: Tally = field(default_factory=Tally)
    """Units by the lines of output that the plan's `unit_regex` matches."""
    printed: Printed = field(default_factory=Printed)
    """What was looked for in the whole output, of which `stdout` and `stderr` are the ends."""
    left_behind: int = 0
    """Processes of the command that still ran when it had ended by itself."""

    @property
    def wall_s(self) -> float:
        """Seconds of the command; 0 where it was ended before it had begun."""
        return max(0.0, self.ended - self.started)

    @property
    def steps(self) -> int:
        """Steps of the process that made most."""
        return max((process.steps for process in self.processes), default=0)

    @property
    def aside(self) -> str | None:
        """Last line of the probe's error for which it left the program alone.

        None where it did not, or where another process of the program made steps.
        """
        aside = [process for process in self.processes if process.state == "aside"]
        if self.steps or not aside:
            return None
        lines = [
            line
            for record in aside
            for error in record.errors
            for line in error.splitlines()
        ]
        return lines[-1] if lines else "its record does not say how"

    @property
    def output(self) -> str:
        return f"{self.stdout}\n{self.stderr}"


class Monitor:
    """Watch over one running trial, until it ends or has to be ended.

    Each look reads the records of the program's processes, tells these when to count and when
    to stop, and samples memory and load. From a full window on the program is ended by us, so
    whatever it says or raises after that is no failure of it.
    """

    def __init__(
        self, trial: Trial, launched: Launched, say: Callable[[str], None], cancel: Event
    ) -> None:
        self._trial = trial
        self._launched = launched
        self._tally = launched.tally
        self.load = LoadMonitor(launched.supervisor_pid)
        self._say = say
        self._cancel = cancel
        self._records = Records(f"{launched.job.scratch}/probe")
        self._measuring = Measuring(
            f"{launched.job.scratch}/probe",
            trial.plan,
            at_end=lambda: self.load.sample(force=True),
        )
        self._processes: tuple[ProcessRecord, ...] = ()
        self._oom_before = oom_kills()
        self._full_since = self._first_step = math.inf
        """Epoch seconds of the first full window, and the first step."""
        self._at_work = False
        """A living process makes steps, or lines of output were counted."""
        self._last_sign = clock.now()
        """Epoch seconds of the start, the last step, or the end of what stepped."""
        self._reported = 0.0
        """Epoch seconds of the latest word to the user."""
        self._tree = TreeSampler(launched.supervisor_pid)
        self._host_pids: dict[int, int] = {}
        """The host's numbers of processes, by those in the program's own process space."""

    def until_end(self) -> TrialExit:
        """Watch the trial to its end; return what is known of it then."""
        while True:
            self._launched.wait(TICK_S)
            self._processes = self._records.read()
            self._measuring.update(self._processes)
            self._tree.sample()
            self.load.sample()
            end = self._end(clock.now())
            if end is not None:
                break
            self._report()
        ended = clock.now()
        self.load.sample(force=True)
        launched = self._launched
        if end == "measured":  # usually its last process stopped, and it ends as well
            launched.wait(EXIT_S)
        stacks = self._stacks() if end in {"hang", "start-limit"} else ""
        left_behind = self._left_behind() if end == "exited" else 0
        if end in {"exited", "not-started"}:
            launched.stop()  # its last words may still be on their way
        # of a program that we end, nothing counts that it says or raises from here on
        stdout, stderr = launched.stdout.printed(), launched.stderr.printed()
        records = self._records.read()
        launched.stop()
        return TrialExit(
            end=end,
            started=launched.started,
            ended=ended,
            exit_code=launched.exit_code,
            problem=launched.refused or "",
            stdout=stdout.tail,
            stderr=stderr.tail,
            printed=joined(stdout, stderr),
            processes=self._measuring.finish(records),
            silence_s=max(0.0, ended - self._last_sign),
            busy_cpus=self._tree.busy_cpus(max(ended - BUSY_S, self._last_sign), ended),
            peak_host_gib=self._tree.peak_gib,
            host_growth_gib_per_min=self._tree.growth_gib_per_min(),
            stacks=stacks,
            oom=oom_kills() - self._oom_before,
            count=self._tally,
            left_behind=left_behind,
        )

    def _end(self, now: float) -> End | None:
        """What ends the trial now; None: it goes on."""
        launched = self._launched
        stepping = [
            p for p in self._processes if p.state == "stepping" and self._alive(p.pid)
        ]
        self._note_signs(now, at_work=bool(stepping) or self._tally.lines > 0)
        if self._cancel.is_set():
            return "cancelled"
        if launched.refused is not None:
            return "not-started"
        if self._window_full(now, stepping):
            return "measured"
        end: End | None = "exited" if launched.ended else self._over_limit(now, stepping)
        alone = any(process.alone for process in self._processes)
        was_full = alone or self._full_since < math.inf  # then the window is kept
        return "measured" if end is not None and was_full else end

    def _note_signs(self, now: float, *, at_work: bool) -> None:
        """Note the latest sign of life: a step, a counted line, or that work began or paused."""
        signs = [p.last_step_time for p in self._processes if p.last_step_time is not None]
        signs += [mark.time for mark in self._tally.marks[-1:]]
        if at_work != self._at_work:  # its first step, or the next part of a longer command
            signs.append(now)
        self._last_sign = max([self._last_sign, *signs])
        self._at_work = at_work
        if at_work:
            self._first_step = min(self._first_step, now)

    def _over_limit(self, now: float, stepping: list[ProcessRecord]) -> End | None:
        """Limit that the trial is over; None if over none."""
        trial, silence = self._trial, now - self._last_sign
        alone = any(process.alone for process in stepping)  # its parts make no steps
        hang_s = trial.hang_limit_s + (parts_limit_s(trial.plan) if alone else 0.0)
        if self._at_work and silence > hang_s and not self._warming_up(now):
            return "hang"
        if not self._at_work and (silence > trial.start_limit_s or self._left_alone()):
            return "start-limit"
        steps_limit_s = math.inf if trial.steps_limit_s is None else trial.steps_limit_s
        too_long = now - self._first_step > steps_limit_s
        if too_long or now - self._launched.started > trial.total_limit_s:
            return "total-limit"
        return None

    def _left_alone(self) -> bool:
        """True if no step will ever be seen, so that it is in vain to wait for the first.

        The probe stepped aside, or the command starts its program without our variables. Where
        lines of output are counted, or no window is waited for, neither matters.
        """
        plan = self._trial.plan
        aside = any(
            process.state == "aside" and self._alive(process.pid)
            for process in self._processes
        )
        late = clock.now() - self._launched.started > LOST_S
        lost = late and not self._processes and isolating(self._trial.command) is not None
        return (aside or lost) and plan.mode == "window" and plan.unit_regex is None

    def _warming_up(self, now: float) -> bool:
        """True if a silence may be a compilation rather than a hang: early, busy, not too long."""
        whole_steps = max((process.whole_steps for process in self._processes), default=0)
        busy = self._tree.busy_cpus(now - BUSY_S, now) or 0.0
        within_start_limit = now - self._last_sign <= self._trial.start_limit_s
        return whole_steps < WARM_STEPS and busy > BUSY_CPUS and within_start_limit

    def _window_full(self, now: float, stepping: list[ProcessRecord]) -> bool:
        """True once every process has stopped with a full window, or enough lines were counted.

        Ranks that have not stopped by then are waited for no longer than RANKS_GRACE_S.
        """
        plan, count = self._trial.plan, self._tally
        stopped = [process for process in self._processes if process.state == "stopped"]
        if stopped:
            self._full_since = min(self._full_since, now)
            # one just stopped still flushes its output
            leaving = any(self._alive(process.pid) for process in stopped)
            return not (stepping or leaving) or now - self._full_since > RANKS_GRACE_S
        enough = count.lines > plan.min_steps and count.seconds >= plan.measure_s
        return plan.mode == "window" and enough

    def _stacks(self) -> str:
        """Stacks of the living processes that write them when asked; empty without any."""
        asked = [pid for pid in sorted(self._records.stacks()) if self._alive(pid)]
        for pid in asked:
            with contextlib.suppress(OSError):
                os.kill(self._host_pid(pid), signal.SIGUSR1)
        time.sleep(STACKS_S if asked else 0.0)
        texts = self._records.stacks()
        return "\n".join(f"process {pid}:\n{texts[pid]}" for pid in asked if texts.get(pid))

    def _left_behind(self) -> int:
        """Number of living processes that the command left to the supervisor."""
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self._launched.supervisor_pid).children(recursive=True)
            program = [
                process.pid
                for process in below
                if process.pid not in self._launched.helpers
            ]
            return sum(_alive(pid) for pid in program)
        return 0

    def _alive(self, pid: int) -> bool:
        """True if the process lives that its record calls `pid`."""
        return _alive(self._host_pid(pid))

    def _host_pid(self, pid: int) -> int:
        """The host's number of a process that the program calls `pid`; NOBODY if it has none.

        Foreign code has a process space of its own, where other numbers hold. Helpers of the
        sandbox are the sign of one.
        """
        if not self._launched.helpers:
            return pid
        if pid not in self._host_pids:
            self._host_pids |= own_numbers(self._launched.supervisor_pid)
        return self._host_pids.get(pid, NOBODY)

    def _report(self) -> None:
        """Tell the user how far the trial is, every PROGRESS_S."""
        now = clock.now()
        if now - self._reported < PROGRESS_S:
            return
        self._reported = now
        steps = max((process.steps for process in self._processes), default=0)
        state = f"steps: {steps}" if steps else "starting"
        self._say(f"{state}, {now - self._launched.started:.0f} s")


def _alive(pid: int) -> bool:
    """True for a process of the host that runs; one that ended and was not awaited does not."""
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
