"""Hooks of outermost module and compiled calls.

Torch's global hook notices them. It costs at each module, of which a network has hundreds, so it
is out while one of them runs. The hook that sees the end of a call is on that module during the
call only: outside of it the module can be pickled, copied and scripted as ever.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any, Callable, NamedTuple

from . import module_facts
from .clocks import clock
from .module_facts import LOOKS, Module
from .session import Session

KEY, POST = -7001, -7005
"""Keys in torch's dicts of hooks; torch's own count from 0 up."""
ALWAYS = "_forward_hooks_always_called"
"""Attribute of modules since torch 2.1: hooks that an exception calls, too."""
OUTSIDE = -1
"""Torch's number of the backward pass that a thread runs, where it runs none."""


class ModuleCall(NamedTuple):
    """Outermost call that runs."""

    module: Any
    entry: Module | None
    start: float


class Entrance:
    """Torch's global hook, in place while no module runs and calls are recorded.

    While one thread calls modules, the hook is out during a call, so that inner modules cost
    nothing. What a second thread called meanwhile would pass unseen: an actor beside a learner
    hid a quarter of the learner's updates on a busy machine. So from the first call or update of
    a second thread on the hook stays in place (`shared`), and inner modules are told by thread.
    """

    def __init__(self, torch: Any, hook: Callable[[Any, Any], None]) -> None:
        self._hooks = torch.nn.modules.module._global_forward_pre_hooks
        self._backward_of: Any = getattr(
            torch._C, "_current_graph_task_id", lambda: OUTSIDE
        )
        self._hook: Callable[[Any, Any], None] | None = hook
        self._inside: dict[int, ModuleCall | None] = {}
        """Threads whose modules are inner ones, with the call if it is one of a module."""
        self._lock = threading.Lock()
        """Two threads may begin and end calls of one module."""
        self.wanted = True
        """Calls are recorded."""
        self.shared = False
        """More than one thread calls modules."""
        self.reopen()

    def want(self, calls: bool) -> None:
        """Record calls from now on, or none."""
        self.wanted = calls
        self._hooks.pop(KEY, None)
        self.reopen()

    def reset(self) -> None:
        """Forget the threads that a fork left behind, and record calls."""
        self._inside.clear()
        self.want(True)

    @property
    def call(self) -> ModuleCall | None:
        """Module's call that this thread runs."""
        return self._inside.get(threading.get_ident())

    @property
    def occupied(self) -> bool:
        """This thread's work is that of something around it: a call, a fetch, a backward."""
        shut = not self.shared and KEY not in self._hooks
        return threading.get_ident() in self._inside or shut

    def occupy(self) -> bool:
        """Take this thread's modules as inner ones; False if they are already."""
        thread = threading.get_ident()
        if thread in self._inside or not (self.shared or self._hooks.pop(KEY, None)):
            return False
        self._inside[thread] = None
        return True

    def vacate(self) -> None:
        """Notice this thread's calls again."""
        self._inside.pop(threading.get_ident(), None)
        self.reopen()

    def calls(self, call: ModuleCall) -> None:
        """Note which call of a module this thread runs."""
        self._inside[threading.get_ident()] = call

    def used_by(self, *threads: int | None) -> None:
        """Tell inner modules by their thread from now on, if these are several.

        A thread of autograd's own is none: it works for the one that waits for its pass.
        """
        if not self.shared and len({*threads} - {None}) > 1 and not self.in_backward:
            self.shared = True
            self.reopen()

    @property
    def in_backward(self) -> bool:
        """This thread runs a part of a backward pass."""
        return bool(self._backward_of() != OUTSIDE)

    def begin(self, call: ModuleCall, after: Callable[..., None]) -> None:
        """Call `after` at the end of an outermost call."""
        module = call.module
        with self._lock:
            self.calls(call)
            module._forward_hooks[POST] = after
            module._forward_hooks_with_kwargs[POST] = True
            if ALWAYS in module.__dict__:
                module._forward_hooks_always_called[POST] = True

    def end(self, module: Any) -> ModuleCall | None:
        """Finish this thread's call of a module; None if it runs another one."""
        with self._lock:
            call = self.call
            if call is None or call.module is not module:
                return None
            del self._inside[threading.get_ident()]
            if not any(
                it is not None and it.module is module for it in self._inside.values()
            ):
                module._forward_hooks.pop(POST, None)
                module._forward_hooks_with_kwargs.pop(POST, None)
                module.__dict__.get(ALWAYS, {}).pop(POST, None)
        self.reopen()
        return call

    def reopen(self) -> None:
        """Notice calls again, if they are recorded and no thread is inside one."""
        if self.wanted and self._hook is not None and (self.shared or not self._inside):
            self._hooks[KEY] = self._hook

    def remove(self) -> None:
        """Notice nothing for good."""
        self._hook = None
        self._hooks.pop(KEY, None)


