"""Is gpu-advisor right on this card? One command, at most eight minutes, no network.

    python -m benchmarks.gpu [--simulated] [--output FOLDER] [--minutes 8] [--only STEP ...]

Every line says what was expected, what was found, and what to mend where the two differ. The files
are written anew after each line, so a run that is cut off keeps what it has; a step that breaks is
a line too, and the next one goes on. It ends with 0 if every step was begun and every line is as
expected; a line without an expectation, or of which nothing could be measured, is told and counts
for neither.

Each step is bounded by the time that is left, and its programs by limits of their own: `optimize`
by its budget (DEM 110 s, Emberformer 90 s, the last three 60 s each). Relighting, head pose and
speech come last, where 105 s are left; `--minutes 13` holds all, `--only relighting` one.

From a source checkout, nothing installed and no network: beside torch the interpreter needs
psutil, nvidia-ml-py, jinja2, pyyaml, numpy and pillow (the workloads) and pydantic, and the gate's
step needs git. Where some are missing, carry their wheels: with a network and the same Python,
`pip download --only-binary=:all: -d wheels pydantic psutil nvidia-ml-py jinja2 pyyaml numpy pillow`
brings them with what they need (pydantic-core, annotated-types, typing-extensions,
typing-inspection, markupsafe); there,
`pip install --no-index --find-links wheels --target carried pydantic ...`, and in the checkout
`PYTHONPATH=carried python -m benchmarks.gpu`.

    __main__.py   the steps in order, within the time
    record.py     lines, and the two files they go into
    bench.py      what a step is given: the card's facts, measured programs
    program.py    the loop that is measured, with an account of its own, in its own process
    facts.py      steps: what the card says, what the probe costs
    rates.py      steps: rates and shares against the program's own account
    memory.py     steps: memory that runs out, comes back, or is capped
    whole.py      steps: the reference workloads tuned end to end, the gate
"""
