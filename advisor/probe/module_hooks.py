"""Hooks that time calls of modules from outside any module, and of compiled code.

A hook of torch's for all modules sees such a call begin. It would cost time at every inner module,
of which a network has hundreds, so it is taken out until the call ends. The hook that sees the end
is on that one module, and during the call only: at any other time the module can be pickled,
copied and scripted as ever.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any, Callable, NamedTuple

from . import batch_limits, mixed_losses, module_facts, own_threads
from .clocks import clock
from .module_facts import LOOKS, Module
from .session import Session

KEY, POST = -7001, -7005
"""Our keys in torch's dicts of hooks, for the begin and the end of a call.

Any numbers below 0 would do: torch numbers its own hooks from 0 up."""
ALWAYS = "_forward_hooks_always_called"
"""Attribute of modules since torch 2.1: keys of hooks that run after an exception, too."""
OUTSIDE = -1
"""Torch's number of the backward pass that a thread runs, where it runs none.

Source: torch/autograd/graph.py, where `_current_graph_task_id()` is -1 outside of a backward call.
"""


class ModuleCall(NamedTuple):
    """Call of a module, from outside any other, that runs now."""

    module: Any
    entry: Module | None
    """Facts of the module; None where its calls are not recorded."""
    start: float
    """Seconds of the probe's `clock`."""
    handled: BaseException | None = None
    """What the program was handling as it made the call, and so no failure of it."""

    def failure(self, output: Any) -> BaseException | None:
        """Error that ended the call: after one torch calls the hook without an output."""
        raised = sys.exc_info()[1] if output is None else None
        return None if raised is self.handled else raised


class Entrance:
    """Torch's hook for all modules: in place while no module runs, if calls are recorded.

    As long as one thread calls modules, the hook is taken out during a call, so that inner modules
    cost nothing. What a second thread calls meanwhile would pass unseen: an actor beside a learner
    hid a quarter of the learner's updates on a busy machine. So from the first call or update of
    a second thread on the hook stays in place (`shared`). Which modules are inner ones is then
    known by the threads that are inside a call.
    """

    def __init__(self, torch: Any, hook: Callable[[Any, Any], None]) -> None:
        self._hooks = torch.nn.modules.module._global_forward_pre_hooks
        self._backward_of: Any = getattr(
            torch._C, "_current_graph_task_id", lambda: OUTSIDE
        )
        self._hook: Callable[[Any, Any], None] | None = hook
        self._inside: dict[int, ModuleCall | None] = {}
        """Threads whose modules are inner ones now, with the call that they are inside, if any."""
        self._lock = threading.Lock()
        """Held while a call begins or ends, as two threads may call one module at a time."""
        self.wanted = True
        """Calls are recorded."""
        self.shared = False
        """More than one thread calls modules."""
        self.reopen()

    def want(self, calls: bool) -> None:
        """Record calls of modules from now on, or (`calls` False) none."""
        self.wanted = calls
        self._hooks.pop(KEY, None)
        self.reopen()

    def reset(self) -> None:
        """Forget the threads that a fork left behind, and record calls."""
        self._inside.clear()
        self.want(True)

    @property
    def call(self) -> ModuleCall | None:
        """Call of a module that this thread is inside; None outside, in a fetch or a backward."""
        return self._inside.get(threading.get_ident())

    @property
    def occupied(self) -> bool:
        """True if a call of a module here would be an inner one.

        This thread is inside a call, a fetch or a backward pass. Unless the entrance is shared, the
        missing hook says so as well; it is missing, too, where no calls are recorded.
        """
        hook_is_out = not self.shared and KEY not in self._hooks
        return threading.get_ident() in self._inside or hook_is_out

    def occupy(self) -> bool:
        """Take modules that this thread calls from now on as inner ones, until `vacate`.

        False if they are already, or (unless shared) the hook is out: another thread is inside, or
        no calls are recorded. Only an `occupy` that was True may be followed by `vacate`.
        """
        thread = threading.get_ident()
        if thread in self._inside:
            return False
        if not self.shared and self._hooks.pop(KEY, None) is None:
            return False
        self._inside[thread] = None
        return True

    def vacate(self) -> None:
        """Notice again the modules that this thread calls."""
        self._inside.pop(threading.get_ident(), None)
        self.reopen()

    def enter(self, call: ModuleCall) -> None:
        """Note which call of a module this thread is inside."""
        self._inside[threading.get_ident()] = call

    def used_by(self, *threads: int | None) -> None:
        """Share the entrance from now on, if these threads are more than one; None is no thread.

        A thread of autograd's own does not count: it works for the one that waits for its pass.
        """
        if not self.shared and len({*threads} - {None}) > 1 and not self.in_backward:
            self.shared = True
            self.reopen()

    @property
    def in_backward(self) -> bool:
        """True if this thread runs a part of a backward pass."""
        return bool(self._backward_of() != OUTSIDE)

    def begin(self, call: ModuleCall, after: Callable[..., None]) -> None:
        """Enter an outermost call, and have torch call `after` at its end."""
        module = call.module
        with self._lock:
            self.enter(call)
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
            runs_elsewhere = any(
                other is not None and other.module is module
                for other in self._inside.values()
            )
            if not runs_elsewhere:
                module._forward_hooks.pop(POST, None)
                module._forward_hooks_with_kwargs.pop(POST, None)
                module.__dict__.get(ALWAYS, {}).pop(POST, None)
        self.reopen()
        return call

    def reopen(self) -> None:
        """Put the hook in place, if calls are recorded and no thread's call keeps it out."""
        kept_out = bool(self._inside) and not self.shared
        if self.wanted and self._hook is not None and not kept_out:
            self._hooks[KEY] = self._hook

    def remove(self) -> None:
        """Notice nothing for good."""
        self._hook = None
        self._hooks.pop(KEY, None)


