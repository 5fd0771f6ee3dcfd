"""Work of real trials: what workers would do to a dataset is told, and nothing else is."""

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.model import MeasurePlan, Run
from advisor.probe import dataset_state
from advisor.tuner import same_work
from advisor.tuner.same_work.facts import first_items, loader_of, updates_of
from tests.probe import program


@cache
def trial(name: str, *settings: str) -> Run:
    """Run of the dataset of that name, with so many workers."""
    with TemporaryDirectory(prefix="gpu-advisor-test-", ignore_cleanup_errors=True) as folder:
        words = ("work_data.py", name, *settings)
        return program.python(Path(folder), *words, plan=program.WHOLE).measured


def causes(before: Run, after: Run) -> list[str]:
    return [difference.cause for difference in same_work.differences([before], after)]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Held", "shared-generator"),
        ("Held-subset", "shared-generator"),
        ("Held-alike", "shared-generator"),
        ("HeldBesideArrays", "shared-generator"),
        ("HeldByAList", "shared-generator"),
        ("Keeping", "cache-of-dataset"),
        ("Keeping-subset", "cache-of-dataset"),
        ("Filling", "cache-of-dataset"),
        ("KeepingStream", "cache-of-dataset"),
        ("Decoding", "cache-of-dataset"),
        ("KeepingOfClass", "cache-of-dataset"),
        ("KeepingElsewhere", "cache-of-dataset"),
        ("Dealt", "not-sharded"),
        ("Dealt-seeded", "not-sharded"),
        ("Piped-whole", "not-sharded"),
        ("Counting", "state-of-dataset"),
        ("PassCounting", "state-of-dataset"),
        ("Stream", "items-repeat"),
        ("Shuffled", "not-sharded"),
        ("Seeding", "not-sharded"),
        ("Losing", "items-missing"),
        ("CountingUnevenly", "state-of-dataset"),
        ("Asked", "state-of-dataset"),
        ("PartedCounting", "state-of-dataset"),
        ("MadeInWorkers", "shared-generator"),
        ("Drawing-numbered", "shared-generator"),
        ("Reordering-reordered", "not-sharded"),
        ("Inside", "set-by-program"),
        ("Inside-late", "set-by-program"),
        ("Namespaced", "set-by-program"),
        ("Namespaced-late", "set-by-program"),
        ("Gauged", "set-by-program"),
        ("Globally", "set-by-program"),
        ("Named", "set-by-program"),
        ("Called", "set-by-program"),
        ("Transformed", "set-by-program"),
        ("SeedingByCount", "not-sharded"),
        ("EndlessOrder", "shared-generator"),
        ("PassEnding", "items-repeat"),
        ("EndlessAlike", "items-repeat"),
    ],
)
def test_workers_that_change_the_work_are_told_by_its_cause(name, cause) -> None:
    """By what two workers and none were seen to do, whatever the setting is called."""
    assert cause in causes(trial(name, "0"), trial(name, "2"))


@pytest.mark.parametrize(
    "name",
    [
        *("Items", "Opening", "Held-reseeded", "Told", "Weighted", "Shared"),
        *("Parted", "Endless", "Dealt-dealt", "Piped", "ShufflingStream"),
        *("Tallying", "MadeOfTorchsSeed", "Handles", "Drawing-bytorch"),
        *("Updated", "Encoding", "HandlesCached", "Shards", "Timing"),
        *("EndlessOrderOfEach", "PartedShuffling"),
    ],
)
def test_workers_that_do_the_same_work_are_no_difference(name) -> None:
    """A file that each opens, a seed of its own and a part of its own are as they should be."""
    assert causes(trial(name, "0"), trial(name, "2")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kept"), [("KeepingInside", True), ("Slow", False), ("KeepingTheLatest", False)]
)
def test_items_that_come_quicker_again_are_kept_somewhere(tmp_path, name, kept) -> None:
    """Wherever that is; one part at a time is no cache that a later pass would find."""
    words = ("work_data.py", f"{name}-long", "0")
    parted = MeasurePlan(measure_s=0.3, min_steps=8, ceilings_workers=(0,), ceilings_s=0.2)
    before = program.python(tmp_path, *words, plan=parted).measured
    assert ("cache-of-dataset" in causes(before, trial("Slow", "2"))) is kept


