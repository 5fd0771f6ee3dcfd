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
