"""Run of one process: observations, windows, effects, or its failure."""

from dataclasses import dataclass, field
from typing import Literal

from advisor.model.work import WorkFacts

JsonScalar = str | int | float | bool | None

KnobClass = Literal["free", "training", "numeric", "quality"]
"""Changes of results: free: none; training: its course; numeric: rounding; quality: all."""

Phase = Literal["train", "eval", "test", "any"]

Purpose = Literal[
    "baseline",
    "search",
    "effects",
    "quality",
    "confirm",
    "whatif",
    "profile",
    "gate",
]

EffectVerdict = Literal["took effect", "ignored", "other", "unknown"]
"""other: seen at a value that is neither the old nor the new one; unknown: not seen."""

TrainingSign = Literal["optimizer", "backward", "gradients"]
"""optimizer: one of torch's stepped; the others: the program steps by itself."""

SAMPLER_FORWARDS = 4
"""From so many forwards a unit it is an iterative sampler.

Judgement: fewer are those of guidance or of an ensemble too, and a sampler of three steps or fewer
is taken for one of these."""

Counted = Literal[
    "update",
    "loader batch",
    "sampler item",
    "generation",
    "rollout",
    "slice",
    "written item",
    "output line",
    "whole run",
    "step",
    "row of a forward",
    "loaded sample",
]
"""What a rate counts. Rates that count different things are never compared."""

UNFINISHED: dict[Counted, str] = {
    "step": "neither a layer nor the batch asked for tells how many samples a step holds",
    "row of a forward": "no item was seen to be finished, only rows of forwards",
    "loaded sample": "no module was called for the batches of the loader",
}
"""Of these nothing shows that an item is finished: their batch is never written."""

TRAINING_STEPS = ("optimizer step", "training step")
"""Kinds of step with an update: by torch's optimizer, or the program's own."""

