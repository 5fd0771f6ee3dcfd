"""What a trial may write: three kinds of isolation behind one interface.

offer.py       which kind this host offers, tried in a child process by attempt.py
confinement.py what one trial is told: kind, what passes, where caches and writes go
places.py      what passes through, by rules that are data
inside.py      the interface that the guardian calls; the kind with nothing to do
overlay.py     everything that is written goes to a layer that is thrown away
namespaces.py  where one's own mounts may be made
mounts.py      which mount points are covered, and how: pure
sockets.py     what others listen on, which must stay within reach
layers.py      what the program would have changed, read from the upper layers
results.py     files of items among it, by a table of formats; pictures.py reads PNG for it
landlock.py    writes outside the allowed places are denied
supervisor.py  decides on single system calls, where the kernel's rules end
kernel.py      the system calls
compiled.py    a candidate that is Python is not taken for what was compiled of another
refusals.py    failures that come from the isolation, told as such

The guardian imports this room without the packages that gpu-advisor depends on: everything here
but offer.py is standard library only, and quick to import.
"""
