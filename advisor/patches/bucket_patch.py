"""Patch for length buckets, as tried in the process.

`advisor.probe.buckets` is what was tried; a test holds that the patched program goes through the
same batches.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from advisor.patches.patches import OF_LIKE_LENGTH, loader_call
from advisor.patches.python_source import added, behind, leading_imports

if TYPE_CHECKING:
    from advisor.patches.python_source import Edit, Source, Splice

BY_POSITION = 4
"""Arguments that the helper takes without their name, as a DataLoader does."""
NEEDS = ("random", "sys", "torch")

CODE = '''

class LikeLengths:
    """Batches of items of like length: a hundred are drawn at a time, sorted by length, cut, and
    handed out in a random order."""

    def __init__(self, order, lengths, batch_size, drop_last, mixed):
        self.sampler, self.batch_size, self.drop_last = order, batch_size, drop_last
        self.lengths, self.mixed, self.epoch = lengths, mixed, 0

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        keys, batches, size = list(self.sampler), [], self.batch_size
        for start in range(0, len(keys), 100 * size):
            pool = sorted(keys[start : start + 100 * size], key=self.lengths.__getitem__)
            batches += [pool[at : at + size] for at in range(0, len(pool), size)]
        if self.drop_last:
            batches = [batch for batch in batches if len(batch) == size]
        if self.mixed:
            random.Random(self.epoch).shuffle(batches)
        self.epoch += 1
        return iter(batches)


def lengths_of(dataset):
    """Length of each item. All are read with one seed: what is stretched or cut at random is
    stretched and cut alike."""
    kept, numpy = (random.getstate(), torch.get_rng_state()), sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    sums = [0] * len(dataset)
    for _ in range({readings}):
        for index in range(len(dataset)):
            random.seed(0)
            torch.default_generator.manual_seed(0)
            if numpy:
                numpy.random.seed(0)
            item = dataset[index]
            sums[index] += {length}
    random.setstate(kept[0])
    torch.set_rng_state(kept[1])
    if numpy:
        numpy.random.set_state(numpy_state)
    return sums


def {helper}(
    dataset, batch_size=1, shuffle=None, sampler=None, *, drop_last=False, generator=None, **others
):
    """The DataLoader of these arguments, with batches of items of like length."""
    data = torch.utils.data
    if sampler is None and shuffle:
        sampler = data.RandomSampler(dataset, generator=generator)
    elif sampler is None:
        sampler = data.SequentialSampler(dataset)
    mixed = not isinstance(sampler, data.SequentialSampler)
    lengths = lengths_of(dataset)
    batches = LikeLengths(sampler, lengths, batch_size, drop_last, mixed)
    return data.DataLoader(dataset, batch_sampler=batches, generator=generator, **others)
'''
"""Put behind the imports; the probe finds `length` and `readings`."""


def bucket_edit(line: int, length: str, readings: int) -> Edit:
    """Edit a `DataLoader(...)` call to use the helper.

    The call covers `line`; the helper stands behind the imports. It cannot be made if there is no
    one such call, if it takes more by position than the helper does, if the file has the helper's
    names already, or if `length` is no length expression.
    """

    def edit(source: Source) -> list[Splice] | None:
        call = loader_call(source, line)
        block = leading_imports(source.tree)
        if call is None or call.from_arguments or not block or not is_length(length):
            return None
        node = call.node
        starred = any(isinstance(arg, ast.Starred) for arg in node.args)
        if starred or len(node.args) > BY_POSITION:
            return None
        text = CODE.format(helper=OF_LIKE_LENGTH, length=length, readings=max(1, readings))
        helpers = [added(each) for each in ast.parse(text).body]
        names = {each.name for each in helpers if isinstance(each, (ast.ClassDef, ast.FunctionDef))}
        if names & _names(source.tree):
            return None
        missing = [name for name in NEEDS if name not in _imported(block)]
        text = "".join(f"import {name}\n" for name in missing) + text
        at = behind(source, block[-1])
        if at is None:
            return None
        index = source.tree.body.index(block[-1]) + 1
        source.tree.body[index:index] = [added(each) for each in ast.parse(text).body]
        start, end = source.span(node.func)
        node.func = ast.copy_location(ast.Name(id=OF_LIKE_LENGTH, ctx=ast.Load()), node.func)
        lines = text.removesuffix("\n").replace("\n", source.newline.decode())
        inserted = source.newline + lines.encode()
        return [(at, at, inserted), (start, end, OF_LIKE_LENGTH.encode())]

    return edit


def is_length(length: str) -> bool:
    """True for a plain length expression.

    It is `item[0].shape[1]` or `len(item["ids"])` and nothing more: the user's process
    wrote it."""
    try:
        tree = ast.parse(length, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    if isinstance(tree, ast.Call):
        plain = isinstance(tree.func, ast.Name) and tree.func.id == "len"
        if not plain or len(tree.args) != 1 or tree.keywords:
            return False
        tree = tree.args[0]
    while isinstance(tree, (ast.Subscript, ast.Attribute)):
        if isinstance(tree, ast.Subscript) and not isinstance(tree.slice, ast.Constant):
            return False
        tree = tree.value
    return isinstance(tree, ast.Name) and tree.id == "item"


def _imported(block: list[ast.stmt]) -> set[str]:
    """Modules that are imported under their own names."""
    return {
        alias.name.partition(".")[0]
        for node in block
        if isinstance(node, ast.Import)
        for alias in node.names
        if not alias.asname
    }


def _names(tree: ast.Module) -> set[str]:
    """Names that a module assigns at its top."""
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    named = {node.name for node in tree.body if isinstance(node, defined)}
    return named | {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
