"""Target card of a result, and its limits."""

from dataclasses import dataclass, replace

from advisor.machine import profiles
from advisor.machine.recording import same_uuid
from advisor.model import Card, Gpu, GpuProfile, Machine

CPU_PRECISIONS = ("float32", "bfloat16")

FREE_SHARE = 0.92
"""Share of free memory that a candidate may use.

Judgement: too large writes a batch that a longer input lets run out, too small gives up batches."""
IDLE_SHARE = 0.9
"""Free share of memory from which a card is idle.

Judgement: a desktop holds less than a tenth of a card, a program that computes mostly more."""
CONTEXT_GIB = 0.5
"""CUDA's own memory on the stand-in card, beyond the cap.

Judgement: as much as the largest context in gpus.toml, 500 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Card that results are for."""

    name: str
    """A profile's name, a device name without a profile, or `cpu`."""
    title: str
    precisions: tuple[str, ...]
    """Compute dtypes, by torch name, that the target has and trials here can run in."""
    profile: GpuProfile | None = None
    gpu: Gpu | None = None
    """Card on which trials run, which may only stand in for it; None: on the CPU."""
    memory_cap_gib: float | None = None
    """Allocator cap of a larger card that stands in for the target."""
    datasheet: str = ""
    """One line: what the card could do. Empty where no profile is known."""
    note: str = ""
    """Why the figures are not the target's; empty exactly where it is present."""
    environment: tuple[tuple[str, str], ...] = ()
    """Environment that selects `gpu`, if it is not the first."""

    @property
    def present(self) -> bool:
        """True if trials run on this very card."""
        return not self.note


def resolve(name: str, machine: Machine) -> Target:
    """Resolve `auto` or a profile name for `machine`. Raises TargetError.

    The card that was asked for, if it is here. Else a larger one with all of its precisions,
    its memory capped: then what fits is the target's and only the speed is not. Else whatever
    is here, and the note says so.
    """
    here = machine.gpus[0] if machine.gpus else None
    if name == "auto":
        return _cpu(machine) if here is None else _present(here)
    profile = profiles.by_name(name)
    same = next((gpu for gpu in machine.gpus if gpu.profile == profile.name), None)
    larger = next((gpu for gpu in machine.gpus if _can_stand_in(gpu, profile)), None)
    if same is not None:
        target = _present(same)
    elif larger is not None:
        target = _stand_in(profile, larger)
    else:
        target = _absent(profile, here, machine)
    gpu = target.gpu
    if gpu is None or gpu is here or not gpu.uuid:  # the first card is taken without a word
        return target
    return replace(target, environment=(("CUDA_VISIBLE_DEVICES", gpu.uuid),))


def memory_limit_gib(target: Target, host_gib: float) -> float:
    """Most GiB that a candidate may take: the least of what limits it.

    Of a card here, FREE_SHARE of its free memory. Of a known target, what its profile leaves to
    a program, even if the card is not here. `host_gib` on a CPU, and where nothing else is known.
    """
    free = target.gpu.memory_free_gib if target.gpu else None
    limits = [] if free is None else [FREE_SHARE * free]
    if target.profile is not None:
        total = target.gpu.memory_total_gib if target.gpu and target.present else None
        limits.append(profiles.usable_gib(target.profile, total))
    if target.gpu is None or not limits:
        limits.append(host_gib)
    return min(limits)


def equal_gpus(target: Target, machine: Machine) -> tuple[str, ...]:
    """Idle visible cards of the present one's kind, by UUID, for trials beside its own.

    None beside a MIG slice, nor where another card than the first one was asked for.
    """
    gpu = target.gpu
    # `environment` is set where another card than the first was chosen
    if gpu is None or not target.present or target.environment or not gpu.uuid or gpu.mig:
        return ()
    return tuple(
        other.uuid
        for other in machine.gpus
        if other.uuid
        and other.uuid != gpu.uuid
        and (other.name, other.memory_total_gib) == (gpu.name, gpu.memory_total_gib)
        and _is_idle(other)
    )


def _is_idle(gpu: Gpu) -> bool:
    """True if hardly any of its memory is taken; False where the driver does not tell."""
    if gpu.memory_free_gib is None or not gpu.memory_total_gib:
        return False
    return gpu.memory_free_gib >= IDLE_SHARE * gpu.memory_total_gib


