"""Monitor of a running trial and its limits.

Looks at the trial ten times a second, and says when and why it ends. A window that is full once
is kept whatever comes after it: the program may be ended by its parts, by its limits or by an
error of its own, and the rate stands.

A silent program hangs, or compiles. The first steps may be a compilation, which keeps a CPU
busy; so a silence among them is given as long as a start, as long as something works.
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
"""Interval between checks; the command's end needs none."""
LOST_S = 5.0
"""Longest wait for the probe in a child of a Python that keeps it out."""
RANKS_GRACE_S = 2.0
"""For other ranks to fill their window, once one has."""
EXIT_S = 0.5
"""Wait for the command's end after its last process stopped."""
STACKS_S = 0.5
"""Time that a hanging process gets to write its stacks."""
BUSY_S = 10.0
"""Period to judge if a silent program is busy; at its end the silence alone."""
BUSY_CPUS = 0.05
"""CPUs of a program that compiles rather than waits, even on a crowded host."""
WARM_STEPS = 3
"""Whole steps in which a silence may be a compilation, or the first's long pass."""
PROGRESS_S = 2.0
"""Time between words to the user."""
NOBODY = 2**31 - 1
"""No process has this number: Linux ends far below."""

End = Literal[
    "exited", "measured", "start-limit", "hang", "total-limit", "cancelled", "not-started"
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialExit:
    """End of a trial before classification, with output."""

    end: End
    started: float
    """Epoch seconds of the command's start."""
    ended: float
    exit_code: int | None = None
    problem: str = ""
    """not-started: why."""
    stdout: str = ""
    stderr: str = ""
    processes: tuple[ProcessRecord, ...] = ()
    silence_s: float | None = None
    """Since the last step."""
    busy_cpus: float | None = None
    """CPUs that the process tree kept busy in its last seconds."""
    peak_host_gib: float | None = None
    host_growth_gib_per_min: float | None = None
    stacks: str = ""
    oom: Counter[str] = field(default_factory=Counter)
    """The kernel's out-of-memory kills meanwhile, by `cgroup` and `host`."""
    count: Tally = field(default_factory=Tally)
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
        return max((process.steps for process in self.processes), default=0)

    @property
    def aside(self) -> str | None:
        """Error of the probe for which it left a program alone."""
        aside = [process for process in self.processes if process.state == "aside"]
        if self.steps or not aside:
            return None
        told = [
            line
            for record in aside
            for error in record.errors
            for line in error.splitlines()
        ]
        return told[-1] if told else "its record does not say how"

    @property
    def output(self) -> str:
        return f"{self.stdout}\n{self.stderr}"


class Monitor:
    """Watch over one running trial: it says when the trial is over, and by what.

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
        self._last_sign = clock.now()
        """Epoch seconds of the start, the last step, or the end of what stepped."""
        self._reported = 0.0
        self._tree = TreeSampler(launched.supervisor_pid)
        self._host_pids: dict[int, int] = {}

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
        if end == "measured":  # usually the command just ended by itself
            self._launched.wait(EXIT_S)
        stacks = self._stacks() if end in {"hang", "start-limit"} else ""
        launched = self._launched
        left_behind = self._left_behind() if end == "exited" else 0
        if end in {"exited", "not-started"}:  # its last words may still arrive
            launched.stop()
        # nothing counts that a program ended by us says or raises from here on
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
        """What the trial has ended by; None while it runs."""
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
        # what comes after a full window is ours: it neither fails nor outlasts the program
        full = self._full_since < math.inf or any(
            process.alone for process in self._processes
        )
        if launched.ended:
            return "measured" if full else "exited"
        end = self._over_limit(now, stepping)
        return "measured" if end is not None and full else end

    def _note_signs(self, now: float, *, at_work: bool) -> None:
        signs = [p.last_step_time for p in self._processes if p.last_step_time is not None]
        signs += [mark.time for mark in self._tally.marks[-1:]]
        if at_work != self._at_work:  # its first step, or the next part of a longer command
            signs.append(now)
        self._last_sign = max([self._last_sign, *signs])
        self._at_work = at_work
        if at_work:
            self._first_step = min(self._first_step, now)

    def _over_limit(self, now: float, stepping: list[ProcessRecord]) -> End | None:
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
        """True if no step will ever be seen, so that waiting for the first is in vain.

        The probe stepped aside, or the command starts its program without our variables.
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
        """True if a silence may be a compilation rather than a hang."""
        whole_steps = max((process.whole_steps for process in self._processes), default=0)
        busy = self._tree.busy_cpus(now - BUSY_S, now) or 0.0
        early = now - self._last_sign <= self._trial.start_limit_s
        return whole_steps < WARM_STEPS and busy > BUSY_CPUS and early

    def _window_full(self, now: float, stepping: list[ProcessRecord]) -> bool:
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
        asked = [pid for pid in sorted(self._records.stacks()) if self._alive(pid)]
        for pid in asked:
            with contextlib.suppress(OSError):
                os.kill(self._host_pid(pid), signal.SIGUSR1)
        time.sleep(STACKS_S if asked else 0.0)
        texts = self._records.stacks()
        return "\n".join(f"process {pid}:\n{texts[pid]}" for pid in asked if texts.get(pid))

    def _left_behind(self) -> int:
        """Count living processes that the supervisor adopted."""
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
        """Return True for a living process that its record calls `pid`."""
        return _alive(self._host_pid(pid))

    def _host_pid(self, pid: int) -> int:
        """Return the host's number of a process that the program calls `pid`.

        Foreign code has a process space of its own, where other numbers hold.
        """
        if not self._launched.helpers:
            return pid
        if pid not in self._host_pids:
            self._host_pids |= own_numbers(self._launched.supervisor_pid)
        return self._host_pids.get(pid, NOBODY)

    def _report(self) -> None:
        now = clock.now()
        if now - self._reported < PROGRESS_S:
            return
        self._reported = now
        steps = max((process.steps for process in self._processes), default=0)
        state = f"steps: {steps}" if steps else "starting"
        self._say(f"{state}, {now - self._launched.started:.0f} s")


def _alive(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