def install(torch: Any, session: Session) -> None:
    """Hook calls of modules from outside any module, and out-of-memory errors."""
    compiling, by_jit = compiling_of(torch), torch._C._get_tracing_state
    fx: Any = sys.modules.get("torch.fx._symbolic_trace")

    def inner(module: Any) -> bool:
        """True if the call of a module is a part of another one; where the entrance is shared.

        That other one may run in another thread: DataParallel runs replicas, and autograd
        checkpointed parts, in threads of their own.
        """
        replica = module.__dict__.get("_is_replica", False)
        return entrance.occupied or replica or entrance.in_backward

    def before(module: Any, args: Any) -> None:
        begun = clock()
        if (
            session.is_muted()
            or (entrance.shared and inner(module))
            # a compiler or tracer that follows this call would make us a part of its graph
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
            call = ModuleCall(module, entry, clock(), sys.exc_info()[1])
            entrance.begin(call, after)
        except Exception as problem:
            session.step_aside(problem)
            return
        session.spent_s += clock() - begun

    def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        end = clock()
        call = entrance.end(module)
        if call is None or call.entry is None:
            return
        inputs = (args, kwargs)
        if (failure := call.failure(output)) is not None:
            session.attempt(module_facts.failed, session, call.entry, inputs, failure)
        else:
            session.attempt(_leave, session, call.entry, inputs, output, call.start, end)
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
    functional loss, an optimizer's step. Inside a module's call, a fetch or a backward pass (where
    the entrance is occupied) the program may try again in smaller parts and lose nothing. There
    only an error that comes out is recorded, by the hook around it.
    """
    build(self, *args)
    inside = session.entrance.wanted and session.entrance.occupied
    if inside or not session.works():
        return
    by_class = isinstance(self, session.torch.cuda.OutOfMemoryError)
    if by_class or "out of memory" in str(self):  # the driver has other errors, too
        session.attempt(session.record_exception, self, "step")


def compiling_of(torch: Any) -> Callable[[], bool]:
    """Function that is True while torch compiles its caller; always False in an older torch."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def _enter(session: Session, module: Any) -> Module | None:
    """Facts of a module that is called; None where its calls are not recorded.

    Those are modules without parameters, such as a loss, once one with parameters was called.
    An id comes back for another object once its module is gone, so the facts are asked whether
    they still mean this one.
    """
    entry: Module | None = session.modules_by_id.get(id(module))
    if entry is None or entry.module() is not module:
        if session.own_work:
            session.attempt(own_threads.look, session)
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
    """Record a call that came to its end: its time and items.

    Where nothing else tells one item of work from the next, its arguments are recorded too.
    """
    items = module_facts.items_of(session, entry, inputs, output)
    session.recorder.add(
        ("call", start, end, entry.index, items, session.torch.is_grad_enabled())
    )
    if session.thread is None:
        session.thread = threading.get_ident()
    by_loader = any(loader["iterated"] for loader in session.loaders)
    unfed = not by_loader and session.capture is None
    if entry.parameters and session.torch.is_grad_enabled():
        session.attempt(mixed_losses.keep, session, inputs, output, items)
    if unfed and entry.parameters and entry.calls <= batch_limits.LOOKS:
        batch_limits.look(session.limits, entry.index, fetched=False)
    if unfed and not session.updates:
        with session.unseen():
            module_facts.record_numbers(session, entry, inputs, items)
    learns = session.optimizers_built and not session.counting
    if unfed and learns and session.rows_left > 0:
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
    compile_original, call_original = context.__call__, optimized.__call__

    def compile_shielded(self: Any, fn: Any) -> Any:
        compiled = compile_original(self, fn)
        is_function = isinstance(compiled, types.FunctionType)  # and no OptimizedModule
        if not is_function or type(self).__name__ == "DisableContext":
            return compiled  # what is not to be compiled must not be entered through us
        owner = getattr(fn, "__self__", None)
        module = fn if owner is None else owner  # of `model.forward` the model

        @functools.wraps(compiled)
        def shielded(*args: Any, **kwargs: Any) -> Any:
            return _around(session, module, compiled, args, kwargs)

        if hasattr(compiled, "_torchdynamo_wrapper_id"):
            # torch looks through a wrapper of its own, which it knows by this
            shielded._torchdynamo_wrapper_id = id(shielded)  # type: ignore[attr-defined]
        return shielded

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(call_original, self)
        return _around(session, self, call, args, kwargs)

    session.patches.put(context, "__call__", compile_shielded)
    if "__call__" in vars(optimized):  # in an older torch it is called as any module
        session.patches.put(optimized, "__call__", __call__)


def _around(session: Session, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
    """Make a call of compiled code with the hook out, and record it as one of `module`.

    It is recorded if it is an outermost one; `module` is None where it belongs to none.
    """
    begun, entrance = clock(), session.entrance
    outermost = entrance.occupy()
    entry = None
    try:
        try:
            if outermost and module is not None and not compiling_of(session.torch)():
                entry = _enter(session, module)
                entrance.enter(ModuleCall(module, entry, clock()))
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

    It alone tells how many prompts there are: in the model's calls, beams and several answers to
    one prompt are rows, too.
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
    """Record a call of `generate` and how many prompts it was given: one if none has rows."""
    given = (*args[:1], *(kwargs[name] for name in PROMPTS if name in kwargs))
    rows = next((len(prompts) for prompts in given if prompts is not None), 1)
    session.recorder.add(("generation", start, end, float(rows)))
