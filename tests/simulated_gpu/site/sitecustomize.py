"""Puts the simulated cards in when torch is imported, beneath whatever else hooks torch.

Then comes the sitecustomize that would have been found without this one, if there is any.
"""

import importlib
import json
import os
import sys
from pathlib import Path

VARIABLE = "SIMULATED_GPU"
ROOT = str(Path(__file__).resolve().parents[3])


class _Waiter:
    """Runs an action once a module was executed."""

    def __init__(self, actions):
        self._actions = actions

    def find_spec(self, name, path=None, target=None):
        action = self._actions.pop(name, None)
        if action is None:
            return None
        for finder in list(sys.meta_path):
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _act_after(spec.loader, action)
                return spec
        return None


def _act_after(loader, action):
    execute = loader.exec_module

    def exec_module(module):
        loader.__dict__.pop("exec_module", None)
        execute(module)
        action(module)

    loader.exec_module = exec_module


def _load(name):
    """A module of this package, whatever the program's own path is."""
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    return importlib.import_module("tests.simulated_gpu." + name)


def _cards():
    device = _load("device")
    if device.cards:
        return
    cards = json.loads(os.environ[VARIABLE])
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:  # UUIDs, as gpu-advisor gives them
        cards = [each for uuid in shown.split(",") for each in cards if each["uuid"] == uuid]
    device.cards.extend(device.Card(index, facts) for index, facts in enumerate(cards))
    truth = os.environ.get("SIMULATED_GPU_TRUTH")
    if truth:
        device.journal = os.open(truth, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if meter := os.environ.get("SIMULATED_GPU_METER"):
        device.report_to(int(meter))


def _cuda(module):
    _cards()
    _load("surface").install(module)


def _torch(module):
    _load("placement").install(module)


def _chain():
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = own


_chain()
if os.environ.get("SIMULATED_GPU_OWN_TIME"):
    _load("own_time").begin()
if os.environ.get(VARIABLE):
    sys.meta_path.insert(0, _Waiter({"torch.cuda": _cuda, "torch": _torch}))
