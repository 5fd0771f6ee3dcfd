"""Small programs, each with what a change of its settings truly does to its work.

Sleeps stand for the disk and the device, so the gain of a setting is known and hardly depends on
the machine. Harm is known by construction too: a dataset that does not ask for its worker yields
everything in each of them, whatever a clock says of it.

A program is put together from a head, data, and a loop, as people write it: one file that reads a
YAML config. Others stand in `written/` as somebody wrote them who looked for faults of this kind:
what they do is told by their own counts, with COUNT=1 in the environment, before and after.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent

import yaml

HEAD = """\
import itertools, random, sqlite3, sys, time
import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

with open(sys.argv[1]) as file:
    c = yaml.safe_load(file)
torch.manual_seed(0)
torch.set_num_threads(1)
"""

LOADER = {"batch_size": 16, "num_workers": 0}
"""Settings of a loop that waits for its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, and the truth about its settings."""

    name: str
    source: str
    config: dict[str, object]
    harmful: dict[str, str] = field(default_factory=dict)
    """Setting to what a change of it breaks. It must not be written."""
    free: dict[str, float] = field(default_factory=dict)
    """Setting to the gain that it gives without any change of the work."""
    harmless: Collection[int] = ()
    """Values of a harmful setting that do no harm."""
    told: dict[str, object] = field(default_factory=dict)
    """A change whose effect is told by the program's own counts."""

    @property
    def changed(self) -> dict[str, object]:
        """Config with one change of the settings that are harmful or free."""
        return {**self.config, **(self.told or changes(self.config, self.harmful or self.free))}


def changes(config: dict[str, object], settings: Collection[str]) -> dict[str, object]:
    """Other values of these settings, as a search would try them."""
    found: dict[str, object] = {}
    if "num_workers" in settings:
        found["num_workers"] = 0 if config["num_workers"] else 2
    if "batch_size" in settings:
        batch = config["batch_size"]
        assert isinstance(batch, int)
        found["batch_size"] = 16 * batch
        found |= {"accumulation": 1} if "accumulation" in config else {}
    found |= {name: not config[name] for name in settings if type(config[name]) is bool}
    return found


NETWORK = "net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 1))"


def lines(text: str, indent: int = 0) -> list[str]:
    """Lines of a piece of a program, as deep as they stand in it."""
    found = dedent(text).strip("\n").splitlines()
    return [" " * indent + line for line in found]


def training(
    data: str,
    *,
    loader: str = "",
    model: str = NETWORK,
    before: str = "",
    each_epoch: str = "",
    each_batch: str = "",
    given: str = "x",
    each_update: str = "",
    after_epoch: str = "",
    body: str = "",
) -> str:
    """Training of a small network over `data`, which defines `data`; `body` is that of its loop."""
    loader = loader or (
        "loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'])"
    )
    update = f"""
        loss = F.mse_loss(net({given}), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        """
    whole = [
        *lines(data),
        *lines(loader),
        *lines(model),
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.01)",
        *lines(before),
        "for epoch in range(1000):",
        *lines(each_epoch, 4),
        "    for x, y in loader:",
        *lines(each_batch, 8),
        *lines(body or update, 8),
        *lines(each_update, 8),
        *lines(after_epoch, 4),
    ]
    return HEAD + "\n".join(whole) + "\n"


def accumulating(
    *,
    model: str = NETWORK,
    accumulation: str = "c['accumulation']",
    before: str = "",
    loss: str = "F.mse_loss(net(x), y) / accumulation",
    each_batch: str = "",
    each_update: str = "",
    rate: str = "0.01",
    ends: str = "",
) -> str:
    """Training by accumulation, whose device time is mostly paid by the call."""
    whole = [
        "data = torch.utils.data.TensorDataset(torch.randn(20000, 16), torch.randn(20000, 1))",
        "loader = DataLoader(data, batch_size=c['batch_size'], shuffle=True)",
        *lines(model),
        f"optimizer = torch.optim.SGD(net.parameters(), lr={rate})",
        f"accumulation = {accumulation}",
        *lines(before),
        "count = 0",
        "for epoch in range(1000):",
        "    for x, y in loader:",
        "        time.sleep(0.012 + 0.0004 * len(x))  # the device",
        f"        ({loss}).backward()",
        "        count += 1",
        *lines(each_batch, 8),
        "        if count % accumulation == 0:",
        "            optimizer.step()",
        "            optimizer.zero_grad()",
        *lines(each_update, 12),
        *lines(ends, 8),
    ]
    return HEAD + "\n".join(whole) + "\n"


def drawn_anew(source: str) -> str:
    """The program without its seed: each run draws other weights, and begins at another loss."""
    return source.replace("torch.manual_seed(0)\n", "")


