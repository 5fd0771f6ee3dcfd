"""Attacks from inside a sandbox: each wall holds, for root and for an ordinary user.

The attacks are those of a hostile program, bounded in time. A race runs for a few seconds, and for
a minute in the nightly tests.
"""

import contextlib
import ctypes
import mmap
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.sandbox import landlock as landlocks
from tests.support import walls
from tests.support.walls import OTHER_USER, USERS, World, may_run
from tests.support.ways import seen

NAMES = {0: "root", OTHER_USER: "user"}
RACE_S = 5.0
NIGHTLY_RACE_S = 60.0


def _world(kind: str, user: int) -> Iterator[World]:
    if not may_run(user):
        pytest.skip("no interpreter that this user may run")
    with walls.world(kind, user) as found:  # type: ignore[arg-type]
        yield found


@pytest.fixture(params=USERS, ids=lambda user: NAMES.get(user, "user"))
def overlay(request: pytest.FixtureRequest) -> Iterator[World]:
    yield from _world("overlay", request.param)


@pytest.fixture(params=USERS, ids=lambda user: NAMES.get(user, "user"))
def landlock(request: pytest.FixtureRequest) -> Iterator[World]:
    yield from _world("landlock", request.param)


@pytest.fixture(
    params=[(kind, user) for kind in ("overlay", "landlock") for user in USERS],
    ids=lambda each: f"{each[0]}-{NAMES.get(each[1], 'user')}",
)
def either(request: pytest.FixtureRequest) -> Iterator[World]:
    yield from _world(*request.param)