@pytest.mark.parametrize(
    "name",
    [
        *("Told", "Weighted", "Levelled", "Told-brief", "Weighted-brief", "Levelled-brief"),
        *("Hooked", "Hooked-brief", "Playing", "Ramped", "Environs"),
    ],
)
def test_workers_that_stay_miss_what_the_program_sets(name) -> None:
    """A trial that ends within its first pass knows it by the loop around it."""
    found = causes(trial(name, "2"), trial(name, "2", "persistent"))
    assert set(found) - {"items-repeat"} == {"set-by-program"}


@pytest.mark.parametrize(("name", "cause"), [("OneHandle", "items-missing"), ("Opening", None)])
def test_workers_that_move_each_others_place_in_a_file_are_told(tmp_path, name, cause) -> None:
    """What lies at an index is another thing, though nothing was drawn; some may come twice."""
    words = ("work_data.py", f"{name}-long", "0")
    parted = MeasurePlan(measure_s=0.3, min_steps=8, ceilings_workers=(0,), ceilings_s=0.2)
    before = program.python(tmp_path, *words, plan=parted).measured
    found = set(causes(before, trial(f"{name}-long", "2")))
    assert found - ({"items-repeat"} if cause else set()) == {cause} - {None}


def test_workers_never_see_the_updates_of_a_network_that_makes_items(tmp_path) -> None:
    """The first update may come after the batches around which the state is read."""
    words = ("work_data.py", "Playing-long", "0")
    before = program.python(tmp_path, *words, plan=program.PLAN).measured
    assert loader_of(before).by_loop == {"dataset.policy": "weights"}
    assert causes(before, trial("Playing", "2")) == ["set-by-program"]


@pytest.mark.parametrize(
    "name", ["Items", "Opening", "Shared", "Parted", "Items-brief", "Encoding"]
)
def test_workers_may_stay_where_nothing_is_set(name) -> None:
    """Memory that they share is seen by all of them."""
    assert causes(trial(name, "2"), trial(name, "2", "persistent")) == []


class Taken(list):
    """A list that notes what is asked of it."""

    asked: list[str] = []  # noqa: RUF012  one for all

    def __getitem__(self, place):
        self.asked.append("item")
        return super().__getitem__(place)

    def __len__(self):
        self.asked.append("length")
        return super().__len__()

    def __iter__(self):
        self.asked.append("pass")
        return super().__iter__()


def test_reading_a_datasets_state_runs_none_of_its_code() -> None:
    """An item that is made as it is taken may draw from a generator, and so change the next."""
    first, second = (dataset_state.read({"data": {"kept": Taken(kept)}}) for kept in ["ab", "bc"])
    assert Taken.asked == []
    assert set(dataset_state.changes(first, second)) == {
        "data.kept[]",
        "data.kept.0",
        "data.kept.1",
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [("Counting", True), ("Tallying", False), ("Items", False), ("Scratch", False)],
)
def test_a_count_in_each_worker_grows_slower_in_more_of_them(name, told) -> None:
    found = causes(trial(name, "1", "persistent"), trial(name, "2", "persistent"))
    assert set(found) - {"items-repeat"} == ({"state-of-dataset"} if told else set())


@pytest.mark.parametrize(
    ("name", "told"), [("SeedingTorch", ["shared-generator"]), ("DrawingTorch", []), ("Items", [])]
)
def test_items_that_seed_the_process_may_not_move_into_that_of_the_loop(name, told) -> None:
    assert causes(trial(name, "2"), trial(name, "0")) == told