def inference(data: str, *, loader: str = "", model: str = "", body: str = "") -> str:
    """Inference over `data`, whose device time is mostly paid by the call."""
    loader = loader or (
        "loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'])"
    )
    model = model or "net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()"
    body = (
        body
        or """
        with torch.no_grad():
            for x, y in loader:
                time.sleep(0.010)  # the device
                rows.append(net(x))
        """
    )
    parts = (data, loader, model, "rows = []", body, "torch.save(torch.cat(rows), 'rows.pt')")
    return HEAD + "\n".join(line for part in parts for line in lines(part)) + "\n"


MAP = """
    class Items(Dataset):
        def __len__(self):
            return 4000
        def __getitem__(self, index):
            time.sleep(0.003)  # the disk
            {draw}
            return x, torch.tensor([float(index % 7)])
    data = Items()
    """


def items(draw: str) -> str:
    """A map-style dataset without state."""
    return dedent(MAP).format(draw=draw)


PLAIN = items("x = torch.full((16,), index / 4000)")


def stateful(init: str, get: str, *, more: str = "", count: int = 640) -> str:
    """A map-style dataset that holds something of its own."""
    return "\n".join(
        [
            "class Items(Dataset):",
            "    def __init__(self):",
            *lines(init, 8),
            "    def __len__(self):",
            f"        return {count}",
            "    def __getitem__(self, index):",
            *lines(get, 8),
            "        return x, torch.tensor([float(index % 7)])",
            *lines(more, 4),
            "data = Items()",
        ]
    )


def caching(kept: str, missing: str) -> str:
    """A map-style dataset that keeps its items in `kept`, once they were `missing`."""
    return stateful(
        f"self.kept = {kept}",
        f"""
        if {missing}:
            time.sleep(0.008)
            self.kept[index] = torch.full((16,), index / 640)
        x = self.kept[index]
        """,
    )


def iterable(body: str, *, init: str = "pass") -> str:
    """An iterable dataset."""
    return "\n".join(
        [
            "class Items(IterableDataset):",
            "    def __init__(self):",
            *lines(init, 8),
            "    def __iter__(self):",
            *lines(body, 8),
            "data = Items()",
            "def item(index):",
            "    time.sleep(0.003)",
            "    return torch.full((16,), index / 1000), torch.tensor([float(index % 7)])",
        ]
    )


PIPE = """
from torch.utils.data.datapipes.iter import IterableWrapper
def item(index):
    time.sleep(0.003)
    return torch.full((16,), index / 4000), torch.tensor([float(index % 7)])
data = IterableWrapper(range(4000)).shuffle(){shared}.map(item)
"""
TWICE = "each worker yields all of it"
EQUAL = "workers draw equal random numbers"
EMPTY = "each pass forks an empty cache"
FROZEN = "workers keep what the dataset was when they began"
UPDATE = "an update is no longer the same"
SCHEDULE = "the schedule runs by batches"
RATE = "the learning rate follows"
PERSISTENT = {"batch_size": 16, "num_workers": 2, "persistent_workers": False}
KEEPING = """
    loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                        persistent_workers=c['persistent_workers'])
    """
SLOW_WORKERS = """
    def slowly(number):
        time.sleep(0.4)
    loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                        persistent_workers=c['persistent_workers'], worker_init_fn=slowly)
    """
MICRO = {"batch_size": 2, "accumulation": 16}
SHUFFLED = """
    loader = DataLoader(data, batch_size=c['batch_size'], shuffle=True,
                        num_workers=c['num_workers'])
    """