@pytest.fixture(
    params=[
        pytest.param(RACE_S, marks=pytest.mark.slow),
        pytest.param(NIGHTLY_RACE_S, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
    ids=["short", "long"],
)
def race_s(request: pytest.FixtureRequest) -> float:
    return float(request.param)


RENAMES_A_FOLDER = """
# A thread gives the place of a folder to a link that leads out, while folders are renamed between
# two disks. It makes and removes folders only, so that it waits for nobody who decides on renames.
# Links through open files of another process are followed by that process alone.
own, number = os.environ["TMPDIR"] + "/up", 0
end = time.monotonic() + SECONDS
def out():
    pid = os.getppid() or "self"
    return f"/proc/{pid}/fd/{8 + number % 4}" + HOME
def swap():
    wait = lambda _: time.sleep(5e-5)
    steps = ((os.mkdir, own), (os.mkdir, own + "/.ssh"), (wait, own),
             (os.rmdir, own + "/.ssh"), (os.rmdir, own), (lambda to: os.symlink(out(), to), own),
             (wait, own), (os.unlink, own))
    while time.monotonic() < end:
        for step, name in steps:
            try: step(name)
            except OSError: pass
threading.Thread(target=swap).start()
while time.monotonic() < end:
    number += 1
    got = f"{PROJECT}/got{number}"
    try: os.rename(own + "/.ssh", got)
    except OSError: continue
    if os.path.exists(got + "/mine.txt"):
        through("read " + open(got + "/mine.txt").read()); break
"""


def test_renaming_a_folder_leads_nowhere_else(either, race_s) -> None:
    """Nothing acts by a path for the program: a parent that is swapped meanwhile leads nowhere."""
    before = seen(either.home)
    found = either.attack(RENAMES_A_FOLDER, seconds=race_s)
    assert found.refused == ""
    assert found.output == ""
    assert seen(either.home) == before


REACHES_THE_HOST = """
pids = {os.getppid(), 1} | {int(n) for n in os.listdir("/proc") if n.isdigit()}
for pid in pids - {0, os.getpid()}:
    try: numbers = os.listdir(f"/proc/{pid}/fd")  # which names no file
    except OSError: numbers = []
    for name in ("root", "cwd", "exe", *(f"fd/{number}" for number in numbers)):
        tried(f"/proc/{pid}/{name}", lambda: os.readlink(f"/proc/{pid}/{name}"))
    tried(f"memory of {pid}", lambda: open(f"/proc/{pid}/mem", "rb"))
    tried(f"environment of {pid}", lambda: open(f"/proc/{pid}/environ").read())
"""


def test_no_open_file_of_another_process_is_in_reach(either) -> None:
    """Neither folders that the supervisor holds open, nor its memory and environment.

    Under the overlay the first process of the program's space is a deputy as well.
    """
    assert either.attack(REACHES_THE_HOST).output == ""


NAMES_OTHERS = """
for place in ("/proc", BESIDE + "/proc"):
    for name in filter(str.isdigit, os.listdir(place) if os.path.isdir(place) else ()):
        try: words = open(f"{place}/{name}/cmdline").read()
        except OSError: continue
        if MARK in words and name != str(os.getpid()): through("named in " + place)
"""
SECOND_PLACE = """
import ctypes, os; libc = ctypes.CDLL(None); os.mkdir(place := {place!r})
assert not libc.unshare(0x20000) and not libc.mount(b"", b"/", None, 1 << 18 | 16384, None)
assert not libc.mount(b"proc", place.encode(), b"proc", 0, None)
"""
"""Code for a supervisor of root's: /proc is mounted a second time, as in a tree for `chroot`."""


def test_processes_outside_are_named_under_landlock_alone(either) -> None:
    """By /proc, and where root mounted it a second time; there nothing can be set either."""
    mark, place = f"bystander-{os.getpid()}", either.beside / "proc"
    prelude = SECOND_PLACE.format(place=str(place)).strip() if either.user == 0 else ""
    sets = f'tried("sets", lambda: os.open("{place}/sys/kernel/core_pattern", os.O_WRONLY))\n'
    code = f"MARK = {mark!r}\n{sets}{NAMES_OTHERS}"
    with bystander(either.user, mark):
        found = either.attack(code, prelude=prelude)
    assert found.refused == ""
    places = ["/proc", str(place)] if prelude else ["/proc"]
    named = places if either.kind == "landlock" else []
    assert found.output == "".join(f"named in {each}\n" for each in named)


def test_own_code_sets_nothing_by_a_second_place_of_the_kernels_settings(overlay) -> None:
    if overlay.user != 0:
        pytest.skip("an ordinary user can set nothing")
    place = str(overlay.beside / "proc")
    code = f'tried("sets", lambda: os.open("{place}/sys/kernel/core_pattern", os.O_WRONLY))'
    prelude = SECOND_PLACE.format(place=place).strip()
    assert overlay.attack(code, foreign=False, prelude=prelude).output == ""


CONNECTS = """
# the name of a socket of the program's own is swapped for a link to a hidden one
own = socket.socket(socket.AF_UNIX); own.bind("own"); own.listen(64)
def serve():
    while True: own.accept()[0].close()
threading.Thread(target=serve, daemon=True).start()
os.symlink(HOME + "/socket", "link")
os.mkdir("real"); os.symlink(HOME, "hidden")
for name in (HOME + "/socket", f"/proc/self/root{HOME}/socket", "link", BESIDE + "/socket"):
    tried("connected to " + name, lambda: socket.socket(socket.AF_UNIX).connect(name))
end = time.monotonic() + SECONDS
def swap():
    while time.monotonic() < end:
        for one, two in (("own", "kept"), ("link", "own"), ("own", "link"), ("kept", "own")):
            try: os.rename(one, two)
            except OSError: pass
threading.Thread(target=swap).start()
while time.monotonic() < end:
    there = socket.socket(socket.AF_UNIX); there.settimeout(0.2)
    try:
        there.connect("own"); peer = there.getpeername()
    except OSError:
        continue
    finally:
        there.close()
    if peer == HOME + "/socket": through("reached the hidden socket")
"""
SWAPS_SOCKETS = """
# the number of a network socket is given to a Unix socket while its address is looked at
SOCK, UNIX = 9, 10
address = struct.pack("=H", 1) + (HOME + "/socket").encode() + bytes(2)
inet = socket.socket(); unix = socket.socket(socket.AF_UNIX)
end = time.monotonic() + SECONDS
os.dup2(inet.fileno(), SOCK)
def swap():
    while time.monotonic() < end:
        os.dup2(unix.fileno(), SOCK); os.dup2(inet.fileno(), SOCK)
threading.Thread(target=swap).start()
while time.monotonic() < end:
    if libc.connect(SOCK, address, len(address)) == 0:
        through("reached the hidden socket"); break
"""


@contextlib.contextmanager
def listening(place: Path, user: int) -> Iterator[list[str]]:
    """A server on a socket of the user's; the list says who came."""
    came: list[str] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        os.chown(place, user, user)
        server.listen(1024)
        server.setblocking(False)
        yield came
        with contextlib.suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                came.append("a connection")


@pytest.mark.parametrize("code", [CONNECTS, SWAPS_SOCKETS], ids=["names", "numbers"])
def test_a_hidden_socket_is_not_reached(either, race_s, code) -> None:
    """By its name, a link, or a swap of either between the look and the connection."""
    inside = "os.chdir(os.environ['TMPDIR'])\n" + code
    with (
        listening(either.home / "socket", either.user) as came,
        listening(either.beside / "socket", either.user) as came_beside,
    ):
        found = either.attack(inside, seconds=race_s)
    assert found.refused == ""
    assert found.output == ""
    assert came == came_beside == []


REACHES_DEVICES = """
tried("a socket", lambda: socket.socket(socket.AF_UNIX).connect(PLACE))
log = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"", PLACE + "-log")
tried("a datagram", log)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a socket there")
@pytest.mark.parametrize("network", [True, False], ids=["network", "none"])
def test_a_socket_among_the_devices_is_not_reached(either, network) -> None:
    """Such as that of the system's log; devices are the host's own."""
    place, log = (Path(f"/dev/walls-{os.getpid()}{end}") for end in ("", "-log"))
    try:
        with (
            socket.socket(socket.AF_UNIX) as server,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as logs,
        ):
            server.bind(str(place))
            server.listen()
            logs.bind(str(log))
            for path in (place, log):
                path.chmod(0o666)
            found = either.attack(f"PLACE = {str(place)!r}\n{REACHES_DEVICES}", network=network)
    finally:
        for path in (place, log):
            path.unlink()
    assert found.refused == ""
    assert found.output == ""


REACHES_OTHERS = """
tried("a socket without a file", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + NAME))
def datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out: out.sendto(b"x", HOME + "/log")
def datagram_by_pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); one.sendto(b"x", HOME + "/log")
tried("a datagram", datagram)
tried("a datagram by a pair", datagram_by_pair)
tried("the host of this machine", lambda: socket.socket(40, socket.SOCK_STREAM).close())
"""


def test_sockets_without_a_file_and_datagrams_reach_nobody(either) -> None:
    """Also with an open network."""
    name = f"walls-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log,
    ):
        server.bind("\0" + name)
        server.listen()
        log.bind(str(either.home / "log"))
        os.chown(either.home / "log", either.user, either.user)
        log.setblocking(False)
        found = either.attack(f"NAME = {name!r}\n" + REACHES_OTHERS)
        with pytest.raises(BlockingIOError):
            log.recv(1)
    assert found.output == ""


NO_NETWORK = """
def connects(host, port): socket.create_connection((host, port), timeout=3).close()
tried("a server of the host", lambda: connects("127.0.0.1", OUTSIDE))
tried("by its other names", lambda: connects("127.1.2.3", OUTSIDE))
tried("by the empty name", lambda: connects("0.0.0.0", OUTSIDE))
tried("by version 6", lambda: connects("::ffff:127.0.0.1", OUTSIDE))
tried("another host", lambda: connects("192.0.2.1", 80))
def first(family, kind=socket.SOCK_STREAM, flags=0x20000000):
    with socket.socket(family, kind) as out: out.sendto(b"x", flags, ("127.0.0.1", OUTSIDE))