def test_an_array_that_shows_in_no_item_may_be_written_by_each_worker(tmp_path) -> None:
    """The same items, asked for again after others, come as they were."""
    parted = MeasurePlan(measure_s=0.3, min_steps=8, ceilings_workers=(0,), ceilings_s=0.2)
    for name, told in (("Scratch", []), ("Smoothed", ["state-of-dataset"])):
        words = ("work_data.py", f"{name}-long", "0")
        before = program.python(tmp_path / name, *words, plan=parted).measured
        assert causes(before, trial(name, "2")) == told


def test_a_generator_that_each_item_seeds_may_be_copied(tmp_path) -> None:
    """The same items, asked for again, come as they were and leave it as it was."""
    parted = MeasurePlan(measure_s=0.3, min_steps=8, ceilings_workers=(0,), ceilings_s=0.2)
    runs = {}
    for name in ("SeedingEach", "HeldSlowly"):
        words = ("work_data.py", f"{name}-long", "0")
        runs[name] = program.python(tmp_path / name, *words, plan=parted).measured
        assert runs[name].work.items_alike is (name == "SeedingEach")
    assert causes(runs["SeedingEach"], trial("SeedingEach", "2")) == []
    assert "shared-generator" in causes(runs["HeldSlowly"], trial("HeldSlowly", "2"))


def test_one_worker_of_a_stream_repeats_nothing() -> None:
    assert causes(trial("Stream", "0"), trial("Stream", "1")) == []


def test_items_and_updates_are_told_as_seen() -> None:
    """The words of the report's table."""
    found = same_work.observed([trial("Items", "0")], trial("Items", "2"))
    assert found["items"] == "the same 48 items a pass"
    assert found["updates"].startswith("4 samples an update, ")


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("clamped", "update-samples"),
        ("rate", "learning-rate"),
        ("rate-of-a-group", "learning-rate"),
        ("momentum", "optimizer-settings"),
        ("schedule", "schedule"),
        ("batchnorm", "batch-statistics"),
        ("contrastive", "loss-of-update"),
        ("sums", "loss-of-update"),
        ("weakly-contrastive", "loss-of-update"),
        ("each-batch-of-torch", "running-average"),
        ("each-batch-listed", "running-average"),
        ("each-batch-shadow", "running-average"),
        ("each-batch-copied", "running-average"),
        ("edits-each-batch-clip", "own-edits"),
        ("edits-each-batch-clamp", "own-edits"),
        ("edits-each-batch-noise", "own-edits"),
        ("edits-each-batch-decay", "own-edits"),
        ("annealed", "counters"),
        ("freed", "counters"),
        ("synced", "counters"),
        ("validated", "counters"),
        ("of-a-state", "counters"),
        ("of-a-dict", "counters"),
        ("hooked", "own-edits"),
        ("unseen-loss", "loss-of-update"),
        ("in-order", "items-missing"),
        ("target-inside", "running-average"),
        ("keeps-an-average", "running-average"),
        ("keeps-a-queue", "running-average"),
        ("in-turn", "update-samples"),
        ("left-over", "update-samples"),
        ("spoiled", "items-missing"),
        ("drawn", "counters"),
    ],
)
def test_what_follows_the_batch_in_an_update_is_told_by_its_cause(how, cause) -> None:
    """Batches of 4 eight times, and of 16 twice: an update should be the same."""
    assert cause in causes(updating(how, "4", "8"), updating(how, "16", "2"))


def test_rows_that_go_beside_each_batch_are_counted_in_an_update() -> None:
    """Two remembered items beside four, eight times, and beside sixteen, twice."""
    found = same_work.differences([updating("beside", "4", "8")], updating("beside", "16", "2"))
    told = "An update takes 36 rows through the network, where it took 48."
    assert told in [each.sentence for each in found]