WORKERS_HARM = (
    Program(
        name="iterable_whole",
        source=training(iterable("for index in range(1000):\n    yield item(index)")),
        config=LOADER,
        harmful={"num_workers": TWICE},
        harmless=range(2),
    ),
    Program(
        name="iterable_shuffle_buffer",
        source=training(
            iterable(
                """
                buffer = []
                for index in range(1000):
                    buffer.append(item(index))
                    if len(buffer) == 32:
                        yield buffer.pop(random.randrange(32))
                yield from buffer
                """
            )
        ),
        config=LOADER,
        harmful={"num_workers": TWICE},
        harmless=range(2),
    ),
    Program(
        name="iterable_asks_and_ignores",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                name = "main" if worker is None else f"worker {worker.id}"
                for index in range(1000):
                    yield item(index)
                """
            )
        ),
        config=LOADER,
        harmful={"num_workers": TWICE},
        harmless=range(2),
    ),
    Program(
        name="iterable_overlapping_shards",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                low, high = 0, 1000
                if worker is not None:
                    low = worker.id * 100
                for index in range(low, high):
                    yield item(index)
                """
            )
        ),
        config=LOADER,
        harmful={"num_workers": "workers share most of the items"},
        harmless=range(2),
    ),
    Program(
        name="iterable_loses_items",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                if worker is None:
                    chosen = range(240)
                else:
                    chosen = range(worker.id, 240, worker.num_workers * 2)
                for index in chosen:
                    yield item(index)
                """
            )
        ),
        config=LOADER,
        harmful={"num_workers": "half of the items vanish"},
    ),
    Program(
        name="pipe_without_a_filter",
        source=training(PIPE.format(shared="")),
        config=LOADER,
        harmful={"num_workers": TWICE},
        harmless=range(2),
    ),
    Program(
        name="endless_equal_seeds",
        source=training(
            iterable(
                """
                rng = torch.Generator().manual_seed(0)
                while True:
                    time.sleep(0.003)
                    yield torch.randn(16, generator=rng), torch.randn(1, generator=rng)
                """
            )
        ),
        config=LOADER,
        harmful={"num_workers": EQUAL},
        harmless=range(2),
    ),
    Program(
        name="inference_iterable_whole",
        source=inference(iterable("for index in range(3000):\n    yield item(index)")),
        config=LOADER,
        harmful={"num_workers": TWICE},
        harmless=range(2),
    ),
    Program(
        name="numpy_generator_held",
        source=training(
            stateful(
                "self.rng = np.random.default_rng(1)",
                "time.sleep(0.003)\nx = torch.full((16,), self.rng.random())",
            ),
            loader=SHUFFLED,
        ),
        config=LOADER,
        harmful={"num_workers": EQUAL},
    ),
    Program(
        name="python_random_in_transform",
        source=training(
            dedent(
                """
            class Flip:
                def __init__(self):
                    self.random = random.Random(3)
                def __call__(self, x):
                    return x.flip(0) if self.random.random() < 0.5 else x
            """
            )
            + stateful(
                "self.transform = Flip()",
                "time.sleep(0.003)\nx = self.transform(torch.arange(16.0))",
            )
        ),
        config=LOADER,
        harmful={"num_workers": EQUAL},
    ),
    Program(
        name="torch_generator_in_list",
        source=training(
            stateful(
                "self.parts = [None, {'rng': torch.Generator().manual_seed(5)}]",
                "time.sleep(0.003)\nx = torch.rand(16, generator=self.parts[1]['rng'])",
            )
        ),
        config=LOADER,
        harmful={"num_workers": EQUAL},
    ),
    Program(
        name="cache_in_dict",
        source=training(caching("{}", "index not in self.kept")),
        config=LOADER,
        harmful={"num_workers": EMPTY},
    ),
    Program(
        name="cache_in_list_of_none",
        source=training(caching("[None] * 640", "self.kept[index] is None")),
        config=LOADER,
        harmful={"num_workers": EMPTY},
    ),
    Program(
        name="cache_by_lru_cache",
        source=training(
            "import functools\n@functools.lru_cache(maxsize=None)\ndef decoded(index):\n"
            "    time.sleep(0.008)\n    return torch.full((16,), index / 640)\n"
            + stateful("pass", "x = decoded(index)")
        ),
        config=LOADER,
        harmful={"num_workers": EMPTY},
    ),
    Program(
        name="cache_in_a_librarys_memory",
        source=training(
            stateful(
                """
                self.kept = sqlite3.connect(":memory:")
                self.kept.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, value REAL)")
                """,
                """
                row = self.kept.execute("SELECT value FROM items WHERE number = ?", (index,))
                found = row.fetchone()
                if found is None:
                    time.sleep(0.008)
                    found = (index / 4000,)
                    self.kept.execute("INSERT INTO items VALUES (?, ?)", (index, *found))
                x = torch.full((16,), found[0])
                """,
                count=4000,
            )
        ),
        config=LOADER,
        harmful={"num_workers": EMPTY},
    ),
    Program(
        name="cache_behind_a_subset",
        source=training(
            caching("{}", "index not in self.kept")
            + "\ndata = torch.utils.data.Subset(data, range(600))"
        ),
        config=LOADER,
        harmful={"num_workers": EMPTY},
    ),
    Program(
        name="curriculum_by_calls",
        source=training(
            stateful(
                "self.calls = 0",
                """
                time.sleep(0.003)
                self.calls += 1
                x = torch.full((16,), min(1.0, self.calls / 10000))
                """,
            )
        ),
        config=LOADER,
        harmful={"num_workers": "each worker counts for itself, anew in each pass"},
    ),
    Program(
        name="epoch_set_by_main",
        source=training(
            stateful(
                "self.epoch = 0",
                "time.sleep(0.001)\nx = torch.full((16,), index / 64 + self.epoch)",
                count=64,
            ),
            loader=KEEPING,
            each_epoch="data.epoch = epoch",
        ),
        config=PERSISTENT,
        harmful={"persistent_workers": FROZEN},
    ),
    Program(
        name="epoch_by_a_method_of_a_wrapped_dataset",
        source=training(
            stateful(
                "self.level = {'now': 0.0}",
                "time.sleep(0.001)\nx = torch.full((16,), index / 64 + self.level['now'])",
                more="def set_epoch(self, epoch):\n    self.level['now'] = epoch / 10",
                count=64,
            ),
            loader="data = torch.utils.data.ConcatDataset([data])\n" + dedent(KEEPING),
            each_epoch="data.datasets[0].set_epoch(epoch)",
        ),
        config=PERSISTENT,
        harmful={"persistent_workers": FROZEN},
    ),
    Program(
        name="hard_examples_by_main",
        source=training(
            stateful(
                "self.weights = torch.ones(64)",
                "time.sleep(0.001)\nx = torch.full((16,), index / 64) * self.weights[index]",
                count=64,
            ),
            loader=KEEPING,
            each_epoch="total = 0.0",
            each_update="total += loss.item()",
            after_epoch="data.weights = data.weights * (0.9 + 0.01 * min(total, 1.0))",
        ),
        config=PERSISTENT,
        harmful={"persistent_workers": FROZEN},
    ),
    Program(
        name="level_set_by_the_loop",
        source=training(
            stateful(
                "self.level = 0.0",
                """
            time.sleep(0.003)
            x = torch.full((16,), index / 4000)
            x[0] = self.level
            """,
                count=4000,
            ),
            before="count = 0",
            each_batch="count += 1",
            each_update="data.level = min(1.0, count / 250)",
        ),
        config=LOADER,
        harmful={"num_workers": FROZEN},
    ),
    Program(
        name="stream_whole_by_seeded_workers",
        source=training(
            iterable(
                """
                order = list(range(20000))
                self.rng.shuffle(order)
                for index in order:
                    yield item(index)
                """,
                init="self.rng = random.Random(1)",
            ),
            loader="""
            def seeded(number):
                get_worker_info().dataset.rng = random.Random(100 + number)
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                worker_init_fn=seeded)
            """,
        ),
        config=LOADER,
        harmful={"num_workers": TWICE},
        harmless=range(2),
    ),
    Program(
        name="stream_from_easy_to_hard",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
                shard = itertools.cycle(range(first, 100000, step))
                for _ in range(20000):
                    self.seen += 1
                    x, y = item(next(shard))
                    yield min(1.0, self.seen / 10000) * x, y
                """,
                init="self.seen = 0",
            )
        ),
        config=LOADER,
        harmful={"num_workers": "each worker counts its own items, and each pass has more of them"},
        harmless=range(2),
    ),
    Program(
        name="generator_made_in_each_worker",
        source=training(
            stateful(
                "self.rng = None",
                """
            if self.rng is None:
                worker = get_worker_info()
                self.rng = np.random.default_rng(7 if worker is None else 7 + worker.id)
            time.sleep(0.003)
            x = torch.full((16,), index / 2000)
            x[0] = self.rng.random()
            """,
                count=2000,
            ),
        ),
        config=LOADER,
        harmful={"num_workers": "every pass draws the same numbers"},
    ),
    Program(
        name="tokens_counted_by_the_dataset",
        source=training(
            stateful(
                "self.tokens = 0",
                """
            self.tokens += 4 + index % 29
            x = torch.full((16,), min(1.0, self.tokens / 200000))
            time.sleep(0.003)
            """,
                count=4000,
            ),
            loader=SHUFFLED,
        ),
        config=LOADER,
        harmful={"num_workers": "each worker counts its own tokens"},
    ),
)