def install(torch: Any, session: Session) -> None:
    """Hook module calls from outside any module."""
    compiling, by_jit = compiling_of(torch), torch._C._get_tracing_state
    fx: Any = sys.modules.get("torch.fx._symbolic_trace")

    def inner(module: Any) -> bool:
        """Where threads share the entrance: a call that belongs to one around it.

        DataParallel runs replicas, and autograd checkpointed parts, in threads of their own.
        """
        replica = module.__dict__.get("_is_replica", False)
        return entrance.occupied or replica or entrance.in_backward

    def before(module: Any, args: Any) -> None:
        begun = clock()
        if (
            session.is_muted()
            or (entrance.shared and inner(module))
            or compiling()
            or by_jit()
            or getattr(fx, "_is_fx_tracing_flag", 0)
        ):
            return
        if not entrance.occupy():
            return
        try:
            entrance.used_by(session.thread, threading.get_ident())
            entry = _enter(session, module)
            if entry is None:
                entrance.vacate()
                return
            entrance.begin(ModuleCall(module, entry, clock()), after)
        except Exception as problem:
            session.step_aside(problem)
            return
        session.spent_s += clock() - begun

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        end = clock()
        call = entrance.end(module)
        if call is None or call.entry is None:
            return
        session.attempt(
            _leave, session, call.entry, (args, kwargs), output, call.start, end
        )
        session.step_ended(end, call.entry)
        session.spent_s += clock() - end

    entrance = session.entrance = Entrance(torch, before)
    session.patches.on_undo(entrance.remove)
    ran_out = functools.partial(_ran_out, session)
    session.patches.wrap(torch.cuda.OutOfMemoryError, "__init__")(ran_out)
    if hasattr(torch, "AcceleratorError"):  # the driver's own, since torch 2.8
        session.patches.wrap(torch.AcceleratorError, "__init__")(ran_out)


def _ran_out(session: Session, build: Any, self: Any, *args: Any) -> None:
    """Record an out-of-memory error as it is made, wherever that is.

    A program may swallow it where no hook stands around the work: in a copy to the card, a
    functional loss, an optimizer's step. Inside a module's call, a fetch or a backward pass the
    program may try again in smaller parts and lose nothing, so there only an error that
    comes out is recorded, by the hook around it; those are where the entrance is occupied.
    """
    build(self, *args)
    inside = session.entrance.wanted and session.entrance.occupied
    meant = isinstance(self, session.torch.cuda.OutOfMemoryError)
    if not inside and session.works() and (meant or "out of memory" in str(self)):
        session.attempt(session.record_exception, self, "step")