@pytest.mark.parametrize(
    "how",
    [
        "plain",
        "shared",
        "schedule-of-updates",
        "watched",
        "divided",
        "keeps-the-latest",
        "masked",
        *(f"each-update-{k}" for k in ("listed", "shadow", "copied")),
        *(f"edits-each-update-{k}" for k in ("clip", "clamp", "noise", "decay")),
    ],
)
def test_an_update_of_another_batch_and_as_many_samples_is_the_same(how) -> None:
    assert causes(updating(how, "4", "8"), updating(how, "16", "2")) == []


@pytest.mark.parametrize(
    ("how", "differs"),
    [
        ("hardest", True),
        ("normalised", True),
        ("contrastive", True),
        ("plain", False),
        ("mixed", False),
    ],
)
def test_of_the_same_items_the_losses_of_equal_updates_are_the_same(how, differs) -> None:
    """Two equal runs repeat themselves, so that the smallest difference is the batch's. Where the
    loop draws random numbers, numpy's too, it may be theirs."""
    originals = [updating(how, "4", "8"), again(how, "4", "8")]
    for known in (originals, originals[:1]):
        found = same_work.differences(known, updating(how, "16", "2"))
        told = [each.sentence for each in found if "Of the same items" in each.sentence]
        assert bool(told) is differs, "a short budget has one original only"
    if how == "hardest":
        assert "the loss of an update depends on its batches" in found[0].sentence


def test_items_in_order_lie_as_near_to_each_other_however_many_are_drawn(tmp_path) -> None:
    """A faster run draws more of them, and its updates are of no other items."""

    def spread(count: int) -> tuple[float, ...]:
        code = f"""\
import torch
net = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for (x,) in torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.ones({count}, 1)), batch_size=2
):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
"""
        folder = tmp_path / str(count)
        folder.mkdir()
        return first_items(program.in_a_file(folder, code).measured, "drawn").spread

    few, many = spread(64), spread(512)
    assert few
    assert many[: len(few)] == pytest.approx(few)


CLOSURES = """\
import sys
import torch
batch, accumulation = map(int, sys.argv[1:])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.rand(256, 4), torch.rand(256, 1))
for number, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=batch), 1):
    def closure():
        if (number - 1) % accumulation == 0:
            optimizer.zero_grad()
        loss = (net(x) - y).square().mean() / accumulation
        loss.backward()
        return loss
    if number % accumulation:
        closure()
    else:
        optimizer.step(closure)
"""


def test_gradients_that_a_closure_makes_inside_of_the_step_are_those_of_the_update(
    tmp_path,
) -> None:
    """Before the step the last batch of an accumulation is missing, and all of a single one."""

    def updates(*settings: str) -> Run:
        folder = tmp_path / "-".join(settings)
        folder.mkdir()
        path = folder / "program.py"
        path.write_text(CLOSURES)
        command = (sys.executable, str(path), *settings)
        plan, begin = program.WHOLE, program.forked
        return program.run(folder, *command, plan=plan, begin=begin).measured

    small, large = updates("2", "8"), updates("16", "1")
    assert causes(small, large) == []
    (first, *_), (other, *_) = (updates_of(run).gradients for run in (small, large))
    assert other == pytest.approx(first, rel=1e-3)
    assert updates_of(large).parts == 4


def test_a_copy_of_the_weights_is_named_as_the_program_writes_it() -> None:
    before, after = (
        updating("each-batch-shadow", "4", "8"),
        updating("each-batch-shadow", "16", "2"),
    )
    (found,) = same_work.differences([before], after)
    assert "`kept.shadow` moves 2 times an update where it moved 8 times" in found.sentence


@cache
def updating(*words: str) -> Run:
    return again(*words)


def again(*words: str) -> Run:
    """Run of a training by accumulation."""
    with TemporaryDirectory(prefix="gpu-advisor-test-", ignore_cleanup_errors=True) as folder:
        return program.python(Path(folder), "work_updates.py", *words, plan=program.WHOLE).measured