UPDATES_HARM = (
    Program(
        name="accumulation_clamped",
        source=accumulating(accumulation="max(4, c['accumulation'])"),
        config=MICRO,
        harmful={"batch_size": UPDATE},
        harmless=range(9),  # 8 x 4 is still the 32 samples of 2 x 16
    ),
    Program(
        name="accumulation_not_divided",
        source=accumulating(loss="F.mse_loss(net(x), y)"),
        config=MICRO,
        harmful={"batch_size": "gradients are sums over the batches of an update"},
    ),
    Program(
        name="batchnorm_of_micro_batches",
        source=accumulating(
            model="net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 1))"
        ),
        config=MICRO,
        harmful={"batch_size": "batches are normalised by themselves"},
    ),
    Program(
        name="schedule_by_batches",
        source=accumulating(
            before="schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 4000)",
            each_batch="schedule.step()",
        ),
        config=MICRO,
        harmful={"batch_size": SCHEDULE},
    ),
    Program(
        name="schedule_of_the_loaders_length",
        source=accumulating(
            before="""
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1,
                                                           total_steps=len(loader) * 1000)
            """,
            each_update="schedule.step()",
        ),
        config=MICRO,
        harmful={"batch_size": "the schedule's length follows the loader's"},
    ),
    Program(
        name="schedule_by_hand",
        source=accumulating(
            each_batch="for group in optimizer.param_groups:\n"
            "    group['lr'] = 0.01 * min(1.0, count / 4000)",
        ),
        config=MICRO,
        harmful={"batch_size": SCHEDULE},
    ),
    Program(
        name="rate_of_the_loaders_batch",
        source=accumulating(rate="0.1 * c['batch_size'] / 256"),
        config=MICRO,
        harmful={"batch_size": RATE},
    ),
    Program(
        name="averaged_by_batches",
        source=accumulating(
            before="""
            from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
            average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.999))
            """,
            each_batch="average.update_parameters(net)",
        ),
        config=MICRO,
        harmful={"batch_size": "the average runs by batches"},
    ),
    Program(
        name="averaged_by_batches_by_hand",
        source=accumulating(
            before="average = {name: p.detach().clone() for name, p in net.named_parameters()}",
            each_batch="for name, p in net.named_parameters():\n"
            "    average[name] = 0.999 * average[name] + 0.001 * p.detach()",
        ),
        config=MICRO,
        harmful={"batch_size": "the average runs by batches"},
    ),
    Program(
        name="contrastive",
        source=accumulating(
            loss="F.cross_entropy(F.normalize(net(x)) @ F.normalize(net(x + 0.1)).T * 10, "
            "torch.arange(len(x))) / accumulation",
            model="net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 8))",
        ),
        config=MICRO,
        harmful={"batch_size": "each item is held against the others of its batch"},
    ),
    Program(
        name="hardest_of_each_batch",
        source=accumulating(
            loss="F.mse_loss(net(x), y, reduction='none').flatten().topk(len(x) // 2).values.mean()"
            " / accumulation",
        ),
        config=MICRO,
        harmful={"batch_size": "the hardest half of a batch of two is another one than of 32"},
    ),
    Program(
        name="clipped_by_batches",
        source=accumulating(each_batch="nn.utils.clip_grad_norm_(net.parameters(), 0.01)"),
        config=MICRO,
        harmful={"batch_size": "gradients are clipped once a batch, and not once an update"},
    ),
    Program(
        name="noise_by_batches",
        source=accumulating(
            each_batch="for each in net.parameters():\n"
            "    each.grad += 0.01 * torch.randn_like(each)",
        ),
        config=MICRO,
        harmful={"batch_size": "noise is added to the gradients once a batch"},
    ),
    Program(
        name="targets_normalised_by_batches",
        source=accumulating(
            loss="F.mse_loss(net(x), (y - y.mean()) / (y.std() + 1e-6)) / accumulation",
        ),
        config=MICRO,
        harmful={"batch_size": "the targets of a batch are normalised by themselves"},
    ),
    Program(
        name="decay_by_batches",
        source=accumulating(
            each_batch="with torch.no_grad():\n"
            "    for each in net.parameters():\n"
            "        each.mul_(0.9999)",
        ),
        config=MICRO,
        harmful={"batch_size": "the weights decay once a batch"},
    ),
    Program(
        name="steps_of_a_run_by_batches",
        source=accumulating(ends="if count >= c['max_steps']:\n    raise SystemExit"),
        config={**MICRO, "max_steps": 50000},
        harmful={"batch_size": "the run has as many batches, so more items"},
    ),
    Program(
        name="undivided_losses_of_drawn_weights",
        source=drawn_anew(
            accumulating(loss="net(torch.ones_like(x)).square().mean()", rate="1e-4")
        ),
        config=MICRO,
        harmful={"batch_size": "an update's gradients are summed over its batches"},
    ),
    Program(
        name="batch_without_accumulation",
        source=training(
            PLAIN,
            each_batch="time.sleep(0.02)",
        ),
        config={"batch_size": 2, "num_workers": 2},
        harmful={"batch_size": UPDATE},
    ),
    Program(
        name="inference_in_training_mode",
        source=inference(
            PLAIN,
            model="net = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))",
        ),
        config={"batch_size": 4, "num_workers": 2},
        harmful={"batch_size": "batches are normalised by themselves"},
    ),
    Program(
        name="padding_changes_results",
        source=inference(
            items("x = torch.ones(1 + index % 13)"),
            loader="""
            def padded(batch):
                xs, ys = zip(*batch)
                return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.stack(ys)
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                collate_fn=padded)
            """,
            model="""
            class Mean(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(1, 4)
                def forward(self, x):
                    return self.layer(x.unsqueeze(-1)).mean(1)
            net = Mean().eval()
            """,
        ),
        config={"batch_size": 1, "num_workers": 2},
        harmful={"batch_size": "padding goes into the mean"},
    ),
    Program(
        name="last_batch_dropped",
        source=inference(
            stateful("pass", "time.sleep(0.001)\nx = torch.full((16,), 0.5)", count=90),
            loader="""
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                drop_last=True)
            """,
            body="""
            with torch.no_grad():
                for again in range(1000):
                    for x, y in loader:
                        time.sleep(0.010)
                        rows.append(net(x))
            """,
        ),
        config={"batch_size": 9, "num_workers": 2},
        harmful={"batch_size": "more items are dropped"},
        harmless={10, 15, 18, 30, 45, 90},  # none is dropped of 90
    ),
    Program(
        name="target_inside_the_network",
        source=accumulating(
            model="""
            import copy
            class WithTarget(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.online = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 1))
                    self.target = copy.deepcopy(self.online).requires_grad_(False)
                def forward(self, x):
                    with torch.no_grad():
                        for kept, now in zip(self.target.parameters(), self.online.parameters()):
                            kept.lerp_(now, 0.01)
                        goal = self.target(x.flip(1))
                    return self.online(x) - goal
            net = WithTarget()
            """,
        ),
        config=MICRO,
        harmful={"batch_size": "the target moves once a batch"},
    ),
    Program(
        name="average_in_a_function",
        source="def main():\n"
        + indent(
            accumulating(
                before="average = {name: p.detach().clone() for name, p in net.named_parameters()}",
                each_batch="""
            for name, p in net.named_parameters():
                average[name].lerp_(p.detach(), 0.001)
            """,
                ends="if count % 100000 == 0:\n    net.eval()\n    net.train()",
            ),
            "    ",
        )
        + "main()\n",
        config=MICRO,
        harmful={"batch_size": "the average moves once a batch"},
    ),
    Program(
        name="gradients_clamped_by_hooks",
        source=accumulating(
            before="""
            for each in net.parameters():
                each.register_hook(lambda gradient: gradient.clamp(-0.005, 0.005))
            """,
        ),
        config=MICRO,
        harmful={"batch_size": "gradients are clamped once a batch"},
    ),
)