tried("a first message", lambda: first(socket.AF_INET))
def datagram(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP))
try: datagram()
except OSError: pass
for name, words in {"raw packets": (17, 3, 0), "SCTP": (2, 1, 132), "the machine": (40, 1),
                    "Bluetooth": (31, 1, 3)}.items():
    tried("a socket for " + name, lambda: socket.socket(*words).close())
# a server of its own gives its place to nobody, and works as ever
def own(host, family=socket.AF_INET):
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2], timeout=3)
        peer, _ = server.accept(); peer.sendall(b"hello"); through(client.recv(9).decode())
        client.close(); peer.close()
own("127.0.0.1"); own("")
if socket.has_ipv6:
    try: own("::1", socket.AF_INET6)
    except OSError as problem: through("hello" if problem.errno == errno.EADDRNOTAVAIL else problem)
else: through("hello")
import subprocess
server = socket.create_server(("127.0.0.1", 0))
code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 3)"
subprocess.run([sys.executable, "-c", code], check=True)
refused = socket.socket()
try: refused.connect(("127.0.0.1", 1))
except ConnectionRefusedError: through("refused")
"""


def test_without_a_network_a_program_reaches_its_own_servers_alone(either) -> None:
    """Neither those of this host, nor other hosts, by any protocol."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as log,
    ):
        port = server.getsockname()[1]
        log.bind(("127.0.0.1", 0))
        code = f"UDP = {log.getsockname()[1]}\n{NO_NETWORK}"
        found = either.attack(code, network=False, outside=port)
        for each in (server, log):
            each.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        with pytest.raises(BlockingIOError):
            log.recv(1)
    assert found.refused == ""
    assert found.output == "hello\nhello\nhello\nrefused\n"


SERVES = """
if KIND == "landlock": tried("a datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
server = socket.create_server(("127.0.0.1", 0)); server.settimeout(SECONDS)
place = os.environ["TMPDIR"] + "/port"
open(place + ".new", "w").write(str(server.getsockname()[1])); os.rename(place + ".new", place)
try: server.accept(); through("somebody came")
except TimeoutError: pass
"""


def test_a_server_of_the_programs_is_reached_from_outside_under_landlock_alone(either) -> None:
    """It makes no datagrams there, which could reach others."""
    stop = threading.Event()

    def come() -> None:
        while not stop.wait(0.02):
            for place in either.folder.glob("s*/port"):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", int(place.read_text()))).close()

    code = f"KIND = {either.kind!r}\n{SERVES}"
    wait_s = 60.0 if either.kind == "landlock" else 0.3  # where nobody can come
    caller = threading.Thread(target=come)
    caller.start()
    try:
        found = either.attack(code, network=False, seconds=wait_s)
    finally:
        stop.set()
        caller.join()
    assert found.output == ("somebody came\n" if either.kind == "landlock" else "")


TERMINALS = """
for name in (TERMINAL, f"/proc/self/root{TERMINAL}"):
    tried("writes to a terminal", lambda: os.write(os.open(name, os.O_WRONLY | os.O_NOCTTY), b"x"))
    tried("reads a terminal", lambda: os.close(os.open(name, os.O_RDONLY | os.O_NOCTTY)))
null = os.stat("/dev/null").st_rdev
for name in ("/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0"):
    if os.path.exists(name) and os.stat(name).st_rdev != null:
        tried(f"opens {name}", lambda: os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK)))
tried("opens the terminal", lambda: os.close(os.open("/dev/tty", os.O_RDWR)))
import fcntl
def types():
    main, other = os.openpty(); fcntl.ioctl(other, 0x5412, b"x")
tried("types", types)
if KIND == "landlock": tried("a terminal of its own", os.openpty)
"""


@contextlib.contextmanager
def terminal(user: int) -> Iterator[str]:
    """One in use by the user."""
    main, other = os.openpty()
    try:
        os.chown(os.ttyname(other), user, -1)
        yield os.ttyname(other)
    finally:
        os.close(main)
        os.close(other)


def test_terminals_of_the_user_cannot_be_opened(either) -> None:
    """What is typed there is read by nobody else, and what stands there is written by none."""
    with terminal(either.user) as name:
        code = f"TERMINAL, KIND = {name!r}, {either.kind!r}\n{TERMINALS}"
        assert either.attack(code).output == ""


EVICTS = """
file = os.open(BESIDE + "/large", os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_long] * 5
place = libc.mmap(None, SIZE, 1, 1, file, 0)
for page in range(0, SIZE, 4096): ctypes.string_at(place + page, 1)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
for advice in (20, 21): libc.madvise(place, SIZE, advice)
libc.munmap(ctypes.c_void_p(place), ctypes.c_long(SIZE))
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
"""


