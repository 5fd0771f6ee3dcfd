"""Runs a command on a host that refuses: refuse.py CALL[,CALL] COMMAND ...

A seccomp filter like that of container engines: `unshare`, the calls of Landlock, further
filters and what an older kernel lacks fail with EPERM, for the command and all that it starts.
"""

import ctypes
import os
import struct
import sys

CALLS = {
    "x86_64": {
        "unshare": 272, "landlock_create_ruleset": 444, "seccomp": 317, "setxattr": 188,
        "mount_setattr": 442,
    },
    "aarch64": {
        "unshare": 97, "landlock_create_ruleset": 444, "seccomp": 277, "setxattr": 5,
        "mount_setattr": 442,
    },
}  # fmt: skip
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
EPERM = 0x0005_0001

numbers = [CALLS[os.uname().machine][name] for name in sys.argv[1].split(",")]
lines = [(0x20, 0, 0, 0)]
lines += [(0x15, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
lines += [(0x06, 0, 0, 0x7FFF_0000), (0x06, 0, 0, EPERM)]
program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
head = struct.pack("=HxxxxxxQ", len(lines), ctypes.addressof(program))
libc = ctypes.CDLL(None)
libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
if libc.prctl(SET_SECCOMP, FILTER, ctypes.c_char_p(head)) != 0:
    sys.exit("the filter was refused")
os.execvp(sys.argv[2], sys.argv[2:])
