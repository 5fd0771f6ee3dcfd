"""Builds the simulated driver, runtime and libraries for the torch of a virtual environment.

What `src/` does not define and torch's libraries want becomes a function that returns 0; one
that creates something gives a place that is not null. FAKEGPU_LOG=1 names each at its first call.
"""

import fcntl
import hashlib
import re
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
WANTED = re.compile(
    r"(__cuda|cuda|cu[A-Z]|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvrtc"
    r"|cupti|nvshmem|nvjpeg|nvtx|cuFile)"
)
"""Names of functions that the driver, or a library beside it, has to give."""
SONAMES = (
    "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12",
    "libcurand.so.10", "libcusparse.so.12", "libcusparseLt.so.0", "libcusolver.so.12",
    "libnccl.so.2", "libnvrtc.so.13", "libcupti.so.13", "libcufile.so.0", "libnvshmem_host.so.3",
    "libnvJitLink.so.13", "libcuda.so.1", "libnvidia-ml.so.1",
)  # fmt: skip
"""Of what is replaced. The wheels' own RPATH wins over LD_LIBRARY_PATH, but a library that is
already loaded under the wanted SONAME is taken before any search: so one small library for each
name is preloaded, and nothing in the environment is touched."""
HEADERS = (
    "nvidia/cu13/include", "nvidia/cudnn/include", "nvidia/nccl/include",
    "triton/backends/nvidia/include",
)  # fmt: skip
COMPILE = ("gcc", "-O2", "-g", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
STUBS = """\
#include <stddef.h>
void fake_log(const char *, ...);
#define SHOWN __attribute__((visibility("default")))
#define NOTHING(name) SHOWN int name(void) { \\
  static int told; if (!told++) fake_log("%s is not simulated", #name); return 0; }
#define MAKES(name) SHOWN int name(void **out) { \\
  static long made[64]; if (out) *out = made; return 0; }
"""


def folder(venv: Path) -> Path:
    """Where the libraries for an environment lie: inside of it, and never in the checkout."""
    return venv / "fakegpu"


def build(venv: Path) -> None:
    """Build the libraries, unless those of the same sources are there (4 s of CPU)."""
    out = folder(venv)
    out.mkdir(exist_ok=True)
    text = b"".join(each.read_bytes() for each in (*sorted(SOURCES.iterdir()), Path(__file__)))
    digest, stamp = hashlib.sha256(text).hexdigest(), out / "sources"
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            return
        _build(venv, out)
        stamp.write_text(digest)


def _build(venv: Path, out: Path) -> None:
    site = next(venv.glob("lib/python3*/site-packages"))
    compiler = [*COMPILE, *(f"-I{site / part}" for part in HEADERS)]
    objects = []
    for source in sorted(SOURCES.glob("*.c")):
        objects.append(str(out / f"{source.stem}.o"))
        _run(*compiler, "-c", str(source), "-o", objects[-1])
    library = out / "libfakegpu.so"
    name = "-Wl,-soname,libfakegpu.so"
    link = ("gcc", "-shared", "-o", str(library), *objects, name, "-ldl", "-lm", "-lpthread")
    _run(*link)
    own = _symbols("--defined-only", library)
    torch = [*(site / "torch/lib").glob("lib*.so"), *site.glob("torchvision/*.so")]
    wanted = {name for name in _symbols("--undefined-only", *torch) if WANTED.match(name)}
    wanted -= _symbols("--defined-only", *torch)  # what one of torch's libraries gives another
    stubs = [
        f"{'MAKES' if 'Create' in name and not name.startswith(('cufft', 'nvrtc')) else 'NOTHING'}"
        f"({name})"
        for name in sorted(wanted - own)
    ]
    rest = out / "rest.c"
    rest.write_text(STUBS + "\n".join(stubs) + "\n")
    _run(*compiler, "-Wno-builtin-declaration-mismatch", "-c", str(rest), "-o", str(out / "rest.o"))
    _run(*link, str(out / "rest.o"))
    empty = out / "empty.c"
    empty.write_text("")
    for soname in SONAMES:
        _run(
            "gcc", "-shared", "-o", str(out / soname), str(empty), f"-Wl,-soname,{soname}",
            "-Wl,--no-as-needed", f"-L{out}", "-lfakegpu", "-Wl,-rpath,$ORIGIN",
        )  # fmt: skip
    (out / "libcuda.so").unlink(missing_ok=True)
    (out / "libcuda.so").symlink_to("libcuda.so.1")


def _symbols(option: str, *libraries: Path) -> set[str]:
    words = ["nm", "-D", option, *map(str, libraries)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if len(line.split()) > 1}


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{' '.join(words)}:\n{done.stderr}"
        raise RuntimeError(msg)