def in_memory(path: Path) -> float:
    """Share of a file that the kernel holds in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_long] * 5]
    size = path.stat().st_size
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    with path.open("r+b") as file:
        place = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        assert libc.mincore(ctypes.c_void_p(place), ctypes.c_size_t(size), pages) == 0
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(size))
    return sum(page & 1 for page in pages.raw) / len(pages)


def test_no_file_is_taken_out_of_memory(either) -> None:
    """Base would read it from a disk, in each of its runs, and head never."""
    file = either.beside / "large"
    file.write_bytes(os.urandom(4 << 20))
    os.chown(file, either.user, either.user)
    os.sync()
    assert in_memory(file) == 1
    either.attack(f"SIZE = {4 << 20}\n" + EVICTS)
    assert in_memory(file) > 0.9


OWN_SOCKETS = """
import multiprocessing.connection as mc
os.chdir(os.environ["TMPDIR"])
server = mc.Listener(family="AF_UNIX"); client = mc.Client(server.address)
server.accept().send("hello"); through(client.recv())
port = socket.create_server(("127.0.0.1", 0)); socket.create_connection(port.getsockname())
through("network")
refused = socket.socket(); refused.settimeout(1)
try: refused.connect(("127.0.0.1", 1))
except ConnectionRefusedError: through("refused")
try: socket.socket(socket.AF_UNIX).connect("nowhere")
except FileNotFoundError: through("absent")
"""


def test_the_programs_own_sockets_work(either) -> None:
    """In the file tree and on the network, and errors are those of the kernel."""
    found = either.attack(OWN_SOCKETS)
    assert found.output == "hello\nnetwork\nrefused\nabsent\n"


BUSY_SERVER = """
os.chdir(os.environ["TMPDIR"])
server = socket.socket(socket.AF_UNIX); server.bind("busy"); server.listen(0)
for _ in range(4):
    try: socket.socket(socket.AF_UNIX).connect("busy")
    except OSError as problem: through("busy"); break
"""


def test_a_server_that_takes_nobody_stops_no_supervisor(landlock) -> None:
    """A deputy never waits for the program."""
    assert landlock.attack(BUSY_SERVER).output == "busy\n"


CHANGES_FILES = """
MINE = BESIDE + "/mine.txt"
number = os.open(MINE, os.O_RDONLY)
def by_name(name): tried("chmod " + name, lambda: os.chmod(name, 0o600))
for name in (MINE, f"/proc/self/fd/{number}", f"/proc/thread-self/fd/{number}", f"/dev/fd/{number}",
             f"/proc/{os.getpid()}/fd/{number}", f"/proc/self/root{MINE}",
             f"/proc/thread-self/root{MINE}", f"/proc/self/task/{os.getpid()}/root{MINE}"):
    by_name(name)
tried("fchmod", lambda: os.fchmod(number, 0o600))
tried("utime", lambda: os.utime(MINE)); tried("futime", lambda: os.utime(number))
tried("chown", lambda: os.chown(MINE, os.getuid(), os.getgid()))
tried("xattr", lambda: os.setxattr(MINE, "user.walls", b"x"))
tried("fxattr", lambda: os.setxattr(number, "user.walls", b"x"))
import fcntl
flags = struct.pack("l", 0x80)  # FS_NOATIME_FL
tried("chattr", lambda: fcntl.ioctl(number, 0x40086602, flags))
machine = os.uname().machine
for name, call_ in {"fchmodat2": (452, -100, MINE.encode(), 0o600, 0),
                    "file_setattr": (469, -100, MINE.encode(), bytes(32), 32, 0)}.items():
    if call(*call_) == 0: through(name)
if call(425, 8, ctypes.create_string_buffer(120)) >= 0: through("io_uring")
if machine == "x86_64":
    import mmap
    # by the interface of 32 bits: chmod is 15 there
    low = libc.mmap; low.restype = ctypes.c_void_p
    place = low(ctypes.c_void_p(0x10000000), 8192, 7, 0x22 | 0x40, -1, 0)
    if place == 0x10000000:
        ctypes.memmove(place + 4096, MINE.encode() + bytes(1), len(MINE) + 1)
        code = bytes.fromhex("53b80f000000bb00100010b980010000cd805bc3")
        ctypes.memmove(place, code, len(code))
        if ctypes.CFUNCTYPE(ctypes.c_int)(place)() == 0: through("chmod of 32 bits")
"""
CHANGES_FILES_IN_A_RACE = """
# the name, or the number, of an own file is given to the user's while it is looked at
MINE = BESIDE + "/mine.txt"
os.chdir(os.environ["TMPDIR"])
open("own", "w").close(); os.symlink(MINE, "link")
own, mine = os.open("own", os.O_RDONLY), os.open(MINE, os.O_RDONLY)
NUMBER = 50
os.dup2(own, NUMBER)
end = time.monotonic() + SECONDS
def swap():
    while time.monotonic() < end:
        os.dup2(mine, NUMBER); os.dup2(own, NUMBER)
        for one, two in (("own", "kept"), ("link", "own"), ("own", "link"), ("kept", "own")):
            try: os.rename(one, two)
            except OSError: pass
threading.Thread(target=swap).start()
before = os.stat(MINE)
while time.monotonic() < end:
    for attempt in (lambda: os.chmod("own", 0o600), lambda: os.fchmod(NUMBER, 0o600),
                    lambda: os.utime(NUMBER), lambda: os.utime("own")):
        try: attempt()
        except OSError: pass
    after = os.stat(MINE)
    if (before.st_mode, before.st_mtime_ns) != (after.st_mode, after.st_mtime_ns):
        through("changed"); break