def computed_on(target: Target, machine: Machine, card: Card) -> Target:
    """Return `target` with the card that the program computed on.

    CUDA may choose another card than NVML lists first, and in a container NVML may list none.
    Without a UUID (torch before 2.5) a card cannot be told from others, so a known one stays.
    A target that is not here stays too: the card that ran only stands in for it. But one that was
    taken for absent, since NVML shows no card, is here once the program is on it.
    """
    unseen = _unseen(card)
    if target.gpu is None and target.profile and unseen.profile == target.profile.name:
        return _present(unseen)
    if not target.present or (target.gpu is not None and card.uuid is None):
        return target
    for gpu in machine.gpus:
        if same_uuid(gpu.uuid, card.uuid):
            return target if gpu is target.gpu else _present(gpu)
    return _present(unseen)


def _unseen(card: Card) -> Gpu:
    """Card that NVML does not list, as CUDA told of it in the program."""
    name = card.name or "unknown GPU"
    mig = " MIG " in f" {name} "
    profile = None if mig else profiles.match(name, card.total_gib)
    return Gpu(
        index=card.index,
        name=name,
        uuid=card.uuid,
        memory_total_gib=card.total_gib,
        memory_free_gib=card.available_gib,
        driver=None,
        power_limit_w=None,
        compute_capability=card.compute_capability,
        profile=profile.name if profile else None,
        mig=mig or None,
    )


def _cpu(machine: Machine) -> Target:
    cpus = f"{machine.cpus} CPU{'s' * (machine.cpus != 1)}"
    return Target(
        name="cpu",
        title=machine.cpu_model,
        precisions=CPU_PRECISIONS,
        datasheet=f"{machine.cpu_model}: {cpus}, {machine.ram_limit_gib:.1f} GiB",
    )


def _present(gpu: Gpu) -> Target:
    if gpu.profile is not None:
        return _profiled(profiles.load_all()[gpu.profile], gpu)
    return Target(name=gpu.name, title=gpu.name, precisions=_precisions(gpu), gpu=gpu)


def _profiled(
    profile: GpuProfile,
    gpu: Gpu | None,
    note: str = "",
    memory_cap_gib: float | None = None,
) -> Target:
    """Target of a known card whose trials run on `gpu`, else on the CPU."""
    here = _precisions(gpu) if gpu else CPU_PRECISIONS
    return Target(
        name=profile.name,
        title=profile.title,
        precisions=tuple(dtype for dtype in profile.precisions if dtype in here),
        profile=profile,
        gpu=gpu,
        note=note,
        memory_cap_gib=memory_cap_gib,
        datasheet=profiles.describe(profile),
    )


def _stand_in(profile: GpuProfile, gpu: Gpu) -> Target:
    cap_gib = profiles.usable_gib(profile)
    note = (
        f"{gpu.name} stands in for {profile.title}, its memory capped to {cap_gib:.1f} GiB: "
        "what fits is the target's, the speed is not. The target's speed was not measured."
    )
    return _profiled(profile, gpu, note, cap_gib)


def _absent(profile: GpuProfile, here: Gpu | None, machine: Machine) -> Target:
    device, reason = f"this CPU ({machine.cpu_model})", "a CPU cannot stand in for it"
    if here:
        device = here.name
        reason = f"{here.name} lacks the free memory or the precisions to stand in for it"
    note = (
        f"{profile.title} is not here and {reason}: its speed was not measured. "
        f"All figures are those of {device}."
    )
    return _profiled(profile, here, note)


def _can_stand_in(gpu: Gpu, profile: GpuProfile) -> bool:
    """True if `gpu` has all precisions of `profile`, and free memory for it and a context."""
    free_gib = gpu.memory_total_gib if gpu.memory_free_gib is None else gpu.memory_free_gib
    if free_gib is None or free_gib < profiles.usable_gib(profile) + CONTEXT_GIB:
        return False
    return set(profile.precisions) <= set(_precisions(gpu))


def _precisions(gpu: Gpu) -> tuple[str, ...]:
    """Compute dtypes of a card by torch name: its profile's, else by its compute capability.

    float16 is worth its use from Volta (7) on, bfloat16 from Ampere (8).
    """
    if gpu.profile:
        return profiles.load_all()[gpu.profile].precisions
    major = int((gpu.compute_capability or "0").partition(".")[0])
    since_major = (("float32", 0), ("float16", 7), ("bfloat16", 8))
    return tuple(dtype for dtype, since in since_major if major >= since)
