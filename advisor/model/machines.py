"""Facts of a host and its cards."""

from dataclasses import dataclass

from advisor.model.settings import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile:
    """Datasheet of one card: dense rates and memory."""

    name: str
    """`rtx-3090`"""
    title: str
    """`NVIDIA GeForce RTX 3090`"""
    match: tuple[str, ...]
    """Device names (lower case) that mean this card."""
    memory_gib: float
    """Memory of the card; a program gets less."""
    bandwidth_gb_per_s: float
    """Peak rate of its memory, in 1e9 bytes a second."""
    fp32_tflops: float
    """Peak rate in float32 without tensor cores, in 1e12 operations a second."""
    tf32_tflops: float | None = None
    """Peak rate of dense products on tensor cores; None: it has none for this type."""
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    tdp_w: float
    """Power at which it may run for long."""
    compute_capability: str
    context_mib: int
    """Memory that a CUDA context of one process takes on it."""
    source: str
    """Page of each figure; what has none is called not sourced."""
    short: str | None = None
    """Family name that means this card: `h100`."""
    launch_s: float | None = None
    """Host time to launch one operation, where measured."""
    measured_on: str | None = None
    """Day the rates were measured; None: the datasheet's."""

    def tflops(self, dtype: str | None, *, tf32: bool = False) -> float | None:
        """Peak TFLOPS at a compute dtype, or None."""
        rates = {
            "float32": self.tf32_tflops if tf32 else self.fp32_tflops,
            "tf32": self.tf32_tflops,
            "float16": self.fp16_tflops,
            "bfloat16": self.bf16_tflops,
        }
        return rates.get(dtype or "")

    @property
    def precisions(self) -> tuple[str, ...]:
        """Compute dtypes of this card, by torch name."""
        have = [
            ("float32", 1.0),
            ("float16", self.fp16_tflops),
            ("bfloat16", self.bf16_tflops),
        ]
        return tuple(name for name, rate in have if rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Card of this host as the driver tells it; None for what it does not tell."""

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
    """Machine: host and its usable resources."""

    cpu_model: str
    cpus: int
    """CPUs that affinity and cgroup quota leave this process."""
    ram_gib: float
    ram_limit_gib: float
    """The smaller of RAM and the cgroup's limit."""
    os: str
    python: str
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str | None = None
    """Why there is no GPU, in one sentence."""
    allocation: str | None = None
    """`slurm` where it gave a part of the host."""

    @property
    def key(self) -> str:
        """Key of comparable machines, from stable facts."""
        facts = [
            self.cpu_model,
            self.cpus,
            round(self.ram_gib),
            [g.name for g in self.gpus],
            [g.driver for g in self.gpus],
            [g.power_limit_w for g in self.gpus],
        ]
        return digest_of(facts)