"""


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_modes_times_and_attributes_stay_under_landlock(landlock, foreign) -> None:
    """By other names, open files, another architecture, io_uring, and calls of newer kernels."""
    before = seen(landlock.beside)
    assert landlock.attack(CHANGES_FILES, foreign=foreign).output == ""
    assert seen(landlock.beside) == before


def test_no_race_changes_a_mode_or_a_time_under_landlock(landlock, race_s) -> None:
    before = seen(landlock.beside)
    assert landlock.attack(CHANGES_FILES_IN_A_RACE, seconds=race_s).output == ""
    assert seen(landlock.beside) == before


CHANGES_ITS_OWN = """
os.chdir(os.environ["TMPDIR"])
open("own", "w").write("x"); os.symlink("own", "link"); os.mkdir("folder")
number = os.open("own", os.O_RDONLY)
folder = os.open("folder", os.O_RDONLY)
os.chmod("own", 0o640); os.fchmod(number, 0o604); assert os.stat("own").st_mode & 0o777 == 0o604
os.chmod(f"/proc/self/fd/{number}", 0o601); assert os.stat("own").st_mode & 0o777 == 0o601
os.chmod("folder", 0o700, dir_fd=None); os.chmod("own", 0o600, dir_fd=os.open(".", os.O_RDONLY))
os.utime("own", (5, 6.5)); assert os.stat("own").st_mtime == 6.5
os.utime(number, ns=(7, 8)); assert os.stat("own").st_mtime_ns == 8
os.utime("own"); assert os.stat("own").st_mtime > 1e9
os.utime("link", (1, 2), follow_symlinks=False); assert os.lstat("link").st_mtime == 2
assert os.stat("own").st_mtime > 1e9
os.chown("own", os.getuid(), -1); os.lchown("link", -1, os.getgid())
os.setxattr("own", "user.a", b"value"); assert os.getxattr(number, "user.a") == b"value"
os.setxattr(number, "user.b", b""); os.removexattr("own", "user.a")
os.removexattr(number, "user.b")
assert os.listxattr("own") == []
for attempt in (lambda: os.chmod("nowhere", 0o600), lambda: os.utime("nowhere")):
    try: attempt()
    except FileNotFoundError: pass
import tempfile
removed = tempfile.TemporaryFile(); os.fchmod(removed.fileno(), 0o600)
os.fchmod(os.memfd_create("m"), 0o600)
through("done")
"""


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_a_program_changes_its_own_files_as_usual(either, foreign) -> None:
    """Modes, times, owners and attributes; what is missing is missing."""
    assert either.attack(CHANGES_ITS_OWN, foreign=foreign).output == "done\n"


WRITES_TO_THE_KERNEL = """
null = os.stat("/dev/null").st_rdev
def opens(path):
    if os.path.exists(path) and os.stat(path).st_rdev != null:  # which stands for what is shut
        tried("may write " + path, lambda: os.close(os.open(path, os.O_WRONLY)))
for folder in ("/proc/sys/kernel", "/proc/sys/vm", "/proc/irq", "/proc/fs", "/proc/driver"):
    for place, _, names in os.walk(folder):
        for name in names[:4]: opens(os.path.join(place, name))
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/dynamic_debug/control",
             "/sys/kernel/mm/transparent_hugepage/enabled",
             "/sys/power/state", "/sys/kernel/profiling"):
    opens(path)
for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"):
    tried("a control group in " + place, lambda: os.mkdir(place + "/walls"))
for entry in os.scandir("/dev"):
    if stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode): opens(entry.path)
for path in ("/dev/loop-control", "/dev/kmsg", "/dev/mem", "/dev/watchdog"): opens(path)
mode = os.stat("/dev/null").st_mode & 0o777
tried("chmod of a device", lambda: os.chmod("/dev/null", mode))
tried("a new device", lambda: os.mknod("/dev/walls", stat.S_IFCHR | 0o600, os.makedev(1, 1)))
tried("a device elsewhere",
      lambda: os.mknod(os.environ["TMPDIR"] + "/d", stat.S_IFBLK | 0o600, os.makedev(254, 0)))
"""
USUAL_DEVICES = """
open("/dev/null", "w").write("x"); os.urandom(4); open("/dev/zero", "rb").read(3)
open("/dev/shm/walls", "w").write("x"); os.unlink("/dev/shm/walls")
if TERMINALS: main, other = os.openpty(); os.write(main, b"x")
open("/proc/self/comm").read(); open("/proc/self/oom_score_adj", "w").write("600")
assert os.listdir("/sys/class"); through("done")
"""


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_the_kernels_files_and_disks_cannot_be_written(either, foreign) -> None:
    """As in containers: /proc's settings, /sys and control groups are read-only."""
    assert either.attack(WRITES_TO_THE_KERNEL, foreign=foreign).output == ""


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_usual_devices_and_its_own_process_work(either, foreign) -> None:
    terminals = not foreign or either.kind == "overlay"
    code = f"TERMINALS = {terminals}\n{USUAL_DEVICES}"
    assert either.attack(code, foreign=foreign).output == "done\n"


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_shared_memory_is_the_hosts_under_landlock_alone(either, foreign) -> None:
    left = Path(f"/dev/shm/walls-{os.getpid()}")
    code = f"open({str(left)!r}, 'w').close(); through('made')"
    assert either.attack(code, foreign=foreign).output == "made\n"
    assert left.exists() is (either.kind == "landlock")
    left.unlink(missing_ok=True)