LIMITED = """
import itertools, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
batch, limit = {batch}, 24
data = torch.randn(960, 16)
loader = DataLoader(TensorDataset(data), batch_size=batch)
net = torch.nn.Linear(16, 4).eval()

def infer(x):
    net(x)
    time.sleep(0.003)

with torch.no_grad():
{loop}
"""
LOOPS = {
    "a break": """
    for number, (x,) in enumerate(loader):
        if number >= limit:
            break
        infer(x)
""",
    "a slice": """
    for number, (x,) in enumerate(itertools.islice(loader, limit)):
        infer(x)
""",
    "a slice with a name": """
    some = itertools.islice(loader, limit)
    for x, in some:
        infer(x)
""",
    "a countdown": """
    left = limit
    for x, in loader:
        infer(x)
        left -= 1
        if left == 0:
            break
""",
    "a range": """
    batches = iter(loader)
    for _ in range(limit):
        infer(next(batches)[0])
""",
    "a pair": """
    for _, (x,) in zip(range(limit), loader):
        infer(x)
""",
    "a while": """
    batches = iter(loader)
    number = 0
    while number < limit:
        infer(next(batches)[0])
        number += 1
""",
    "what is left over": """
    for n in range(len(data) // (batch + 3)):
        infer(data[n * batch : (n + 1) * batch])
""",
    "the data": """
    for x, in loader:
        infer(x)
""",
    "a range over the data": """
    batches = iter(loader)
    for _ in range(len(data) // batch):
        infer(next(batches)[0])
""",
    "a break of another mode": """
    for number, (x,) in enumerate(loader):
        if batch > 100 and number == 24:
            break
        infer(x)
""",
    "a number of items": """
    seen = 0
    for x, in loader:
        infer(x)
        seen += len(x)
        if seen >= 960:
            break
""",
    "slices": """
    for n in range(0, len(data), batch):
        infer(data[n : n + batch])
""",
}


ALL_DATA = (
    "the data", "a range over the data", "a break of another mode", "a number of items", "slices",
)  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_ends_after_so_many_batches_is_told(loop) -> None:
    """With batches of 16 for 4 it goes through other items; one that follows the batch does not."""
    found = same_work.differences([limited(loop, 4)], limited(loop, 16))
    told = [each.sentence for each in found if "ends a loop after" in each.sentence]
    assert bool(told) is (loop not in ALL_DATA), told


def limited(loop: str, batch: int) -> Run:
    with TemporaryDirectory(prefix="gpu-advisor-test-", ignore_cleanup_errors=True) as folder:
        text = LIMITED.replace("{batch}", str(batch)).replace("{loop}", LOOPS[loop])
        return program.in_a_file(Path(folder), text).measured


HANDED_ON = """
import sys, torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Recordings(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for recording in range(info.id, 8, info.num_workers) if info else range(8):
            for at in range(32):
                yield torch.full((6,), recording + at / 32)

def main():
    torch.manual_seed(0)
    net = torch.nn.GRU(6, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    hidden = None
    for x in DataLoader(Recordings(), batch_size=4, num_workers={workers}):
        out, state = net(x.unsqueeze(1), hidden)
        hidden = state.detach() if {handed_on} else None
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()

main()
"""


@pytest.mark.parametrize("handed_on", [True, False])
def test_a_state_that_goes_from_batch_to_batch_keeps_their_order(tmp_path, handed_on) -> None:
    """Two workers take turns, so that the state of one recording would go to another."""
    runs = []
    for workers in ("0", "2"):
        folder = tmp_path / workers
        folder.mkdir()
        text = HANDED_ON.replace("{workers}", workers).replace("{handed_on}", str(handed_on))
        runs.append(program.in_a_file(folder, text).measured)
    assert causes(*runs) == (["state-of-dataset"] if handed_on else [])


