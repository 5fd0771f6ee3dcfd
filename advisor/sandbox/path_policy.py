"""Paths with rules of their own in a sandbox: devices, kernel file systems, caches, MPS pipes."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

SYSTEM_TREES = ("/proc", "/sys", "/dev")
"""The kernel's own, without files of the user. Devices stay, GPUs too."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108  the kernel's name for it

HARMFUL = re.compile(
    r"sg\d+|bsg|ng\d+n\d+|nvme\d+|raw|rawctl|mtd\w*|mem|kmem|port|kmsg"  # disks and memory, raw
    r"|loop-control|mapper|watchdog\d*|uinput|uhid|cpu_dma_latency|userfaultfd"
    r"|ipmi\d*|tpm\w*|nvram|snapshot"
)
"""Names of character devices that no program of a sandbox may write to.

They reach disks without the file system (`sg0`), the machine's memory (`mem`), its keyboard
(`uinput`), and its clock, keys and power states (`watchdog`, `tpm0`, `cpu_dma_latency`). By
`userfaultfd` a program could make those wait that read its memory. Block devices are known by
their type.
"""


OUTLIVING = ("/dev/mqueue", "/dev/hugepages")
"""Folders among the devices in which files stay: queues, and memory of large pages."""

CONSOLES = re.compile(r"tty\d+|vcs\w*")
"""The machine's own screens: 70 devices that no program needs, so none may be written."""


TERMINALS = re.compile(r"tty\w+|vcs\w*|hvc\d+|console")
"""Terminals with a device of their own. Those of windows and connections are in /dev/pts."""


def terminals() -> tuple[str, ...]:
    """Return the terminals of this machine below /dev."""
    paths = (path for path, shut in _devices("/dev") if not shut)
    return tuple(path for path in paths if TERMINALS.fullmatch(os.path.basename(path)))


def shut_devices() -> tuple[str, ...]:
    """Return devices below /dev that no program of a sandbox may write to."""
    return tuple(path for path, shut in _devices("/dev") if shut)


def open_devices(*, foreign: bool = False) -> tuple[str, ...]:
    """Return devices below /dev that a program may write to, such as GPUs.

    `foreign`: the program may be hostile and gets no terminal. All of /dev/pts is kept from it,
    since a terminal of its own would lie beside those in use. Nor does it get folders whose
    files outlive a run.
    """
    paths = (path for path, shut in _devices("/dev") if not shut)
    left_out = {"/dev/pts", "/dev/tty", *terminals(), *OUTLIVING} if foreign else set()
    return tuple(
        path
        for path in paths
        if path not in left_out and not CONSOLES.fullmatch(os.path.basename(path))
    )


def sockets_of_devices(folder: str = "/dev") -> Iterator[str]:
    """Yield sockets below /dev, but for those in shared memory."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:  # removed meanwhile, or closed to this user
        return
    for entry, status in found:
        if stat.S_ISSOCK(status.st_mode):
            yield entry.path
        elif stat.S_ISDIR(status.st_mode) and entry.path not in (SHARED_MEMORY, "/dev/pts"):
            yield from sockets_of_devices(entry.path)


def _devices(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield what lies in `folder`: the path, and whether it is shut.

    A folder stands for all in it, unless it holds a block device: then its entries come one by
    one. Links are left out.
    """
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in ordered:
        if entry.is_symlink():
            continue
        shut = bool(HARMFUL.fullmatch(entry.name)) or _is_block(entry.path)
        may_hold = entry.is_dir(follow_symlinks=False) and entry.path != SHARED_MEMORY
        if not shut and may_hold and _holds_blocks(entry.path):
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
"""File system types without files of the user's: an overlay shows their mounts read-only."""


class Cache(NamedTuple):
    """Cache of a library, known by the variable that names its folder."""

    variable: str
    default: str | None
    """Its folder where the variable is unset; None: it then lies in another cache, in TMPDIR or
    beside the code, and has no entry of its own."""
    rebuilt: bool
    """True if missing files are computed again, False if they were downloaded."""


INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
"""Variable of TorchInductor's compile cache, which lies in TMPDIR where it is unset."""
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
"""Caches whose absent `hub` is made before a trial: Landlock grants only what exists."""


def downloads(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield folders that hold only downloads, and whether an absent one is to be made."""
    for cache, folder in caches(environ):
        if cache.rebuilt:
            continue
        names = DOWNLOADS.get(cache.variable)
        if names is None:  # the cache holds nothing else
            yield folder, False
            continue
        for name in names:
            yield os.path.join(folder, name), cache.variable in MADE and name == "hub"


def caches(environ: Mapping[str, str]) -> Iterator[tuple[Cache, str]]:
    """Yield each cache whose folder is known, with that folder."""
    for cache, folder in named_caches(environ):
        yield cache, os.path.realpath(folder)


def named_caches(environ: Mapping[str, str]) -> Iterator[tuple[Cache, str]]:
    """Yield the same by its name, whose links are not followed."""
    home = environ.get("HOME") or os.path.expanduser("~")
    for cache in CACHES:
        folder = environ.get(cache.variable) or cache.default
        if folder:
            yield cache, os.path.abspath(folder.replace("~", home, 1))


def mps_pipes(environ: Mapping[str, str]) -> str | None:
    """Return the folder of an MPS server that shares GPU work, or None."""
    folder = environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"  # noqa: S108
    return folder if os.path.exists(folder) else None


def around(protected: Iterable[str]) -> tuple[str, ...]:
    """Return what lies beside `protected` and beside each folder above them.

    Landlock can only grant. To keep a place out, all around it is granted: what lies beside it,
    beside its parent, and so on up to the root. The kernel's own trees and links are left out.
    """
    protected = sorted(set(protected))
    above = {
        parent
        for path in protected
        for parent in parents(path)
        if not any(is_within(parent, place) for place in protected)
    }
    withheld, granted = {*above, *protected, *SYSTEM_TREES}, []
    for folder in sorted(above):
        try:
            with os.scandir(folder) as entries:
                beside = sorted(entry.path for entry in entries if not entry.is_symlink())
        except OSError:
            continue
        granted += [path for path in beside if path not in withheld]
    return tuple(granted)


LINKS_LIMIT = 40
"""Links that one path may lead through, as the kernel allows (path_resolution(7))."""


def trusted_path(path: str, written: Sequence[str]) -> str:
    """Return what `path` leads to; once it leads into a folder that is `written`, that folder.

    A change, or its setup, may put a link to the keys where the command names the libraries of
    an environment in the checkout. So no link in there is followed.
    """
    place, links = "/", 0
    waiting = os.path.normpath(path).split("/")[::-1]
    while waiting:
        place = os.path.normpath(os.path.join(place, waiting.pop()))
        if place in written:
            return place
        try:
            target = os.readlink(place)
        except OSError:  # no link
            continue
        links += 1
        if links > LINKS_LIMIT:
            return place
        waiting += target.split("/")[::-1]
        place = "/" if target.startswith("/") else os.path.dirname(place)
    return place


def parents(path: str) -> Iterator[str]:
    """Yield the folders above an absolute path, the nearest first."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
