"""What every measuring mode needs: the machine to itself, a session, and a record of it all."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.errors import InterruptedByUserError, StateBusyError, StateUnusableError
from advisor.executor.engines.local import LocalEngine
from advisor.executor.engines.scratch_dir import require_room
from advisor.executor.executor import WAIT_SHARE
from advisor.gate import bring, calibrate, clocks, known, origins, setup, validity, walls
from advisor.gate.entries import ARMS
from advisor.gate.git import git
from advisor.gate.measure import Bench
from advisor.gate.records import GateRecord, HostEntry, Revision
from advisor.gate.session import Session
from advisor.gate.verdict import decide
from advisor.machine.gpu import read_gpus
from advisor.machine.host import read_machine
from advisor.model import MeasurePlan

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from advisor.executor.engines import Engine
    from advisor.gate.base import Checkout
    from advisor.gate.entries import ProgramEntry, Statistic, Variant
    from advisor.gate.options import Options
    from advisor.gate.program import Program
    from advisor.gate.records import Inputs, Mode
    from advisor.model import Gpu, Machine

SETUP_LIMIT_S = 3600.0
LOCK_POLL_S = 0.5
PROBE_STACK = (
    "import platform, importlib.metadata as m; print(platform.python_version()); "
    "print(m.version('torch'))"
)
"""Asks an interpreter for its version and torch's without importing torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a gate runs, and what it may be stopped by."""

    cwd: Path
    scratch: Path
    cancel: threading.Event
    say: Callable[[str], None]
    steering: tuple[Path, ...] = ()
    """Files that steer the steps to come: no program may write them."""


@contextlib.contextmanager
def machine_to_itself(asked: Options, place: Place) -> Iterator[tuple[Engine, HostEntry]]:
    """Hold the engine of the GPU (of the host, if it has none) and the GPU's clocks.

    Waits for another gate on the same GPU as long as the budget lasts, then raises StateBusyError.
    """
    for uuid in clocks.give_back():
        place.say(f"gave back the clocks of {uuid}, which a killed gate had left locked")
    machine = read_machine()
    gpu_uuid = machine.gpus[0].uuid if machine.gpus else None
    with (
        _leased(gpu_uuid, asked.inputs.max_minutes * 60, place) as engine,
        clocks.held(gpu_uuid, wanted=asked.lock_clocks) as state,
    ):
        yield engine, host_entry(machine, state, asked.python, place.cwd)


@contextlib.contextmanager
def _leased(uuid: str | None, budget_s: float, place: Place) -> Iterator[Engine]:
    """One measurement at a time: says so before it waits for another, and can be interrupted."""
    deadline = time.monotonic() + budget_s
    said = False
    with contextlib.ExitStack() as stack:
        while True:
            poll_s = LOCK_POLL_S if said else 0.0
            engine = LocalEngine(
                gpu_uuid=uuid,
                wait_s=poll_s,
                cancel=place.cancel,
                on_busy=place.say,
                patience_s=WAIT_SHARE * budget_s,
            )
            try:
                stack.enter_context(engine)
            except StateBusyError as problem:
                if time.monotonic() > deadline:
                    raise
                if place.cancel.is_set():
                    msg = "Interrupted while waiting for another gate: nothing was measured."
                    raise InterruptedByUserError(msg) from problem
                if not said:
                    place.say(f"{problem} Waiting for it.")
                said = True
            else:
                break
        yield engine


def open_session(
    asked: Options,
    place: Place,
    arms: Mapping[Variant, Sequence[Checkout]],
    programs: Sequence[Program],
    engine: Engine,
    host: HostEntry,
) -> Session:
    """A session on the builds of each arm, whose statistic is what calibration found here."""
    base, head = arms["base"][0], arms["head"][0]
    statistics: set[Statistic] = set()
    with contextlib.suppress(StateUnusableError):
        kept = calibrate.kept_at()
        statistics = {calibrate.kept_statistic(kept, host.key, p.definition) for p in programs}
    inputs = asked.inputs.model_copy(
        update={"statistic": statistics.pop() if len(statistics) == 1 else "mean"}
    )
    shared = bring.shared(head.top, head.cwd, asked.links)
    rebuilt = [each for builds in arms.values() for each in builds[1:]]
    bench = Bench(
        engine=engine,
        between=origins.difference(base, head, shared, rebuilt),
        builds=arms,
        scratch=place.scratch,
        device=first_gpu,
        window=MeasurePlan(mode="window", measure_s=asked.window_s),
        metric=inputs.metric,
        limits=asked.limits,
        own_figures=inputs.own_figures,
        # A runner's checkout is thrown away; where an isolation holds, its .git is kept from head.
        allow_writes=asked.allow_writes
        or (os.environ.get("CI") == "true" and bool(walls.unprotected(head.cwd))),
    )
    session = Session(
        bench=bench,
        asked=tuple(programs),
        inputs=inputs,
        say=place.say,
        why_base_fails=lambda said: _why_base_fails(head, base, said),
    )
    for program in programs if bench.between else ():
        session.know(program.name, known.names(program, base, asked.history))
    return session


def _why_base_fails(head: Checkout, base: Checkout, said: str) -> str | None:
    """What base lacks that head has, and how it can have it."""
    path = known.left_behind(head, base, said)
    if path is None:
        return None
    return (
        f"{path!r}, which git ignores, is in head and not in base: share it with --link {path}, "
        "or make it in --setup"
    )


