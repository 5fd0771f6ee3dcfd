"""Isolation of writes by overlay, Landlock or guard.

capabilities.py  the best kind this host offers, found by trying; the policy of one trial
selftest.py      the process that tries one kind
policy.py        the policy as the trial's supervisor receives it
path_policy.py   paths that pass, caches, system trees: rules as data
base.py          the interface that the supervisor calls
api.py           the choice of a kind by its policy
overlay.py       writes go to a layer that is thrown away
mounts.py        the mount points that are covered, and how; pure
layers.py        changes of a trial, read from the upper layers
landlock.py      writes outside the allowed places are denied
seccomp.py       decisions on single system calls
kernel.py        system calls and namespaces
refusals.py      failures that the isolation caused

The trial's supervisor imports this room without the packages that gpu-advisor depends on. All but
capabilities.py is standard library only, and quick to import.
"""