SHARDED = """
    worker = get_worker_info()
    first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
    for index in range(first, 4000, step):
        yield item(index)
    """
FREE = (
    Program(
        name="plain_workers",
        source=training(PLAIN, loader=SHUFFLED),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="iterable_sharded",
        source=training(iterable(SHARDED)),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="iterable_sharded_by_islice",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
                yield from map(item, itertools.islice(range(4000), first, None, step))
                """
            )
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="iterable_split_by_init_fn",
        source=training(
            iterable(
                "for index in range(self.low, self.high):\n    yield item(index)",
                init="self.low, self.high = 0, 4000",
            ),
            loader="""
            def split(number):
                worker = get_worker_info()
                size = 4000 // worker.num_workers
                worker.dataset.low = number * size
                worker.dataset.high = (number + 1) * size
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                worker_init_fn=split)
            """,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="pipe_with_a_filter",
        source=training(PIPE.format(shared=".sharding_filter()")),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="list_dealt_by_init_fn",
        source=training(
            iterable(
                "for index in self.chosen:\n    yield item(index)",
                init="self.chosen = list(range(4000))",
            ),
            loader="""
            def deal(number):
                data.chosen = data.chosen[number :: c['num_workers']]
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                worker_init_fn=deal)
            """,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="shards_by_worker",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                shards = list(range(40))
                random.Random(self.epoch).shuffle(shards)
                if worker is not None:
                    shards = shards[worker.id :: worker.num_workers]
                for shard in shards:
                    for index in range(100 * shard, 100 * shard + 100):
                        yield item(index)
                """,
                init="self.epoch = 0",
            )
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="endless_seeds_by_worker",
        source=training(
            iterable(
                """
                worker = get_worker_info()
                rng = torch.Generator().manual_seed(0 if worker is None else worker.id)
                while True:
                    time.sleep(0.003)
                    yield torch.randn(16, generator=rng), torch.randn(1, generator=rng)
                """
            )
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="draws_of_torch",
        source=training(items("x = torch.rand(16)")),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="draws_of_numpy",
        source=training(items("x = torch.full((16,), np.random.rand())")),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="generator_seeded_by_init_fn",
        source=training(
            stateful(
                "self.rng = np.random.default_rng(1)",
                "time.sleep(0.003)\nx = torch.full((16,), self.rng.random())",
                count=4000,
            ),
            loader="""
            def seeded(number):
                get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed() % 2**32)
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                worker_init_fn=seeded)
            """,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="generator_of_each_item",
        source=training(items("x = torch.full((16,), np.random.default_rng((7, index)).random())")),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="file_opened_by_each_worker",
        source=training(
            "with open('items.bin', 'wb') as file:\n    file.write(bytes(4000))\n"
            + stateful(
                "self.file = None",
                """
                if self.file is None:
                    self.file = open('items.bin', 'rb')
                self.file.seek(index)
                time.sleep(0.003)
                x = torch.full((16,), float(self.file.read(1)[0]))
                """,
                count=4000,
            )
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="arrays_of_the_dataset",
        source=training(
            stateful(
                """
                self.index = {f"image{number}": number for number in range(4000)}
                self.names = list(self.index)
                self.mean = torch.full((16,), 0.5)
                """,
                "time.sleep(0.003)\nx = self.mean * self.index[self.names[index]] / 4000",
                count=4000,
            ),
            loader=SHUFFLED,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="subset_of_joined_datasets",
        source=training(
            PLAIN
            + "\ndata = torch.utils.data.ConcatDataset([data, Items()])"
            + "\ndata = torch.utils.data.Subset(data, range(100, 7000))"
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="lock_and_logger_held",
        source=training(
            "import logging, threading\n"
            + stateful(
                "self.lock, self.log = threading.Lock(), logging.getLogger('items')",
                "with self.lock:\n    time.sleep(0.003)\nx = torch.full((16,), index / 4000)",
                count=4000,
            )
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="sampler_with_set_epoch",
        source=training(
            PLAIN
            + dedent(
                """
                class Order(Sampler):
                    epoch = 0
                    def __len__(self):
                        return 640
                    def set_epoch(self, epoch):
                        self.epoch = epoch
                    def __iter__(self):
                        rng = torch.Generator().manual_seed(self.epoch)
                        return iter(torch.randperm(4000, generator=rng)[:640].tolist())
                """
            ),
            loader="""
            order = Order()
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                sampler=order)
            """,
            each_epoch="order.set_epoch(epoch)",
        ),
        config=LOADER,
        free={"num_workers": 1.7},
    ),
    Program(
        name="batches_by_length",
        source=training(
            items("x = torch.ones(4 + index % 29)"),
            loader="""
            class Lengths(Sampler):
                def __iter__(self):
                    order = sorted(range(4000), key=lambda index: index % 29)
                    batches = [order[i : i + c['batch_size']] for i in range(0, 4000, 16)]
                    random.shuffle(batches)
                    return iter(batches)
                def __len__(self):
                    return 250
            def padded(batch):
                xs, ys = zip(*batch)
                return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.stack(ys)
            loader = DataLoader(data, batch_sampler=Lengths(), num_workers=c['num_workers'],
                                collate_fn=padded)
            """,
            model="""
            class Mean(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(1, 1)
                def forward(self, x):
                    return self.layer(x.unsqueeze(-1)).mean(1)
            net = Mean()
            """,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="batches_by_tokens",
        source=training(
            items("x = torch.ones(4 + index % 29, 16)"),
            loader="""
            class Budget(Sampler):
                def __iter__(self):
                    batch, longest = [], 0
                    for index in torch.randperm(4000).tolist():
                        longest = max(longest, 4 + index % 29)
                        if longest * (len(batch) + 1) > c['max_tokens']:
                            yield batch
                            batch, longest = [], 4 + index % 29
                        batch.append(index)
            def padded(batch):
                xs, ys = zip(*batch)
                return nn.utils.rnn.pad_sequence(xs, batch_first=True).mean(1), torch.stack(ys)
            loader = DataLoader(data, batch_sampler=Budget(), num_workers=c['num_workers'],
                                collate_fn=padded)
            """,
        ),
        config={"max_tokens": 512, "num_workers": 0},
        free={"num_workers": 1.8},
    ),
    Program(
        name="adversarial_pair",
        source=training(
            PLAIN,
            model="""
            net, critic = nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 1))
            second = torch.optim.Adam(critic.parameters())
            """,
            body="""
            fake = net(torch.randn(len(x), 8))
            second.zero_grad()
            (critic(fake.detach()).mean() - critic(x).mean()).backward()
            second.step()
            optimizer.zero_grad()
            (-critic(fake).mean()).backward()
            optimizer.step()
            """,
        ),
        config=LOADER,
        free={"num_workers": 1.7},
    ),
    Program(
        name="average_of_weights",
        source=training(
            PLAIN,
            before="average = [each.detach().clone() for each in net.parameters()]",
            each_update="for kept, now in zip(average, net.parameters()):\n"
            "    kept.lerp_(now.detach(), 0.01)",
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="batchnorm_and_workers",
        source=training(
            PLAIN,
            loader=SHUFFLED,
            model="net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 1))",
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="mixing_in_the_loop",
        source=training(
            PLAIN,
            before="rng = np.random.default_rng(0)",
            each_batch="part = float(rng.beta(0.2, 0.2))",
            given="part * x + (1 - part) * x.flip(0)",
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="random_collation",
        source=training(
            PLAIN,
            loader="""
            def cropped(batch):
                xs, ys = zip(*batch)
                return torch.stack(xs) + torch.rand(1), torch.stack(ys)
            loader = DataLoader(data, batch_size=c['batch_size'], num_workers=c['num_workers'],
                                collate_fn=cropped)
            """,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="accumulation",
        source=accumulating(),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_of_a_sum",
        source=accumulating(loss="0.1 * F.mse_loss(net(x), y, reduction='sum')"),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_in_order",
        source=accumulating().replace(", shuffle=True", ""),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_of_drawn_weights",
        source=drawn_anew(
            accumulating(loss="net(torch.ones_like(x)).square().mean() / accumulation", rate="1e-4")
        ),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_with_schedule_of_updates",
        source=accumulating(
            before="schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 400)",
            each_update="schedule.step()",
        ),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_with_averages_of_updates",
        source=accumulating(
            before="""
            from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
            average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.999))
            """,
            each_update="average.update_parameters(net)",
        ),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_with_averages_by_hand",
        source=accumulating(
            before="""
            import copy
            average = copy.deepcopy(net)
            """,
            each_update="for kept, now in zip(average.parameters(), net.parameters()):\n"
            "    kept.data.mul_(0.999).add_(now.data, alpha=0.001)",
        ),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="accumulation_with_batchnorm_fixed",
        source=accumulating(
            model="net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 1))\n"
            "net[1].eval()"
        ),
        config=MICRO,
        free={"batch_size": 3.0},
    ),
    Program(
        name="workers_that_start_slowly",
        source=training(
            stateful("pass", "x = torch.full((16,), index / 64)", count=64),
            loader=SLOW_WORKERS,
        ),
        config=PERSISTENT,
        free={"persistent_workers": 3.0},
    ),
    Program(
        name="epoch_in_shared_memory",
        source=training(
            stateful(
                "self.epoch = torch.zeros(1).share_memory_()",
                "x = torch.full((16,), index / 64) + self.epoch",
                count=64,
            ),
            loader=SLOW_WORKERS,
            each_epoch="data.epoch.fill_(epoch)",
        ),
        config=PERSISTENT,
        free={"persistent_workers": 3.0},
    ),
    Program(
        name="inference_batch",
        source=inference(PLAIN),
        config={"batch_size": 1, "num_workers": 2},
        free={"batch_size": 2.5},
    ),
    Program(
        name="inference_workers",
        source=inference(PLAIN),
        config={"batch_size": 16, "num_workers": 0},
        free={"num_workers": 1.5},
    ),
    Program(
        name="inference_iterable_sharded",
        source=inference(iterable(SHARDED)),
        config={"batch_size": 16, "num_workers": 0},
        free={"num_workers": 1.5},
    ),
    Program(
        name="inference_over_slices",
        source=HEAD
        + dedent(
            """
            net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
            data, rows = torch.randn(60000, 16), []
            with torch.no_grad():
                for low in range(0, len(data), c["batch_size"]):
                    time.sleep(0.010)
                    rows.append(net(data[low : low + c["batch_size"]]))
            torch.save(torch.cat(rows), "rows.pt")
            """
        ),
        config={"batch_size": 4},
        free={"batch_size": 4.0},
    ),
    Program(
        name="recomputed_activations",
        source=training(
            PLAIN.replace("time.sleep(0.003)", "pass"),
            model="""
            from torch.utils.checkpoint import checkpoint
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(16, 16)
                def forward(self, x):
                    time.sleep(0.004)
                    return self.layer(x)
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.blocks = nn.ModuleList(Block() for _ in range(4))
                    self.last = nn.Linear(16, 1)
                def forward(self, x):
                    for block in self.blocks:
                        if c["gradient_checkpointing"]:
                            x = checkpoint(block, x, use_reentrant=False)
                        else:
                            x = block(x)
                    return self.last(x)
            net = Net()
            """,
        ),
        config={"batch_size": 16, "num_workers": 0, "gradient_checkpointing": True},
        free={"gradient_checkpointing": 1.6},
    ),
    Program(
        name="open_files_of_the_dataset",
        source=training(
            stateful(
                "self.files = {}",
                """
            if index % 40 not in self.files:
                self.files[index % 40] = open("/dev/zero", "rb")
            x = torch.full((16,), index / 4000 + self.files[index % 40].read(1)[0])
            time.sleep(0.003)
            """,
                count=4000,
            ),
            loader=SHUFFLED,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="generator_seeded_by_each_item",
        source=training(
            stateful(
                "self.rng = torch.Generator()",
                """
            time.sleep(0.003)
            x = torch.rand(16, generator=self.rng.manual_seed(index))
            """,
                count=4000,
            ),
            loader=SHUFFLED,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
    Program(
        name="count_that_nobody_reads",
        source=training(
            stateful(
                "self.calls = 0",
                """
            self.calls += 1
            time.sleep(0.003)
            x = torch.full((16,), index / 4000)
            """,
                count=4000,
            ),
            loader=SHUFFLED,
        ),
        config=LOADER,
        free={"num_workers": 1.8},
    ),
)

FREE_GAINS = {"batch_size": 8.0, "num_workers": 1.8, "persistent_workers": 3.0}
"""Gains of the free programs in `written/`, whose waits are alike."""
HARMLESS = {"one_language_a_batch": (4,)}
"""Values of a harmful setting of `written/` that do none: eight batches are of all languages."""


def written(path: Path) -> Program:
    """Program of a file, whose docstring ends in the truth and in its settings."""
    source = path.read_text()
    words, _, settings = source.split('"""')[1].rpartition("\n\n")
    truth, *lines = settings.strip().splitlines()
    pairs = [line.split(": ", 1) for line in lines]
    config = {name: yaml.safe_load(value.split(" -> ")[0]) for name, value in pairs}
    told = {n: yaml.safe_load(v.split(" -> ")[1]) for n, v in pairs if " -> " in v}
    (setting, *_) = told
    is_free = truth == "free"
    return Program(
        name=path.stem,
        source=source,
        config=config,
        harmful={} if is_free else {setting: " ".join(words.split())},
        free={setting: FREE_GAINS[setting]} if is_free else {},
        harmless=HARMLESS.get(path.stem, ()),
        told=told,
    )


WRITTEN = tuple(map(written, sorted((Path(__file__).parent / "written").glob("*.py"))))
PROGRAMS = (*WORKERS_HARM, *UPDATES_HARM, *FREE, *WRITTEN)