BEFORE_TRAINING = (
    "No optimizer step was seen: if this is a training, shorten its first evaluation"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Observed behaviour of a program.

    A setting counts only if the program was seen to follow it, and that is seen here. None is
    "not seen", which proves nothing either way.
    """

    batch: float | None = None
    """Units in one loader batch or one root forward; not times accumulation."""
    batch_asked: int | None = None
    """Configured batch size; `batch` is less where the data cannot fill it."""
    workers: int | None = None
    """Loader worker processes alive during the window."""
    data_items: int | None = None
    """Items of one pass over the measured DataLoader, of all ranks."""
    left_out: int | None = None
    """Samples of one pass over the loader that drop_last leaves out."""
    padding_share: float | None = None
    """Share of padding among the positions of the loader's batches."""
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    loader_arguments: tuple[tuple[str, JsonScalar], ...] = ()
    """Arguments of the measured DataLoader as they were in force, by name."""
    dtype: str | None = None
    """Dominant dtype of compute: autocast's if on, else the model's."""
    autocast_dtype: str | None = None
    tf32: bool | None = None
    """True if all of the model's float32 products worth a word may be computed in TF32:
    convolutions and recurrent layers may by default, matrix products only when asked to."""
    cudnn_benchmark: bool | None = None
    threads: int | None = None
    """CPU threads that torch gives one operation."""
    compiled: bool | None = None
    channels_last: bool | None = None
    """True if the weights of all 2-d convolutions lie channels-last; None without any."""
    accumulation: float | None = None
    """Backward passes of one update."""
    trains: TrainingSign | None = None
    """Clearest sign of a training; None: there was none."""
    world_size: int | None = None
    """Processes that did the work, ranks of one group or not."""
    group_size: int | None = None
    """Ranks that make each update together; 1 without a group."""
    group_batch: float | None = None
    """Sum of the batches of all ranks for one forward pass."""
    forwards_per_unit: float | None = None
    input_shapes: tuple[str, ...] = ()
    """Shapes of the root module's inputs without their batch: `3x64x64`."""
    device: str | None = None
    fused: bool | None = None
    """True if the optimizer updates all parameters in one kernel; None if it cannot."""
    recomputes: bool | None = None
    """True if torch computed activations twice; None if unseen."""
    loader_site: str | None = None
    """`trainer.py:88` where the measured DataLoader was built."""
    model_site: str | None = None
    """`trainer.py:95` where the root module was called."""
    parameters: int | None = None
    """Numbers that the root module may learn."""
    all_parameters: int | None = None
    """Numbers that all called modules may learn, each once, however they are wrapped."""
    inputs: tuple[tuple[float, ...], ...] = ()
    """What went into the first three calls of the root module, by call: up to 64 numbers, evenly
    spread over the first item, of each of at most four tensors."""
    outputs: tuple[tuple[float, ...], ...] = ()
    """What came out of the same calls, sampled in the same way."""
    carries: bool | None = None
    """The root module's call of a batch gets what that of the batch before gave, as a hidden state.
    None: fewer than two batches were looked at."""
    rows: tuple[tuple[float, ...], ...] = ()
    """Of each of the first rows that came out, 64 at most: how many numbers it has, and up to 8 of
    them. Empty where a result has no row for each item, and of a training."""
    arguments: tuple[tuple[str, JsonScalar], ...] = ()
    """Values from the program's argparse parsers, by destination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideOutcome:
    """What became of one of a plan's overrides inside the process."""

    knob: str
    """Knob as the plan named it: `num_workers`, `compile`."""
    applied: bool
    why: str | None = None
    cost_s: float | None = None
    """Paid once, before the window: compilation."""
    caution: str | None = None
    """Difference it may make beyond speed."""
    one_tensor: bool | None = None
    """Autocast: the model gives one tensor, which went on in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Card used by a process, as CUDA reports it."""

    index: int
    """Number that CUDA gives the card in that process; NVML may number the cards otherwise."""
    name: str | None = None
    uuid: str | None = None
    """As torch spells it; None before torch 2.5."""
    total_gib: float | None = None
    available_gib: float | None = None
    """Free, and held by the process itself: all it could have."""
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Floating-point operations of one step by torch's formulas."""

    per_step: float | None = None
    """At least: operations without a formula of torch are not counted."""
    by_dtype: tuple[tuple[str, float], ...] = ()
    """Operations of a step by the dtype in which the card computed; `tf32` is one of its own."""
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPoint:
    """Code line at which the host waits for the device."""

    site: str
    """`train.py:83`"""
    call: str
    """The method: `item`, `cpu`, `__bool__`."""
    per_step: float
    ms: float
    """Mean wait of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Peak bytes of a training step on the card, by kind."""

    model: int
    """Parameters and buffers."""
    gradients: int
    optimizer: int
    """State kept from step to step."""
    activations: int
    """All else: the batch, results of forwards, backwards and updates."""

    @property
    def whole(self) -> int:
        return self.model + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCeiling:
    """Rate of the loader alone."""

    workers: int
    units_per_s: float
    busy_cpus: float | None = None
    """CPU seconds a second of the process and its workers meanwhile."""
    worker_gib: float | None = None
    """Largest memory that one worker shares with no other."""
    shm_gib: float | None = None
    """What their batches took of /dev/shm, all workers together."""
    free_shm_gib: float | None = None
    """Free there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of the window's time, validation left out; they sum to 1 if steps were recorded.

    On a CPU the host's time is divided, by what it did. On a device it is the device's time: by
    its work, and by what the host did while the device had none.
    """

    data_wait: float | None = None
    host_to_device: float | None = None
    """A device was idle while the host copied to it, or could not queue ahead for that."""
    compute: float | None = None
    """The host was in the model's calls; a device was at work."""
    launch: float | None = None
    """A device had only the kernels the host was just launching."""
    sync: float | None = None
    """A device was idle as the host had waited instead of queueing ahead."""
    exchange: float | None = None
    """A device was through with its own work, and waited for other ranks or exchanged numbers
    with them. None where that was not timed: one rank, or ranks on CPUs."""
    other: float | None = None
    """Host code between the calls above; beside a device, with nothing queued."""
    saving: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Rank that works longest of a step, without waiting for others."""

    rank: int
    own_ms: float
    """Own time of the rank in a step: on a card without the exchange, on CPUs without backward
    passes, in which ranks wait for each other."""
    others_ms: float
    """Median of the other ranks."""
    part: str
    """Field of `Shares` with most of the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPhase:
    """Part of a whole run, such as `validation` or `saving`."""

    name: str
    seconds: float
    times: int
    """Steps of the work itself; else how often the part came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStage:
    """Network of a multi-network inference."""

    name: str
    site: str | None = None
    """`relight.py:61` where it was called first."""
    share: float
    """Share of the window's time in calls of this network; on a device, in which it computed for
    them."""
    calls_per_unit: float
    batch: float | None = None
    """Most frequent number of items of one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """External readings over the window; gaps are None."""

    gpu_util_pct: float | None = None
    """Share of time with any kernel at work on the card, as NVML tells it: never too low."""
    gpu_mem_used_gib: float | None = None
    """Peak of the memory in use on the whole card by all programs, as NVML tells it."""
    gpu_mem_others_gib: float | None = None
    """Peak of the card's memory that processes of others held, at work or not."""
    power_w: float | None = None
    energy_j: float | None = None
    """Growth of the card's energy counter; None where others worked on the card, too."""
    sm_clock_mhz: float | None = None
    """Median over the busy samples."""
    sm_clock_spread_pct: float | None = None
    """Middle 90 % of the busy samples' SM clock, as percent of its median."""
    event_reasons: tuple[tuple[str, float], ...] = ()
    """Name of the clock event reason and the share of busy samples that carried it."""
    busy_samples: int | None = None
    """Samples with work on the GPU, or None."""
    foreign_pids: int | None = None
    """Processes at work on the GPU that are not the program's own; where the driver does not say
    who works, all that hold a context there."""
    gaps: tuple[tuple[str, str], ...] = ()
    """Reading and the reason it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another program that was at work on this host."""

    name: str
    """Name of the other program's command: `firefox`."""
    cpus: float
    """CPUs it kept busy: 0.5 is half of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """Load of other programs during the window."""

    disturbed: bool | None = None
    """True if the rate includes disturbed time; None if unknown."""
    own_cpus: float | None = None
    """Mean number of CPUs that the run kept busy."""
    others_cpus: float | None = None
    """Mean number of the run's CPUs that other processes kept busy."""
    steal_share: float | None = None
    """Share of CPU time that the hypervisor gave to others."""
    foreign_gpu_pids: int | None = None
    """Processes on the card that are not the run's own."""
    clocks_held: tuple[tuple[str, float], ...] = ()
    """Clock event reasons that held the card down, by share of busy samples."""
    who: tuple[Neighbour, ...] = ()
    """The busiest others, most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """Result file of a run, with counted items."""

    path: str
    items: int
    size_bytes: int
    written_at: float | None = None
    """Last write, in epoch seconds of the file system."""
    first: tuple[tuple[float | str, ...], ...] = ()
    """Values of the first items, in order; of texts a digest."""
    sampled: bool = False
    """True for values of pictures or sounds: a few may differ."""
    digest: str | None = None
    """Digest of the file, if its content is unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Measured process; kept in history before any decision.

    Figures are those of its window, the time behind the warm-up, unless they say otherwise. Of
    several ranks units and rates are sums, memory is the largest, and the shares are those of
    the rank that the others wait for. None is "not measured".
    """

    # Its rate
    unit: str
    """`sample`, or the name of what was counted where nothing shows a finished item."""
    units: float
    """Units of work finished inside the window."""
    units_before: float = 0.0
    """Units of work finished before the window."""
    units_per_s: float
    tokens_per_s: float | None = None
    """Token positions a second without known padding; None: no tokens."""
    rate_source: str
    """Way of counting units: `optimizer steps x batch`."""
    counted: Counted | None = None
    """What was counted; None: a run kept by an earlier version."""
    window_start: float
    window_end: float
    """Epoch seconds of the measured window."""
    windows: tuple[float, ...] = ()
    """Units/s of consecutive sub-windows: for steadiness, never a sample."""
    step_kind: str | None = None
    step_ms: float | None = None
    """Mean wall time of a training step, loader batch or root forward."""
    latency_p50_ms: float | None = None
    """Median time of a batch, in ms; None where the window holds no whole batch."""
    latency_p95_ms: float | None = None
    """95th percentile of the time of a batch, in ms; of fewer than 20 batches the longest."""
    whole_units: float = 0.0
    """Units finished from load to result, not extrapolated from forwards."""
    to_its_end: bool = False
    """The program ended by itself, with its whole work done."""

    # Where its time went
    wait_share: float | None = None
    """Share of the window in the loader's `__next__`; None without a loader."""
    shares: Shares = field(default_factory=Shares)
    probe_share: float = 0.0
    """Share of the window in the probe's hooks, on a CPU, by their measure."""
    stages: tuple[NetworkStage, ...] = ()
    """Networks in turn in an inference, by their first calls."""
    phases: tuple[RunPhase, ...] = ()
    """Phases of the whole process, whose seconds sum to its wall time; none for several ranks."""
    ceilings: tuple[LoaderCeiling, ...] = ()
    """Rates of the loader alone by number of workers; only where no rank works beside it."""
    syncs: tuple[SyncPoint, ...] = ()
    """Lines at which the host waits for the device, the costliest first."""
    flops: Flops | None = None
    """None if no card computed, or the plan did not ask for it."""
    startup_s: float | None = None
    """Process start to first step."""
    window_ended_s: float | None = None
    """Process start to the window's end; diagnostics follow it."""
    wall_s: float = 0.0

    # Memory
    peak_mem_gib: float | None = None
    """Peak of live tensors by the device's allocator; without a device the process tree's RSS."""
    peak_host_gib: float | None = None
    """Peak RSS of the process tree."""
    peak_device_gib: float | None = None
    """Peak of all that the device's allocator held, with freed blocks: the card must have it."""
    host_growth_gib_per_min: float | None = None
    """Growth of host memory after the first third of a run; None for one below a minute."""
    footprint: Footprint | None = None
    """None without a card, an optimizer of torch, or the plan's request."""

    # What it did
    effects: Effects = field(default_factory=Effects)
    work: WorkFacts | None = None
    """None where the process could not tell: it was killed, or has no probe."""
    losses: tuple[float, ...] = ()
    """Losses of the first and of the latest backward passes, at most 256 of each."""
    overrides: tuple[OverrideOutcome, ...] = ()
    """One for each of the plan's; empty if it had none, or the probe could not say."""
    trace: dict[str, object] | None = None
    """Operations and storages of one step, as the probe wrote them: untrusted."""

    # The machine, and who else used it
    telemetry: Telemetry = field(default_factory=Telemetry)
    disturbance: Disturbance = field(default_factory=Disturbance)
    cards: tuple[Card, ...] = ()
    """Cards of the model, one a rank; none on a CPU, or if not seen."""

    # Its ranks
    ranks: int = 1
    rank_units_per_s: tuple[float, ...] = ()
    """Rate of each rank."""
    rank_mem_gib: tuple[float, ...] = ()
    """Device allocator peak of each rank; none on a CPU."""
    backward_share: float | None = None
    """Share of the window in backward passes, at whose end ranks wait for each other."""
    straggler: Straggler | None = None
    """Rank that the others wait for at an update; the shares of the time are those of this one."""

    # What it left
    files_created: tuple[str, ...] = ()
    """Outside scratch, relative to the working directory; an overlay drops them."""
    files_changed: tuple[str, ...] = ()
    """User's files that the program altered or removed, named likewise."""
    files_in_window: int | None = None
    """Files that are no logs, last written inside the window; None: unknown."""
    results: tuple[ResultFile, ...] = ()
    """Files of items left by the run, as far as the isolation shows them."""
    isolation: str | None = None
    """Isolation of writes: overlay, landlock, or guard (only names)."""
    exit_code: int | None = None
    stdout_tail: str = ""
    figures: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts that the plan's patterns matched in the whole output, by name."""
    cut_lines: int = 0
    """Lines of output too long to be searched whole."""
    notes: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        """True if the program may train."""
        return self.step_kind in TRAINING_STEPS or self.effects.trains is not None

    @property
    def updates(self) -> bool:
        """True if training updates were certain."""
        return self.step_kind in TRAINING_STEPS or self.effects.trains == "optimizer"

    @property
    def way(self) -> str:
        """Way of counting, in words; runs counted in other ways are never compared."""
        unfinished = self.counted in UNFINISHED
        return f"{self.counted}, {self.rate_source}" if unfinished else self.rate_source

    @property
    def unseen(self) -> bool:
        """True if the probe saw no model."""
        seen = self.effects
        return self.step_kind is None and seen.model_site is None and not seen.input_shapes

    @property
    def on_gpu(self) -> bool:
        return (self.effects.device or "").startswith("cuda")

    @property
    def device_note(self) -> str | None:
        """Sentence on a device of which neither torch.cuda nor NVML tells; None on any other.

        Kernels of Apple's and Intel's devices (mps, xpu) run behind the host's back, as those of
        CUDA do, and no clock or counter of ours reads them yet.
        """
        device = (self.effects.device or "cpu").partition(":")[0]
        if device in {"cpu", "cuda"}:
            return None
        return (
            f"The model ran on `{device}`: the host's clock alone timed its work, and its memory "
            "was not read."
        )

    @property
    def achieved_tflops(self) -> float | None:
        """Counted operations per second of step time, in units of 1e12."""
        if self.flops is None or not self.flops.per_step or not self.step_ms:
            return None
        return self.flops.per_step / self.step_ms * 1e-9

    @property
    def held_gib(self) -> float | None:
        """Required memory: device reserved, else host peak."""
        return self.peak_mem_gib if self.peak_device_gib is None else self.peak_device_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Failure of a process to do its work: it has no rate, and what it told is its evidence."""

    kind: str
    """A key of errors.FAILURE_EXIT_CODES."""
    evidence: str
    next_step: str
    log_tail: str = ""
    effects: Effects | None = None
    """Effects seen before it failed; None where it loaded nothing."""
    exit_code: int | None = None
    wall_s: float = 0.0
    files_created: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    isolation: str | None = None
    gpu_mem_others_gib: float | None = None
    """Peak of the card's memory that others held meanwhile."""
    figures: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts that the plan's patterns matched in the whole output, by name."""
    cut_lines: int = 0
    """Lines of output too long to be searched whole."""