def set_up(
    asked: Options, place: Place, session: Session, arms: tuple[Variant, ...] | None = None
) -> None:
    """Run --setup once in each build of `arms`, else of both: a head that cannot be built is an
    error, a base no baseline."""
    if asked.setup is None:
        return
    builds = session.bench.builds
    same = builds["base"][0] is builds["head"][0]
    for arm in arms or (("head",) if same else ARMS):
        for number, checkout in enumerate(builds[arm]):
            many = f", build {number + 1} of {len(builds[arm])}" if len(builds[arm]) > 1 else ""
            session.say(f"setting up {arm}{many}")
            failed = _set_up(asked.setup, place, session, arm, checkout)
            if failed is None:
                continue
            for program in session.asked:
                if arm == "base":
                    session.fail_base(program.name, f"base: {failed}", failed)
                else:
                    session.close(program.name, error=f"head: {failed}")
            break


def _set_up(
    command: str, place: Place, session: Session, arm: Variant, checkout: Checkout
) -> str | None:
    """Why the setup of one checkout failed; None if it went well."""
    builds = session.bench.builds
    scratch = place.scratch / f"setup-{arm}-{builds[arm].index(checkout)}"
    called_in = git(place.cwd, "rev-parse", "--show-toplevel")
    others = [each.top for arm in ARMS for each in builds[arm]] + [Path(called_in or place.cwd)]
    failed = setup.set_up(
        checkout.cwd,
        command,
        {"GPU_ADVISOR_ARM": arm, "GPU_ADVISOR_HEAD": str(builds["head"][0].top)},
        scratch=scratch,
        limit_s=SETUP_LIMIT_S,
        cancel=place.cancel,
        confined=walls.of_setup(checkout, others, scratch, place.scratch, place.steering),
    )
    require_room(place.scratch)
    return failed


def measured(session: Session, host: HostEntry, mode: Mode) -> GateRecord:
    """Run the session and make its record: an invalid one, of what there is, if interrupted."""
    try:
        session.run()
    except InterruptedByUserError as problem:
        session.say(str(problem))
        return compose(session, host, mode).model_copy(
            update={"verdict": "invalid", "reason": str(problem)}
        )
    return compose(session, host, mode)


def compose(session: Session, host: HostEntry, mode: Mode) -> GateRecord:
    """The record of what `session` has measured."""
    programs = tuple(session.programs.values())
    builds = session.bench.builds
    record = decided(programs, session.inputs, host, mode)
    unseen = [said for p in programs if (said := origins.unseen(p, session.bench.between))]
    return record.model_copy(
        update={
            "base": builds["base"][0].revision,
            "head": builds["head"][0].revision,
            "notes": [*record.notes, *unseen],
        }
    )


def decided(
    programs: Sequence[ProgramEntry], inputs: Inputs, host: HostEntry, mode: Mode
) -> GateRecord:
    """A record with the verdict that `programs` and `inputs` lead to."""
    found = decide(programs, inputs)
    leading = found.leading
    pairs = [pair for program in programs for pair in program.pairs]
    return GateRecord(
        verdict=found.verdict,
        reason=f"{leading.name}: {found.reason}" if leading else found.reason,
        slowdown_pct=leading.slowdown_pct if leading else None,
        ci_low_pct=leading.ci_low_pct if leading else None,
        ci_high_pct=leading.ci_high_pct if leading else None,
        mde_pct=leading.mde_pct if leading else None,
        pairs=leading.pairs if leading else 0,
        discarded_pairs=found.discarded_pairs,
        workloads=list(found.workloads),
        mode=mode,
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=inputs,
        base=Revision(),
        head=Revision(),
        host=host,
        validity=validity.statement(pairs),
        programs=list(programs),
        notes=list(found.notes),
    )


# --- the host -----------------------------------------------------------------------------


def first_gpu() -> Gpu | None:
    """The GPU that a program is shown first, asked anew."""
    gpus, _ = read_gpus()
    return gpus[0] if gpus else None


def host_entry(machine: Machine, clock_state: str, python: str, cwd: Path) -> HostEntry:
    """The facts of the host that belong into a record."""
    gpu = machine.gpus[0] if machine.gpus else None
    python_version, torch_version = software(python, cwd)
    return HostEntry(
        key=machine.key,
        cpu=machine.cpu_model,
        cpus=machine.cpus,
        ram_gib=machine.ram_gib,
        os=machine.os,
        gpus=[found.name for found in machine.gpus],
        driver=gpu.driver if gpu else None,
        power_limit_w=gpu.power_limit_w if gpu else None,
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        cpu_governor=_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_1min=os.getloadavg()[0],
        python=python_version,
        torch=torch_version,
        clocks=clock_state,
    )


def software(python: str, cwd: Path) -> tuple[str | None, str | None]:
    """Versions of the interpreter that measured programs use, and of its torch; None: not found."""
    path = shutil.which(python)
    if path is None:
        return None, None
    try:
        done = subprocess.run(
            # -I: the checkout's platform.py is not platform
            [path, "-I", "-c", PROBE_STACK],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    lines = [*done.stdout.split(), None, None]
    return lines[0], lines[1]


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