def compiling_of(torch: Any) -> Callable[[], bool]:
    """Make the check for running compilation."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def _enter(session: Session, module: Any) -> Module | None:
    """Entry of a called module; None for a loss function beside a real network.

    An id comes back for another object once its module is gone, so the entry is asked whether
    it still means this one.
    """
    entry: Module | None = session.modules_by_id.get(id(module))
    if entry is None or entry.module() is not module:
        entry = module_facts.register(session, module)
    if not entry.parameters and session.heavy_modules:
        return None
    entry.calls += 1
    if entry.calls in LOOKS and entry.parameters:
        module_facts.look(session, entry, module)
    return entry


def _leave(
    session: Session, entry: Module, inputs: Any, output: Any, start: float, end: float
) -> None:
    """Record a call's end, even a failed one's."""
    problem = sys.exc_info()[1] if output is None else None
    if problem is not None:
        module_facts.failed(session, entry, inputs, problem)
        return
    items = module_facts.items_of(session, entry, inputs, output)
    session.recorder.add(
        ("call", start, end, entry.index, items, session.torch.is_grad_enabled())
    )
    if session.thread is None:
        session.thread = threading.get_ident()
    fed = any(loader["iterated"] for loader in session.loaders)
    if not (fed or session.updates) and session.capture is None:
        with session.unseen():
            module_facts.record_numbers(session, entry, inputs, items)
    learns = session.optimizers_built and not session.counting
    if learns and not fed and session.rows_left > 0 and session.capture is None:
        with session.unseen():
            module_facts.record_rows(session, inputs, items, end)
    if session.diagnosis is not None:
        session.diagnosis.at("call", module=entry.index)


def shield_compiled(eval_frame: Any, session: Session) -> None:
    """Keep torch.compile from tracing the call hook.

    A hook inside compiled code is a part of what is compiled: it would break the graph, and the
    program would be measured slower than it is. So compiled code runs with the hook out, and its
    module is observed from around the call.
    """
    context, optimized = eval_frame._TorchDynamoContext, eval_frame.OptimizedModule
    compile_it, call_it = context.__call__, optimized.__call__

    def compiled(self: Any, fn: Any) -> Any:
        made = compile_it(self, fn)
        if (
            not isinstance(made, types.FunctionType)
            or type(self).__name__ == "DisableContext"
        ):
            return made  # what is not to be compiled must not be entered through us
        owner = getattr(fn, "__self__", None)
        module = fn if owner is None else owner

        @functools.wraps(made)
        def shielded(*args: Any, **kwargs: Any) -> Any:
            return _around(session, module, made, args, kwargs)

        if hasattr(made, "_torchdynamo_wrapper_id"):
            shielded._torchdynamo_wrapper_id = id(shielded)  # type: ignore[attr-defined]
        return shielded

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _around(session, self, functools.partial(call_it, self), args, kwargs)

    session.patches.put(context, "__call__", compiled)
    if "__call__" in vars(optimized):  # before, it is called as any module
        session.patches.put(optimized, "__call__", __call__)


def _around(session: Session, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
    """Call without hooks, as the outermost module."""
    begun, entrance = clock(), session.entrance
    outermost = entrance.occupy()
    entry = None
    try:
        try:
            if outermost and module is not None and not compiling_of(session.torch)():
                entry = _enter(session, module)
                entrance.calls(ModuleCall(module, entry, clock()))
        except Exception as problem:
            session.step_aside(problem)
        start = clock()
        session.spent_s += start - begun
        try:
            output = call(*args, **kwargs)
        except Exception as problem:
            if outermost:
                session.attempt(session.record_exception, problem, "forward")
            raise
        if entry is not None and entrance.wanted:
            end = clock()
            session.attempt(_leave, session, entry, (args, kwargs), output, start, end)
            session.step_ended(end, entry)
            session.spent_s += clock() - end
        return output
    finally:
        if outermost:
            entrance.vacate()


PROMPTS = ("input_ids", "inputs", "inputs_embeds", "input_features", "pixel_values")
"""Arguments of `generate` with a row for each prompt."""


def generations(library: Any, session: Session) -> None:
    """Record each call of a library's `generate`, and its prompts.

    Only it knows how many there are: beams and several answers to one prompt are rows, too.
    """

    @session.patches.wrap(library.GenerationMixin, "generate")
    def generate(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if session.generating or session.is_muted():
            return original(self, *args, **kwargs)
        session.generating, start = True, clock()
        try:
            result = original(self, *args, **kwargs)
        finally:
            session.generating = False
        end = clock()
        session.attempt(_generated, session, args, kwargs, start, end)
        return result


def _generated(session: Session, args: Any, kwargs: Any, start: float, end: float) -> None:
    given = (*args[:1], *(kwargs[name] for name in PROMPTS if name in kwargs))
    rows = next((len(prompts) for prompts in given if prompts is not None), 1)
    session.recorder.add(("generation", start, end, float(rows)))