IN_A_FUNCTION = """
import torch, weakref
from torch import nn

def train():
    held = {asks}
    net = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    average = [p.detach().clone() for p in net.parameters()]
    batches = []
    for number in range(40):
        x = torch.randn(4, 16)
        net(x).mean().backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        average = [0.9 * a + 0.1 * p.detach() for a, p in zip(average, net.parameters())]
        batches.append(weakref.ref(x))
        del x
    print("alive", sum(each() is not None for each in batches), "held", sorted(held))

train()
"""


@pytest.mark.parametrize(
    ("asks", "found"),
    [
        ("{}", {"average": 2.0}),
        ("locals()", {}),
        ("dict(nn.Linear(1, 1).eval().named_buffers())", {"average": 2.0}),
    ],
)
def test_a_functions_variables_are_read_and_neither_kept_nor_changed(tmp_path, asks, found) -> None:
    """A batch that the program let go of is gone, and what it holds of its own stays as it was."""
    outcome = program.in_a_file(tmp_path, IN_A_FUNCTION.replace("{asks}", asks))
    assert updates_of(outcome.measured).copies == found
    assert outcome.stdout == "alive 0 held []\n"


EDITED = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
{setup}
for number in range(40):
    x = torch.randn(4, 16)
{step}
"""
BY_ACCUMULATION = """
    net(x).square().mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1e6)
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""
ADVERSARIES = """
    net(x).square().mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1e6)
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
        other(x).square().mean().backward()
        against.step()
        against.zero_grad()
"""
OF_ROWS = """
    net(torch.arange(4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OF_A_CLOSURE = """
    def closure():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
"""
ONE = "net = nn.Linear(16, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
TWO = f"other = nn.Linear(16, 1); against = torch.optim.SGD(other.parameters(), lr=0.1)\n{ONE}"
SPARSE = (
    "net = nn.Embedding(50, 8, sparse=True); optimizer = torch.optim.SparseAdam(net.parameters())"
)
CLOSED = "net = nn.Linear(16, 1); optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    ("setup", "step", "edits"),
    [
        (ONE, BY_ACCUMULATION, {"gradients": 4.0, "weights": 0.0}),
        (TWO, ADVERSARIES, {"gradients": 4.0, "weights": 0.0}),
        (SPARSE, OF_ROWS, {"weights": 0.0}),
        (CLOSED, OF_A_CLOSURE, {"weights": 0.0}),
    ],
)
def test_edits_are_the_programs_own(tmp_path, setup, step, edits) -> None:
    """Sparse gradients have no place to look at, and what LBFGS moves itself is no edit. Of two
    optimizers that take turns each has updates of its own."""
    outcome = program.in_a_file(tmp_path, EDITED.format(setup=setup, step=step))
    assert updates_of(outcome.measured).edits == edits


PADDED = """
import sys, time
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
texts = [torch.randn(40 - number % 23, 4) for number in range(2000)]
net = nn.GRU(4, 8, batch_first=True)


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def forward(self, x, lengths):
        out = self.net(x)[0]
        return out[torch.arange(len(x)), lengths - 1] if {masked} else out[:, -1]

def together(items):
    return pad_sequence(items, batch_first=True), torch.tensor([len(item) for item in items])

model = Last().eval()
with torch.no_grad():
    for x, lengths in DataLoader(texts, batch_size={batch}, collate_fn=together):
        model(x, lengths)
        time.sleep(0.001)
"""


@pytest.mark.parametrize("masked", [False, True])
def test_a_result_that_padding_reaches_differs_in_a_larger_batch(tmp_path, masked) -> None:
    """The longest of a batch stays as it was; what stands behind it is padded."""
    runs = []
    for batch in (1, 1, 8):
        text = PADDED.replace("{batch}", str(batch)).replace("{masked}", str(masked))
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(program.in_a_file(folder, text).measured)
    assert [len(run.effects.rows) for run in runs] == [64, 64, 64]
    found = [each.cause for each in same_work.differences(runs[:2], runs[2])]
    assert found == ([] if masked else ["results"])
