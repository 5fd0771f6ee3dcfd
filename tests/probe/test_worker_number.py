"""How a stream uses the number of its workers is read in the code that asks for it."""

import pytest

from advisor.probe import worker_number

ASKING = """
def order(self, count):
    worker = get_worker_info()
    if worker is None:
        return range(count)
    {line}
    {then}
"""


@pytest.mark.parametrize(
    ("line", "then", "seeds"),
    [
        ("seed = self.epoch * worker.num_workers + worker.id", "return default_rng(seed)", True),
        ("rng = random.Random(worker.num_workers + worker.id)", "return rng.random()", True),
        ("print('of', worker.num_workers)", "return range(count)", True),
        ("name = f'{worker.id}/{worker.num_workers}'", "log.info(name)", True),
        ("return range(worker.id, count, worker.num_workers)", "pass", False),
        ("return self.items[worker.id :: worker.num_workers]", "pass", False),
        ("size = count // worker.num_workers", "return range(worker.id * size, size)", False),
        ("step = worker.num_workers", "return islice(self.items, worker.id, None, step)", False),
        ("many = int(worker.num_workers) * self.ranks", "return self.part(many)", False),
        ("seed = worker.num_workers", "return default_rng(seed).choice(count // seed)", False),
        ("self.many = worker.num_workers", "return self.rest()", False),
        ("return worker.num_workers", "pass", False),
        ("return getattr(worker, 'num_workers')", "pass", False),
    ],
)
def test_a_number_that_goes_into_seeds_alone_shares_nothing_out(tmp_path, line, then, seeds):
    """Whatever else is done with it may deal out the items."""
    path = tmp_path / "stream.py"
    path.write_text(ASKING.replace("{line}", line).replace("{then}", then))
    assert worker_number.only_seeds(str(path), 6, "num_workers") is seeds


ENDING = """
def __iter__(self):
    worker, seen = get_worker_info(), 0
    each = self.size // worker.num_workers
    {stream}


def samples(self):
    while True:
        yield from self.shards
"""


COUNTED = """for item in self.samples():
        seen += 1
        if seen > self.size:
            return
        yield item"""


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        ("return islice(self.samples(), self.size)", "islice(self.samples(), self.size)"),
        ("return islice(self.samples(), each)", ""),
        ("return islice(self.samples(), self.size // worker.num_workers)", ""),
        ("return islice(self.samples(), worker.id, None, worker.num_workers)", ""),
        (COUNTED, "seen > self.size"),
        ("for item in self.samples():\n        if item is None: return\n        yield item", ""),
        (
            "source = self.samples()\n    for _ in range(self.size): yield next(source)",
            "range(self.size)",
        ),
        ("yield from self.samples()", ""),
    ],
)
def test_a_stream_without_an_end_is_cut_in_each_worker(tmp_path, stream, code) -> None:
    """A number that follows that of the workers cuts all of them together."""
    path = tmp_path / "stream.py"
    path.write_text(ENDING.replace("{stream}", stream))
    scope: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    functions = [scope["__iter__"], scope["samples"]]
    assert worker_number.ends_for_itself(functions) == code
    assert worker_number.ends_for_itself(functions[:1]) == ""