LEFT_TO_OWN_CODE = """
socket.create_connection(("127.0.0.1", PORT), timeout=3).close(); through("network")
socket.socket(socket.AF_UNIX).connect(HOME + "/socket"); through("sockets")
os.write(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY), b"x"); through("terminal")
os.kill(OUTSIDE, signal.SIGTERM); through("process")
"""


def test_under_landlock_own_code_has_the_hosts_network_terminals_and_processes(landlock) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        listening(landlock.home / "socket", landlock.user),
        terminal(landlock.user) as name,
        bystander(landlock.user) as process,
    ):
        code = f"PORT, TERMINAL = {server.getsockname()[1]}, {name!r}\n{LEFT_TO_OWN_CODE}"
        found = landlock.attack(code, foreign=False, outside=process.pid)
        assert found.output == "network\nsockets\nterminal\nprocess\n"
        assert process.wait(60) == -signal.SIGTERM


CAPABILITIES = """
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
through(status["CapEff"].strip()); through(status["CapBnd"].strip())
tried("chroot", lambda: os.chroot("."))
tried("raw network", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
tried("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
tried("the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))
for what, attempt in {  # neither would change anything if it were allowed
    "mounts": lambda: libc.mount(b"none", b"/mnt", b"no such kind", 0, None),
    "modules": lambda: libc.delete_module(b"no such module", 0o4000),
}.items():
    if attempt() == 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): through(what)
"""
KEPT = {0, 1, 3, 4, 5, 6, 7, 8, 10, 14, 31}
"""Numbers of capabilities on files, users, signals, ports and pinned memory: 11 of them."""


def capabilities_of(text: str) -> set[int]:
    return {number for number in range(64) if int(text, 16) & 1 << number}


@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_root_keeps_a_short_list_of_capabilities(either, foreign) -> None:
    """Those on its own files, users and ports; an ordinary user has none."""
    status = Path("/proc/self/status").read_text()
    had = capabilities_of(next(line for line in status.splitlines() if "CapEff" in line).split()[1])
    effective, bounds, *through = either.attack(CAPABILITIES, foreign=foreign).output.splitlines()
    assert capabilities_of(effective) == (KEPT & had if either.user == 0 else set())
    assert either.user != 0 or capabilities_of(bounds) == KEPT & had
    assert through == []
    assert len(KEPT) == 11


IS_SET_UID = """
import subprocess
words = [BESIDE + "/cat", "/proc/self/status"]
status = subprocess.run(words, capture_output=True, text=True).stdout
through([line for line in status.splitlines() if line.startswith("Uid:")][0].split()[2])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program of root's")
@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "own"])
def test_programs_that_become_root_do_not(either, foreign) -> None:
    """`sudo` and others of an ordinary user's."""
    program = either.beside / "cat"
    shutil.copy("/bin/cat", program)
    program.chmod(0o4755)
    assert either.attack(IS_SET_UID, foreign=foreign).output == f"{either.user}\n"


ESCAPES_BY_MOUNTS = """
# in namespaces of its own, where it may mount: neither a new view of the host, nor a wall removed
flags = 0x10000000 | 0x00020000
if libc.unshare(flags) == 0:
    attempts = {
        "umount": lambda: libc.umount2(b"/proc/sys", 2),
        "umount home": lambda: libc.umount2(HOME.encode(), 2),
        "remount": lambda: libc.mount(b"", b"/proc/sys", b"", 32 | 4096, None),
        "remount sys": lambda: libc.mount(b"", b"/sys", b"", 32 | 4096, None),
        "proc": lambda: libc.mount(b"proc", b"/mnt", b"proc", 0, None),
        "sysfs": lambda: libc.mount(b"sysfs", b"/mnt", b"sysfs", 0, None),
    }
    for name, attempt in attempts.items():
        if attempt() == 0: through(name)
    for kind in (b"proc", b"sysfs", b"cgroup2", b"tmpfs"):  # one that lies nowhere
        if call(430, kind, 0) >= 0: through("fsopen")
    if call(428, -100, b"/", 1) >= 0: through("open_tree")
    if libc.unshare(0x02000000) == 0:  # control groups, whose files belong to root
        for kind, which in ((b"cgroup2", None), (b"cgroup", b"cpu")):
            if libc.mount(kind, b"/mnt", kind, 0, which) == 0: through("control groups")
tried("key", lambda: open(HOME + "/.ssh/mine.txt"))
"""


def test_namespaces_inside_open_nothing(either) -> None:
    assert either.attack(ESCAPES_BY_MOUNTS).output == ""


