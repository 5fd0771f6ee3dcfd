"""Code that runs inside the user's process, under the user's interpreter.

Standard library only, syntax of Python 3.9. torch is touched only after the program itself
imported it, and is reached through `sys.modules`, never imported. In the user's process this
package is loaded by file path under the name `_gpu_advisor_probe`, so that nothing of the
program's namespace is shadowed; for that reason its modules import each other relatively.

    site/sitecustomize.py   found by Python at start-up through PYTHONPATH; chains any other one
    bin/                    `python` shims that put PYTHONPATH back where a script overwrote it
    boot.py                 one process joins the measurement: spec, boot file, import hooks
    session.py              the process-wide state
    control.py              when to look, write and stop
    patches.py              what was replaced in the process, so that it can be put back
    follow.py               into processes that are started with an environment of their own
    hooks.py                what torch tells us, part by part
    hooking.py              what these parts share
    fetches.py              batches that loaders hand out
    forwards.py             forwards of root modules, and of what was compiled
    updates.py              gradients, and what takes them up
    learning.py             which optimizers, with which learning rates
    loaders.py              what DataLoaders run with, and where they were built
    roots.py                modules called from outside any module
    entrance.py             where a call of a module from outside is noticed
    below.py                what lies below a module: modules, parameters
    looks.py                dtype, flags and layout in force during a call
    resting.py              updates that are alike are looked through now and then
    settled.py              calls of which no more is to be learnt than time and items
    inner.py                networks that a root calls many times within its own forward
    batches.py              how many items a batch holds
    layers.py               what a module's layers tell of the batch during one call
    layout.py               which dimension counts the samples, as the layers tell
    gradients.py            what gradients tell of a training without an optimizer of torch's
    log.py                  what the hooks saw, as flat tuples
    ledger.py               what one step is, when each ended, how many units it finished
    steps.py                log to ledger: inference, samplers
    training.py             log to ledger: training, and which batches were trained on
    cycles.py               where a sampler without a loader begins its next item
    window.py               ledger to window: warm-up discarded, rate, waits, shares
    patience.py             a window that others disturb grows
    stages.py               networks called in turn, and their shares of the window
    observe.py              losses, outputs and memory, read when the record is written
    measure.py              the record's content
    record.py               the record file
    averages.py             median and mode
    cards.py                which card the model is on
    footprint.py            what a training step holds in memory
    recomputing.py          whether activations are computed twice
    padding.py              how much of its batches is padding
    buckets.py              batches of like length, tried in place of a loader's own
    syncs.py                where numbers are given to the host
    exchange.py             when the host copied to the device, or waited for it
    timeline.py             device time: what it did, what it waited for
    graphs.py               what CUDA graphs captured, and did at each replay
    clock.py                when the device was done with each step, by CUDA events
    ranks.py                several ranks stop at the same step
    flops.py                the operations of one step, counted after the window
    ceilings.py             each part alone, after the window
    whatif.py               settings tried from inside: what was asked for, what came of it
    applying.py             puts them in place
    switches.py             flags, copies, optimizers, calls of root modules
    guard.py                the user's existing files are not written over
    origins.py              which files of a project were loaded, where that is asked for
    arguments.py            what argparse returned

    asked.py                in no program: what an interpreter's torch says when it is asked
"""
