"""Is gpu-advisor right on this card? One command, at most eight minutes, no network.

    python -m benchmarks.gpu [--simulated] [--output FOLDER] [--minutes 8] [--only STEP ...]
    python -m benchmarks.gpu --fake rtx-3090 [--only STEP ...]    # a rehearsal, with made figures

`--fake` runs all of it in torch's CUDA build over cards that are simulated below the CUDA API
(`python -m tests.fakegpu install`, once). It shows that no expectation fails on a good card of that
name. None of its figures is a real card's, and the pages say "made".

Every line says what was expected, what was found, and what to mend where the two differ. The files
are written anew after each line, so a run that is cut off keeps what it has; a step that breaks is
a line too, and the next one goes on. It ends with 0 if every step was begun and every line is as
expected; a line without an expectation, or of which nothing could be measured, is told and counts
for neither.

Each step is bounded by the time that is left, and its programs by limits of their own: `optimize`
by its budget (DEM 110 s, Emberformer 90 s, head pose 100 s, the other two 60 s). Relighting, head
pose and speech come last, where their budget and 45 s are left; `--minutes 14` holds all,
`--only relighting` one.

Beside torch the interpreter needs pydantic, psutil, nvidia-ml-py, jinja2 and pyyaml, for the
workloads numpy and pillow; the gate's step needs git. Without a network carry their wheels.
"""