HARMS_OTHERS = """
if sys.platform != "linux": sys.exit()
tried("CPUs", lambda: os.sched_setaffinity(OUTSIDE, {0}))
tried("policy", lambda: os.sched_setscheduler(OUTSIDE, os.SCHED_BATCH, os.sched_param(0)))
tried("nice", lambda: os.setpriority(os.PRIO_PROCESS, OUTSIDE, 5))
if os.getuid():  # root's are all processes of the machine
    tried("nice of all", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 5))
tried("stop", lambda: os.kill(OUTSIDE, signal.SIGSTOP))
tried("signal 0", lambda: os.kill(OUTSIDE, 0))
import resource
tried("limit", lambda: resource.prlimit(OUTSIDE, resource.RLIMIT_NPROC, (10, 10)))
if os.uname().machine == "x86_64":
    if call(251, 1, OUTSIDE, 3 << 13) == 0: through("I/O priority")
    if call(256, OUTSIDE, 0, None, None) == 0: through("memory")
def handle(): os.close(os.pidfd_open(OUTSIDE))
def autogroup(): open(f"/proc/{OUTSIDE}/autogroup", "w").write("5")
tried("autogroup", autogroup)
def by_folder():
    place = os.open(f"/proc/{OUTSIDE}", os.O_RDONLY)
    signal.pidfd_send_signal(place, signal.SIGKILL)
tried("signal by a folder", by_folder)
def by_a_file():
    import fcntl
    one, other = socket.socketpair()
    fcntl.fcntl(one, 8, OUTSIDE); fcntl.fcntl(one, 10, int(signal.SIGKILL))
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    other.send(b"x")
try: by_a_file()  # seen by its victim alone
except OSError: pass
if libc.ptrace(16, OUTSIDE, None, None) == 0: through("trace")
def takes_a_file():
    if call(438, os.pidfd_open(OUTSIDE), 0, 0) < 0: raise OSError
tried("an open file", takes_a_file)
tried("oom", lambda: open(f"/proc/{OUTSIDE}/oom_score_adj", "w").write("900"))
"""
HARMS_ITSELF = """
import resource
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.sched_setaffinity(os.getpid(), {0})
nice = min(os.nice(0) + 1, 19)
os.setpriority(os.PRIO_PROCESS, 0, nice); os.setpriority(os.PRIO_PROCESS, os.getpid(), nice)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
child = os.fork()
if not child: time.sleep(60)
os.sched_setaffinity(child, {0}); os.setpriority(os.PRIO_PROCESS, child, nice)
os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
thread = threading.Thread(target=time.sleep, args=(1,)); thread.start()
os.sched_setaffinity(thread.native_id, {0}); signal.pthread_kill(thread.ident, 0)
through("done")
"""


