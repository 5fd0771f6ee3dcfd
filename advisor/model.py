"""The domain's nouns: facts we made, frozen, with units in their names.

`None` always means "not measured" or "not known"; it is never written as 0.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

JsonScalar = str | int | float | bool | None

KnobClass = Literal["free", "training", "numeric", "quality"]
"""free: results cannot change; training: optimisation changes; numeric: rounding changes;
quality: the product itself changes."""
Tier = Literal["safe", "balanced", "fastest"]
TIERS: dict[Tier, frozenset[KnobClass]] = {
    "safe": frozenset({"free", "training"}),
    "balanced": frozenset({"free", "training", "numeric"}),
    "fastest": frozenset({"free", "training", "numeric", "quality"}),
}
"""How far results may change: not, by rounding, in the product; and the classes that then may."""

Phase = Literal["train", "eval", "test", "any"]

Purpose = Literal[
    "baseline",
    "search",
    "effects",
    "quality",
    "confirm",
    "whatif",
    "scaling",
    "profile",
    "gate",
]

EffectVerdict = Literal["took effect", "ignored", "unknown"]

TrainingSign = Literal["optimizer", "backward", "gradients", "moved", "asked"]
"""optimizer: one of torch's stepped; backward, gradients: the program takes gradients and steps by
itself; moved: its parameters changed; asked: it takes gradients that may only be guidance."""


TRAINING_STEPS = ("optimizer step", "training step")
"""Kinds of step that end in an update: of an optimizer of torch's, or of the program's own."""


# --- documents and knobs ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Half-open byte range in the file as it lies on disk."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One leaf of a document: what it means, how it is spelled, and where its bytes are."""

    path: str
    """`a.b[0].c`; a key with a character outside `[A-Za-z0-9_/+-]` is written `["odd.key"]`."""
    value: JsonScalar
    text: str
    """The value as spelled in the file."""
    span: Span
    editable: bool = True
    why: str | None = None
    """Why it is not editable: an alias, an interpolation, a block scalar."""
    comment: str | None = None
    """Comment on the same line, or directly above it."""
    choices: tuple[JsonScalar, ...] = ()
    """The only values the program takes, where that is known."""
    default_of: str | None = None
    """`train.py:12`: it is written there as the program's default, and not in this document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One tunable setting of the user's program, where it is written down."""

    document: str
    """Path of the document as the user named it, or `command line`."""
    path: str
    kind: str
    """A kind of the catalogue: batch_size, num_workers, prefetch_factor, timesteps, ..."""
    phase: Phase
    knob_class: KnobClass
    value: JsonScalar | tuple[JsonScalar, ...]
    unit: str | None = None
    """What one count of the value is: sample, token, frame, second, ray."""
    scope: str | None = None
    """device, global or micro: who shares the value."""
    editable: bool = True
    why: str = ""
    """Why it is taken for a knob, and if not editable, why not."""
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Knobs that move together or not at all."""

    kind: str
    """product, exclusive, needs-workers, schedule, fixed, lr-batch, equal, multiple, reference,
    override"""
    paths: tuple[str, ...]
    why: str
    document: str = ""
    """The document all the paths are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A look-alike that must not be tuned."""

    document: str
    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value of one document, before and after."""

    document: str
    path: str
    kind: str
    knob_class: KnobClass
    old: JsonScalar
    new: JsonScalar
    name: str | None = None
    """What it is called where it must be told from another knob: `train.batch_size`. None: by the
    last part of its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A set of changes against the document as the user wrote it. No changes: the original."""

    changes: tuple[Change, ...] = ()

    @property
    def key(self) -> str:
        """Stable identity of the values, whatever the order in which they were chosen."""
        values = sorted((c.document, c.path, c.new) for c in self.changes)
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """`batch_size=8 n_timestep=50`, or `original`; a schedule that follows is not repeated."""
        own = [c for c in self.changes if c.kind != "schedule"] or self.changes
        shown = [f"{c.name or _leaf(c.path)}={json.dumps(c.new)}" for c in own]
        return " ".join(shown) or "original"

    def with_changes(self, *changes: Change) -> Candidate:
        """This candidate with `changes` on top; a change back to the old value drops out."""
        merged = {(c.document, c.path): c for c in (*self.changes, *changes)}
        return Candidate(changes=tuple(c for c in merged.values() if c.new != c.old))

    def only(self, *classes: KnobClass) -> Candidate:
        """The part of this candidate that belongs to `classes`."""
        return Candidate(changes=tuple(c for c in self.changes if c.knob_class in classes))


