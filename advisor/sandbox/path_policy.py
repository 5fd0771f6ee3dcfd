"""Path tables: passed sockets, caches and system trees."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

SYSTEM_TREES = ("/proc", "/sys", "/dev")
"""The kernel's own, without files of the user. Devices stay, GPUs too."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108  the kernel's name for it

DISKS = re.compile(
    r"sg\d+|bsg|ng\d+n\d+|nvme\d+|raw|rawctl|mtd\w*|mem|kmem|port|kmsg"  # disks and memory, raw
    r"|loop-control|mapper|watchdog\d*|uinput|uhid|cpu_dma_latency|userfaultfd"
    r"|ipmi\d*|tpm\w*|nvram|snapshot"
)
"""Devices beside those of blocks that reach more than the program's own work.

They write to disks without the file system or to the machine's memory, play its keyboard, keep
its clock, keys and power states, or let whoever reads the program's memory wait for the program.
"""


CONSOLES = re.compile(r"tty\d+|vcs\w*")
"""The machine's own screens: 70 devices that no program of a trial needs."""


TERMINALS = re.compile(r"tty\w+|vcs\w*|hvc\d+|console")
"""Where users type and read, beside those of windows and connections, which `pts` holds."""


def terminals() -> tuple[str, ...]:
    """Return the terminals of this machine below /dev."""
    paths = (path for path, shut in _devices("/dev") if not shut)
    return tuple(path for path in paths if TERMINALS.fullmatch(os.path.basename(path)))


def shut_devices() -> tuple[str, ...]:
    """Return devices below /dev that no program of a sandbox may write to."""
    return tuple(path for path, shut in _devices("/dev") if shut)


def open_devices(*, foreign: bool = False) -> tuple[str, ...]:
    """Return what below /dev a program may write to, such as GPUs.

    A `foreign` one can open no terminal: those in use are in the folder of new ones.
    """
    paths = (path for path, shut in _devices("/dev") if not shut)
    left_out = {"/dev/pts", "/dev/tty", *terminals()} if foreign else set()
    return tuple(
        path
        for path in paths
        if path not in left_out and not CONSOLES.fullmatch(os.path.basename(path))
    )


def _devices(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield entries, and whether they are shut; folders with a block device one by one."""
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in ordered:
        if entry.is_symlink():
            continue
        shut = bool(DISKS.fullmatch(entry.name)) or _is_block(entry.path)
        inside = entry.is_dir(follow_symlinks=False) and entry.path != SHARED_MEMORY
        if not shut and inside and _holds_blocks(entry.path):
            yield from _devices(entry.path)
        else:
            yield entry.path, shut


def _holds_blocks(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(_is_block(entry.path) for entry in entries)
    except OSError:
        return False


def _is_block(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.lstat(path).st_mode)
    except OSError:
        return False


PSEUDO = {
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore",
    "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
}  # fmt: skip


class Cache(NamedTuple):
    variable: str
    default: str | None
    rebuilt: bool
    """Missing files are computed again; else they were downloaded."""


INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
"""Its cache lies below TMPDIR where this is unset."""
CACHES = (
    Cache("XDG_CACHE_HOME", "~/.cache", rebuilt=False),
    Cache("HF_HOME", "~/.cache/huggingface", rebuilt=False),
    Cache("HF_HUB_CACHE", None, rebuilt=False),
    Cache("HF_DATASETS_CACHE", None, rebuilt=False),
    Cache("TORCH_HOME", "~/.cache/torch", rebuilt=False),
    Cache("TRITON_HOME", "~/.triton", rebuilt=False),
    Cache("UV_CACHE_DIR", "~/.cache/uv", rebuilt=False),
    Cache("TRITON_CACHE_DIR", "~/.triton/cache", rebuilt=True),
    Cache(INDUCTOR, None, rebuilt=True),
    Cache("TORCH_EXTENSIONS_DIR", None, rebuilt=True),
    Cache("CUDA_CACHE_PATH", "~/.nv/ComputeCache", rebuilt=True),
    Cache("CUPY_CACHE_DIR", "~/.cupy", rebuilt=True),
    Cache("NUMBA_CACHE_DIR", None, rebuilt=True),
    Cache("MPLCONFIGDIR", "~/.config/matplotlib", rebuilt=True),
)


DOWNLOADS: dict[str, tuple[str, ...]] = {
    "HF_HOME": ("hub", "datasets", "modules", "xet", "assets", "metrics", "evaluate"),
    "TORCH_HOME": ("hub", "datasets"),
    "XDG_CACHE_HOME": (
        "clip", "whisper", "open_clip", "timm", "modelscope", "kagglehub", "torch_extensions",
    ),
}  # fmt: skip
"""Folders of downloads in caches that hold other things, too, such as a token or a browser's.

All other caches that are not rebuilt hold downloads alone.
"""
MADE = ("HF_HOME", "TORCH_HOME")
"""Of these an absent `hub` is made before a trial, which could not make it."""


def downloads(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield folders that hold only downloads, and whether an absent one is to be made."""
    for cache, folder in caches(environ):
        if cache.rebuilt:
            continue
        for name in DOWNLOADS.get(cache.variable, ("",)):
            yield (
                os.path.join(folder, name).rstrip("/"),
                cache.variable in MADE and name == "hub",
            )


def caches(environ: Mapping[str, str]) -> Iterator[tuple[Cache, str]]:
    home = environ.get("HOME") or os.path.expanduser("~")
    for cache in CACHES:
        folder = environ.get(cache.variable) or cache.default
        if folder:
            yield cache, os.path.realpath(folder.replace("~", home, 1))


def mps_pipes(environ: Mapping[str, str]) -> str | None:
    """Return the folder of an MPS server that shares GPU work, or None."""
    folder = environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"  # noqa: S108
    return folder if os.path.exists(folder) else None


def around(protected: Iterable[str]) -> tuple[str, ...]:
    """Return siblings of `protected` on every level."""
    protected = sorted(set(protected))
    levels = {
        parent
        for path in protected
        for parent in parents(path)
        if not any(is_within(parent, place) for place in protected)
    }
    others, kept_open = {*levels, *protected, *SYSTEM_TREES}, []
    for level in sorted(levels):
        try:
            with os.scandir(level) as entries:
                beside = sorted(entry.path for entry in entries if not entry.is_symlink())
        except OSError:
            continue
        kept_open += [path for path in beside if path not in others]
    return tuple(kept_open)


def parents(path: str) -> Iterator[str]:
    """Yield the folders above an absolute path, the nearest first."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