@contextlib.contextmanager
def bystander(user: int, *marks: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user outside, such as the other arm or the gate itself."""
    words = [walls.python(user), "-I", "-S", "-c", "import time; time.sleep(600)", *marks]
    with subprocess.Popen(words, **walls._as(user)) as process:
        try:
            yield process
        finally:
            process.kill()


def test_foreign_code_leaves_other_processes_alone(either) -> None:
    """Their CPUs, priority, limits and signals, although they belong to the same user."""
    with bystander(either.user) as process:
        before = os.sched_getaffinity(process.pid), os.getpriority(os.PRIO_PROCESS, process.pid)
        assert either.attack(HARMS_OTHERS, outside=process.pid).output == ""
        after = os.sched_getaffinity(process.pid), os.getpriority(os.PRIO_PROCESS, process.pid)
        assert after == before
        assert process.poll() is None


def test_walls_do_not_depend_on_a_folder_to_hide(either) -> None:
    """A container's home may be the root, so that none is hidden."""
    abstract = f"walls-{os.getpid()}"
    with (
        bystander(either.user) as process,
        terminal(either.user) as name,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind(f"\0{abstract}")
        server.listen()
        names = f"TERMINAL, KIND, NAME = {name!r}, {either.kind!r}, {abstract!r}\n"
        code = f"{names}{HARMS_OTHERS}{TERMINALS}{REACHES_OTHERS}"
        found = either.attack(code, outside=process.pid, hidden=())
        assert found.refused == ""
        assert found.output == ""
        assert process.poll() is None


OLDER = "import advisor.sandbox.landlock; advisor.sandbox.landlock.SCOPES_SINCE = 99"


def test_kernels_whose_landlock_bounds_no_signals_hold_them_too(landlock) -> None:
    """Before Linux 6.12 the supervisor decides on each; on the program's own it allows them."""
    with bystander(landlock.user) as process:
        found = landlock.attack(HARMS_OTHERS, outside=process.pid, prelude=OLDER)
        assert process.poll() is None
    assert found.output == ""
    assert landlock.attack(HARMS_ITSELF, prelude=OLDER).output == "done\n"


def test_foreign_code_does_with_its_own_processes_what_it_likes(either) -> None:
    assert either.attack(HARMS_ITSELF).output == "done\n"


MOUNTS_CONTROL_GROUPS = """
# root's name space in root's: there the host's control groups are its own files
user, group = os.getuid(), os.getgid()
if libc.unshare(0x10000000 | 0x00020000) == 0:
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"{user} {user} 1")
    open("/proc/self/gid_map", "w").write(f"{group} {group} 1")
    libc.unshare(0x02000000)
    for kind, which in ((b"cgroup2", None), (b"cgroup", b"cpu")):
        if libc.mount(kind, b"/mnt", kind, 0, which) == 0: through("control groups")
"""


def test_no_program_mounts_the_hosts_control_groups(either) -> None:
    """Of the user's own ones neither: as root it could write there what bounds all others."""
    assert either.attack(MOUNTS_CONTROL_GROUPS).output == ""
    if os.statvfs("/proc/sys").f_flag & os.ST_RDONLY:
        pytest.skip("settings of the kernel are read-only, as in a container")
    assert either.attack(MOUNTS_CONTROL_GROUPS, foreign=False).output == ""


LEAVES_MEMORY = """
KEY = 0x77616c6c
libc.shmget.restype = libc.msgget.restype = libc.semget.restype = ctypes.c_int
if libc.shmget(KEY, 4096, 0) >= 0: through("memory of the run before")
if libc.msgget(KEY, 0) >= 0: through("messages of the run before")
if libc.semget(KEY, 1, 0) >= 0: through("semaphores of the run before")
libc.shmget(KEY, 4096, 0o1600); libc.msgget(KEY, 0o1600); libc.semget(KEY, 1, 0o1600)
try: queue = ctypes.CDLL("librt.so.1").mq_open
except OSError: queue = libc.mq_open
if queue(b"/walls", 0) >= 0: through("a queue of the run before")
queue(b"/walls", 0o102, 0o600, None)
for place in ("/dev/mqueue/walls", "/dev/hugepages/walls"):
    if os.path.exists(place): through(f"{place} of the run before")
    try: os.close(os.open(place, os.O_CREAT | os.O_RDWR))
    except OSError: pass
if os.uname().machine == "x86_64":
    if call(250, 10, -4, b"user", b"walls") >= 0: through("a key of the run before")
    call(248, b"user", b"walls", b"x", 1, -4)
"""


def test_nothing_is_carried_from_run_to_run(either) -> None:
    """By System V's memory, messages and semaphores, POSIX queues and the kernel's key rings."""
    assert [either.attack(LEAVES_MEMORY).output for _ in range(2)] == ["", ""]


OUTLIVES = """
if os.fork() == 0:
    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(3); open(os.environ["TMPDIR"] + "/late", "w")
"""


def test_no_process_outlives_its_run(either) -> None:
    """Not even one that left the session and takes no notice of signals."""
    either.attack(OUTLIVES)
    held = subprocess.run(["ps", "-u", str(either.user), "-o", "args="], capture_output=True)
    assert str(either.folder) not in held.stdout.decode()


STARTS_PROCESSES_ALL_THE_TIME = """
# each starts the next one and ends, so that its number is old when it is looked at
end = time.monotonic() + 20
def hop():
    while time.monotonic() < end:
        if os.fork(): os._exit(0)
        os.setsid()
    open(os.environ["TMPDIR"] + "/outlived", "w"); os._exit(0)
for _ in range(4):
    if os.fork() == 0: hop()
"""


@pytest.mark.slow
def test_one_that_starts_processes_all_the_time_outlives_no_run(either) -> None:
    """It is not to be caught one by one, and its ended ones must not keep the supervisor busy."""
    if either.kind == "landlock" and landlocks.version() < landlocks.SCOPES_SINCE:
        pytest.skip("the kernel bounds no signals")
    either.attack(STARTS_PROCESSES_ALL_THE_TIME)
    held = subprocess.run(["ps", "-u", str(either.user), "-o", "args="], capture_output=True)
    assert str(either.folder) not in held.stdout.decode()
    assert list(either.folder.rglob("outlived")) == []


GIVES_UP_RIGHTS = """
os.chdir(os.environ["TMPDIR"])
server = socket.socket(socket.AF_UNIX); server.bind("server"); server.listen(8)
open("others", "w").close()
head = struct.pack("=II", 0x20080522, 0)
open("roots", "w").close(); os.chmod("roots", 0o644); os.chmod(".", 0o777)
if os.getuid() == 0:
    child = os.fork()
    if not child:
        os.setgroups([]); os.setresgid(7, 7, 7); os.setresuid(7, 7, 7)
        tried("a user that it became changes root's file", lambda: os.chmod("roots", 0o666))
        tried("it connects", lambda: socket.socket(socket.AF_UNIX).connect("server"))
        os._exit(0)
    os.waitpid(child, 0)
    os.chown("others", 7, 7)
ways = [lambda: libc.unshare(0x10000000)]
if os.getuid() == 0: ways.append(lambda: libc.capset(head, bytes(24)))
for gives_up in ways:
    child = os.fork()
    if not child:
        if gives_up() == 0:
            tried("a mode without rights", lambda: os.chmod("others", 0o666))
            tried("a connection", lambda: socket.socket(socket.AF_UNIX).connect("server"))
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_deputy_does_nothing_for_one_with_fewer_rights(landlock) -> None:
    """It acts with the program's rights, so not for a part that gave some up."""
    assert landlock.attack(GIVES_UP_RIGHTS).output == ""


MAKES_READERS_WAIT = """
for flags in (0, 1):
    if os.uname().machine == "x86_64" and call(323, flags) >= 0: through("userfaultfd")
"""


def test_no_memory_of_the_programs_keeps_a_deputy_waiting(either) -> None:
    """A deputy reads it, and would wait for whoever provides its pages."""
    assert either.attack(MAKES_READERS_WAIT).output == ""


READS_A_KEY = """
os.chdir(os.environ["TMPDIR"])
os.symlink(HOME, "link"); os.symlink(HOME + "/.ssh/mine.txt", "key")
up = os.path.relpath(HOME, os.getcwd())
names = [place + "/.ssh/mine.txt" for place in (
    HOME, "link", up, "/proc/self/root" + HOME, "/proc/self/cwd/" + up, "/proc/1/root" + HOME,
    f"/proc/{os.getppid()}/root{HOME}", f"/proc/self/task/{os.getpid()}/root{HOME}")]
for name in (*names, "key"):
    try:
        if open(name).read(1): through("key")
    except OSError: pass
try: os.link(HOME + "/.ssh/mine.txt", "hard"); open("hard").read(1) and through("linked")
except OSError: pass
"""
NAMES_OF_A_KEY = 7
"""Of those above that lead there where nothing is hidden: all but those of other processes."""


def test_a_hidden_file_is_not_read(either) -> None:
    """By any name. A home that is the root of the system is hidden by its dotted entries."""
    key = f"{either.home}/.ssh/mine.txt"
    for hidden in ((str(either.home),), (key,)):
        assert either.attack(READS_A_KEY, hidden=hidden).output == ""
    assert either.attack(READS_A_KEY, hidden=()).output.count("key\n") == NAMES_OF_A_KEY