def _leaf(path: str) -> str:
    return path.rsplit(".", 1)[-1]


# --- trials and what came of them ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """What the probe is asked to do inside one process."""

    mode: Literal["window", "whole", "observe"] = "window"
    """window: stop once the window is full. whole: let the program end by itself, measuring.
    observe: record effects only, never stop."""
    measure_s: float = 3.0
    min_steps: int = 20
    whole_batches: int = 0
    """In window mode, finish at least this many loader batches before stopping."""
    longest_s: float | None = None
    """In window mode, stop so long after the first step however full the window is: for a run of
    which only the effects are asked for."""
    forwards_per_unit: float | None = None
    """Known from an earlier whole unit: lets an iterative sampler stop inside a batch."""
    ceilings_workers: tuple[int, ...] = ()
    """After the window: replay a cached batch (compute alone), then iterate the program's own
    DataLoader alone at each of these worker counts."""
    ceilings_s: float = 1.5
    whatif: str | None = None
    """A what-if of the catalogue, tried in-process: `channels_last`,
    `loader.num_workers=4,loader.prefetch_factor=4@train.py:88`, ..."""
    in_turn: tuple[str, ...] = ()
    """Switches of the same catalogue: after the window each is put on for a spell and taken off
    again, while the process runs on."""
    memory_cap_gib: float | None = None
    """Cap on the CUDA allocator, to stand in for a smaller card."""
    unit_regex: str | None = None
    """Count output lines that match; group 1, if any, is a number of units."""

    @property
    def whole(self) -> bool:
        """Whether a run of this plan finishes at least one item."""
        return self.mode == "whole" or self.whole_batches > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFile:
    """A candidate file, written beside `original` and removed after the trial."""

    original: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """What the probe is to tell of the files that a program loads."""

    roots: tuple[str, ...]
    """Folders, links resolved, of which every file that runs is told."""
    names: tuple[str, ...]
    """Names without a folder: such a file is told with its hash, wherever it lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One fresh process to be run: self-contained, so that any engine can run it."""

    id: str
    purpose: Purpose
    label: str
    candidate: Candidate
    command: tuple[str, ...]
    """The user's argv; tokens that name a TrialFile's original are replaced by its copy."""
    cwd: str
    scratch: str
    """Directory of this trial alone: TMPDIR, outputs, probe records, logs."""
    files: tuple[TrialFile, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    plan: MeasurePlan = field(default_factory=MeasurePlan)
    unit: str = "sample"
    start_limit_s: float = 300.0
    """Longest wait for the first step."""
    hang_limit_s: float = 60.0
    """Longest silence after a step."""
    total_limit_s: float = 600.0
    steps_limit_s: float | None = None
    """Longest time from the first step to the end of the window; None: as long as the others."""
    allow_writes: bool = False
    """Let the program open the user's existing files for writing, where nothing isolates it."""
    spared: tuple[str, ...] = ()
    """Absolute paths that are not written all the same. Where Landlock holds, nothing can then be
    made beside them either."""
    made: tuple[str, ...] = ()
    """Files that earlier trials created, relative to `cwd` or absolute: not the user's."""
    caches: str | None = None
    """Folder that keeps what trials add to caches, for the later trials of the same call."""
    origins: Origins | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What the program really did, as the probe saw it."""

    batch: float | None = None
    """Units in one loader batch or one root forward; not times accumulation."""
    batch_asked: int | None = None
    """What the DataLoader was built with; `batch` is less where the data cannot fill it."""
    workers: int | None = None
    """Loader worker processes alive during the window."""
    data_items: int | None = None
    """Items of the data set that the measured DataLoader goes through."""
    left_out: int | None = None
    """Samples of one pass over the loader that drop_last leaves out."""
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    dtype: str | None = None
    """Dominant dtype of compute: the autocast dtype if on, else the model's: float32, bfloat16."""
    autocast_dtype: str | None = None
    tf32: bool | None = None
    cudnn_benchmark: bool | None = None
    threads: int | None = None
    """CPU threads that torch gives one operation."""
    compiled: bool | None = None
    channels_last: bool | None = None
    accumulation: float | None = None
    trains: TrainingSign | None = None
    """What was seen that speaks for a training, the clearest sign; None: nothing was."""
    world_size: int | None = None
    forwards_per_unit: float | None = None
    input_shapes: tuple[str, ...] = ()
    """Shapes of the root module's tensor inputs, batch dimension left out: `3x64x64`."""
    device: str | None = None
    fused: bool | None = None
    """Whether the optimizer updates all parameters in one kernel; None where it cannot."""
    set_to_none: bool | None = None
    """Whether zero_grad dropped gradients instead of filling them with zeros."""
    loader_site: str | None = None
    """`trainer.py:88` where the measured DataLoader was built."""
    model_site: str | None = None
    """`trainer.py:95` where the root module was called."""
    fingerprint: str | None = None
    """Digest of the first root outputs and losses: equal when nothing computed changed."""
    inputs: tuple[tuple[float, ...], ...] = ()
    """Of the first root forwards: some of the numbers that went in, evenly spread."""
    outputs: tuple[tuple[float, ...], ...] = ()
    """The same of what came out."""
    arguments: tuple[tuple[str, JsonScalar], ...] = ()
    """What the program's argparse parsers returned, by destination."""
    defaulted_arguments: tuple[str, ...] = ()
    """Destinations of `arguments` that were not on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """What became of a plan's what-if inside the process."""

    name: str
    """As asked for: `loader.num_workers=4@train.py:88`."""
    applied: bool
    why: str | None = None
    """Why it did not apply."""
    cost_s: float | None = None
    """Paid once, before the window: compilation."""
    caution: str | None = None
    """What may be different with it, beyond speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """A stretch of a running process in which one switch was on, or none."""

    start: float
    """Epoch seconds; what it took to settle lies before it."""
    end: float
    units_per_s: float
    disturbed: bool | None = None
    """Others were in the way; None: the host does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """One switch that took turns with others in one process: enough to choose by, no proof."""

    name: str
    """As asked for: `threads=4`; empty: the program as it is, between the others."""
    applied: bool = True
    why: str | None = None
    """Why it did not apply."""
    spells: tuple[Spell, ...] = ()
    """In order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The card a process computed on, as CUDA told it there."""

    index: int
    """As CUDA counts in that process; NVML may count otherwise."""
    name: str | None = None
    uuid: str | None = None
    """As torch spells it; None before torch 2.5."""
    total_gib: float | None = None
    available_gib: float | None = None
    """Free, and what the process held itself: all that it could have."""
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Floating-point operations of one step, by torch's own formulas for matrix products,
    convolutions and attention."""

    per_step: float | None = None
    uncounted: tuple[str, ...] = ()
    """Operations that torch has no formula for, such as kernels of others' making: there was more
    than what is counted."""
    why: str | None = None
    """Why nothing was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a training step held at its fullest moment, in bytes, by the tensors' own sizes."""

    model: int
    """Parameters and buffers."""
    gradients: int
    optimizer: int
    """What it keeps from step to step."""
    activations: int
    """Made by forwards, the batch among them."""
    workspace: int
    """Made by backwards and updates."""

    @property
    def whole(self) -> int:
        """All of it."""
        return self.model + self.gradients + self.optimizer + self.activations + self.workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCeiling:
    workers: int
    units_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Rates of the parts, each alone in the same process."""

    compute_units_per_s: float | None = None
    loader: tuple[LoaderCeiling, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Parts of the measured window's wall clock; those measured add up to 1."""

    data_wait: float | None = None
    host_to_device: float | None = None
    """A device had nothing to do while the host copied to it, or could not queue ahead for that."""
    compute: float | None = None
    """Of the host in the model's calls; where a device computes, of that device at work."""
    launch: float | None = None
    """A device had no more to do than the kernels that the host was just launching."""
    sync: float | None = None
    """A device had nothing to do because the host had waited for it instead of queueing ahead."""
    other: float | None = None
    """Host code between the calls above: tokenising, clipping, post-processing, writing; where a
    device computes, with nothing queued for it."""
    validation: float | None = None
    sampling: float | None = None
    saving: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A network that the program calls from its own code, one of several that take turns."""

    name: str
    """Of its class."""
    site: str | None = None
    """`relight.py:61` where it was called first."""
    share: float
    """Of the window's wall clock: in its calls; of a device, at work for them."""
    calls_per_unit: float
    batch: float | None = None
    """Items of one call, as most had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Outside-process readings over the window; None where the machine does not say."""

    gpu_util_pct: float | None = None
    gpu_mem_used_gib: float | None = None
    """Highest."""
    gpu_mem_others_gib: float | None = None
    """Highest that processes which are not the program's own held there, at work or not."""
    power_w: float | None = None
    energy_j: float | None = None
    """Growth of the card's energy counter."""
    sm_clock_mhz: float | None = None
    """Median over the busy samples."""
    sm_clock_spread_pct: float | None = None
    """Middle 90 % of the busy samples' SM clock, as percent of its median."""
    mem_clock_mhz: float | None = None
    """Median over the busy samples."""
    temperature_c: float | None = None
    """Highest."""
    event_reasons: tuple[tuple[str, float], ...] = ()
    """Name of the clock event reason and the share of busy samples that carried it (`idle`: of
    all samples)."""
    busy_samples: int | None = None
    """Samples with work on the GPU; None where that cannot be told."""
    foreign_pids: int | None = None
    """Processes at work on the GPU that are not the program's own; where the driver does not say
    who works, all that hold a context there."""
    pcie_tx_mb_per_s: float | None = None
    pcie_rx_mb_per_s: float | None = None
    samples: int = 0
    cpu_util_pct: float | None = None
    """Of the CPUs this process may use; 100 means all of them busy."""
    gaps: tuple[tuple[str, str], ...] = ()
    """Reading and the reason it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another program that was at work on this host."""

    name: str
    """Its command name: `firefox`."""
    cpus: float
    """CPUs it kept busy: 0.5 is half of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What others took from a run inside its measured window; what it does to itself is none.

    A part of the window in which others took next to nothing is clean. Where the clean parts
    are long enough the rate is counted over them alone, and the run is not disturbed.
    """

    disturbed: bool | None = None
    """The rate had to be counted over time that others disturbed; None: the host does not tell."""
    clean_share: float | None = None
    """Share of the window in which nobody disturbed it."""
    others_cpus: float | None = None
    """Mean number of CPUs, of those the run may use, that other processes kept busy."""
    waited_cpus: float | None = None
    """Mean number of the run's own threads that were ready and did not get a CPU."""
    steal_share: float | None = None
    """Share of CPU time that the hypervisor gave to somebody else."""
    foreign_gpu_pids: int | None = None
    """Processes on the card that are not the run's own."""
    clocks_held: tuple[tuple[str, float], ...] = ()
    """Clock event reasons that held the card down, and the share of busy samples of each."""
    who: tuple[Neighbour, ...] = ()
    """The busiest others, most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """A file of items (lines, rows, the first dimension of an array, a picture) that a run left."""

    path: str
    items: int
    size_bytes: int
    first: tuple[tuple[float | str, ...], ...] = ()
    """Values of the first items, in order; of texts a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one process did. Immutable; kept in history before anyone decides on it."""

    trial_id: str
    purpose: str
    label: str
    candidate_key: str
    unit: str
    units: float
    """Units of work finished inside the window."""
    units_per_s: float
    tokens_per_s: float | None = None
    """Token positions a second, without padding where that is known; None: no tokens go in."""
    rate_source: str
    """How the units were counted, in words: `optimizer steps x batch`."""
    window_start: float
    window_end: float
    """Epoch seconds of the measured window."""
    windows: tuple[float, ...] = ()
    """Units/s of consecutive sub-windows; steadiness only, never a sample of runs."""
    disturbance: Disturbance = field(default_factory=Disturbance)
    step_ms: float | None = None
    """Mean wall time of one step: of an optimizer or the program's own training step, of a loader
    batch, or of a root forward."""
    step_kind: str | None = None
    latency_p50_ms: float | None = None
    """Half of the batches were done so long after they were begun, or sooner: what the user of any
    of their items waits. None where only a part of one batch was seen."""
    latency_p95_ms: float | None = None
    """The same of 95 in a hundred; of fewer than 20 the slowest."""
    wait_share: float | None = None
    """Part of the window inside the loader's `__next__`; None without a loader."""
    shares: Shares = field(default_factory=Shares)
    stages: tuple[Stage, ...] = ()
    """Networks that took turns, in the order of their first calls; none of a training, and where
    there is only one."""
    whole_units: float = 0.0
    """Units that were finished from load to result, not extrapolated from forwards."""
    peak_mem_gib: float | None = None
    """Device allocator peak; host peak RSS of the process tree where there is no device."""
    peak_host_gib: float | None = None
    peak_device_gib: float | None = None
    """What the device allocator held at most, freed blocks included: the card must give it."""
    alloc_retries: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    losses: tuple[float, ...] = ()
    quality: tuple[tuple[str, float], ...] = ()
    effects: Effects = field(default_factory=Effects)
    ceilings: Ceilings | None = None
    flops: Flops | None = None
    """None where no card computed, or the plan did not ask for the parts."""
    footprint: Footprint | None = None
    """None where nothing trains by an optimizer of torch's, or the plan did not ask for it."""
    whatif: WhatIfOutcome | None = None
    """None where the plan had none, or the probe could not say."""
    in_turn: tuple[InTurn, ...] = ()
    """Of the plan's switches, the program as it is first; none where none took turns."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    cards: tuple[Card, ...] = ()
    """That the model was on, one for each rank; none on a CPU, or where the probe could not say."""
    ranks: int = 1
    rank_units_per_s: tuple[float, ...] = ()
    files_created: tuple[str, ...] = ()
    """Outside the scratch directory, relative to the working directory. Gone again where the
    isolation throws away what a program writes."""
    files_in_window: int | None = None
    """Files that are no logs, last written inside the window; None: not known."""
    results: tuple[ResultFile, ...] = ()
    """Files of items that the run left, as far as the isolation could look into them."""
    isolation: str | None = None
    """What held the program's writes: overlay, landlock, or guard (nothing but names)."""
    output_digest: str | None = None
    """Digest over names and contents of files written to scratch outputs; whole mode only."""
    stdout_tail: str = ""
    startup_s: float | None = None
    """Process start to first step."""
    exit_code: int | None = None
    wall_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether the program trains, whoever steps; in doubt it does."""
        return self.step_kind in TRAINING_STEPS or self.effects.trains is not None

    @property
    def unseen(self) -> bool:
        """Whether the probe saw no model at work: the units were counted from outside."""
        seen = self.effects
        return self.step_kind is None and seen.model_site is None and not seen.input_shapes

    @property
    def on_gpu(self) -> bool:
        """Whether the model computes on a GPU, where the host's clock sees only the calls."""
        return (self.effects.device or "").startswith("cuda")

    @property
    def achieved_tflops(self) -> float | None:
        """Counted operations over the time that a step took, waits included."""
        if self.flops is None or not self.flops.per_step or not self.step_ms:
            return None
        return self.flops.per_step / self.step_ms * 1e-9

    @property
    def held_gib(self) -> float | None:
        """Memory that must be there for it: reserved on the device, else the host's peak."""
        return self.peak_device_gib or self.peak_mem_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A process that did not do the work, whatever its exit code."""

    trial_id: str
    purpose: str
    label: str
    candidate_key: str
    kind: str
    """A key of errors.FAILURE_EXIT_CODES."""
    evidence: str
    next_step: str
    log_tail: str = ""
    effects: Effects | None = None
    """What was seen of it before it failed; None where it did not come to load anything."""
    exit_code: int | None = None
    wall_s: float = 0.0
    files_created: tuple[str, ...] = ()
    isolation: str | None = None
    gpu_mem_others_gib: float | None = None
    """Highest that others held on the card meanwhile."""


# --- machines -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile:
    """Datasheet figures of one card: dense rates, 16-bit inputs with fp32 accumulation."""

    name: str
    """`rtx-3090`"""
    title: str
    """`NVIDIA GeForce RTX 3090`"""
    match: tuple[str, ...]
    """Device names (lower case) that mean this card."""
    memory_gib: float
    bandwidth_gb_per_s: float
    fp32_tflops: float
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    tdp_w: float
    compute_capability: str
    l2_mb: float | None
    pcie: str
    context_mib: int
    eta_compute: float
    eta_bandwidth: float
    source: str

    def tflops(self, dtype: str | None, *, tf32: bool = False) -> float | None:
        """Rate at a compute dtype, by torch name; None where the card has none, or it is not
        known."""
        rates = {
            "float32": self.tf32_tflops if tf32 else self.fp32_tflops,
            "float16": self.fp16_tflops,
            "bfloat16": self.bf16_tflops,
        }
        return rates.get(dtype or "")

    @property
    def precisions(self) -> tuple[str, ...]:
        """Compute dtypes that exist on this card, by torch name."""
        have = [("float32", 1.0), ("float16", self.fp16_tflops), ("bfloat16", self.bf16_tflops)]
        return tuple(name for name, rate in have if rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int
    name: str
    uuid: str | None
    memory_total_gib: float | None
    memory_free_gib: float | None
    driver: str | None
    power_limit_w: float | None
    compute_capability: str | None
    profile: str | None
    mig: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this host is and may use."""

    cpu_model: str
    cpus: int
    """CPUs this process may really use: affinity and cgroup quota, not the socket's count."""
    ram_gib: float
    ram_limit_gib: float
    """The smaller of RAM and the cgroup's limit."""
    shm_gib: float | None
    os: str
    python: str
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str | None = None
    """Why there is no GPU, in one sentence."""
    wsl: bool = False

    @property
    def key(self) -> str:
        """Stable facts only: runs of two machines with the same key may be compared."""
        facts = [
            self.cpu_model,
            self.cpus,
            round(self.ram_gib),
            [g.name for g in self.gpus],
            [g.driver for g in self.gpus],
            [g.power_limit_w for g in self.gpus],
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


# --- statistics and decisions -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the bounds it was proven to lie between."""

    estimate: float
    low: float
    high: float
    n: int
    """Number of independent units (processes or pairs of processes)."""
    confidence: float = 0.95


Outcome = Literal["changed", "advised", "kept", "refused", "ignored", "listed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one knob, and on which evidence; the sentence is the report's."""

    document: str
    path: str
    kind: str
    knob_class: KnobClass
    outcome: Outcome
    old: JsonScalar | tuple[JsonScalar, ...]
    new: JsonScalar | tuple[JsonScalar, ...]
    reason: str
    """A key of the sentences that the report has."""
    data: tuple[tuple[str, JsonScalar], ...] = ()
    """What the sentence is filled with."""
    trials: tuple[str, ...] = ()
    """Ids of the processes in which the knob was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is proven and not ours to write: code sites, a training batch."""

    kind: Literal["switch", "loader", "training-batch"]
    title: str
    gain: Interval
    data: tuple[tuple[str, JsonScalar], ...] = ()
    """What the sentence is filled with."""
    site: str | None = None
    patch: str | None = None
