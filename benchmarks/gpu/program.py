"""A loop whose costs are chosen, with its own account of its rate by CUDA events.

    python -m benchmarks.gpu.program --train --loader --kernel 10 --host 5 --seconds 4

It prints `own steps: [[time, samples], ...]` when it ends by itself. On a CPU build of torch its
kernels are those of the simulated device.
"""

import argparse
import json
import time
from collections.abc import Iterator

import torch

SIMULATED = torch.version.cuda is None
ROWS, SIDE, CHANNELS = (32, 8, 4) if SIMULATED else (32, 32, 16)
VARIANTS = ("plain", "compile", "graph", "scaler", "channels_last")
POINTS = 100
"""Steps of which it tells."""
TRIAL_CYCLES = 20_000_000
SLEEP = getattr(torch.cuda, "_sleep", None)
"""A kernel that does nothing for so many cycles of the card's clock."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1e9, help="until it ends by itself")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--loader", action="store_true")
    parser.add_argument("--kernel", type=float, default=0.0, help="ms of one kernel in the forward")
    parser.add_argument("--small", type=int, default=0, help="small kernels in the forward")
    parser.add_argument("--host", type=float, default=0.0, help="ms of Python, a step")
    parser.add_argument("--fetch", type=float, default=0.0, help="ms in the loader, a batch")
    parser.add_argument("--copied", type=int, default=0, help="MiB copied to the card, a step")
    parser.add_argument("--item", action="store_true", help="read the loss in each step")
    parser.add_argument("--variant", default="plain", choices=VARIANTS)
    parser.add_argument("--halve", action="store_true", help="... if memory runs out")
    parser.add_argument("--hungry", type=float, default=0.0, help="GiB that a whole batch takes")
    return parser.parse_args()


class Kernels:
    """Work for the card that lasts as long as it is told to."""

    def __init__(self, device: torch.device) -> None:
        self._cycles_per_ms = 0.0
        if not SIMULATED:
            with torch.cuda.device(device):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                SLEEP(TRIAL_CYCLES)
                start.record()
                SLEEP(TRIAL_CYCLES)
                end.record()
                end.synchronize()
                self._cycles_per_ms = TRIAL_CYCLES / start.elapsed_time(end)

    @staticmethod
    def bytes_of(gib: float) -> int:
        """What takes so much of the card; each byte stands for many on a simulated one."""
        if not SIMULATED:
            return int(gib * 2**30)
        from tests.simulated_gpu import device

        return int(gib * 2**30 / device.here().scale)

    def queue(self, ms: float) -> None:
        if SIMULATED:
            from tests.simulated_gpu import device

            device.launch(ms)
        else:
            SLEEP(int(ms * self._cycles_per_ms))


class Network(torch.nn.Module):
    """A few convolutions, and the kernels that were asked for."""

    def __init__(self, args: argparse.Namespace, kernels: Kernels) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.second = torch.nn.Conv2d(CHANNELS, 3, 3, padding=1)
        self._args, self._kernels = args, kernels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            for _ in range(self._args.small):
                x = x + 0.001
            if self._args.kernel:
                self._kernels.queue(self._args.kernel)
            if self._args.hungry:
                share = self._args.hungry * x.shape[0] / ROWS
                torch.empty(self._kernels.bytes_of(share), dtype=torch.uint8, device=x.device)
        return self.second(torch.relu(self.first(x)))


class Batches(torch.utils.data.IterableDataset):
    """Batches that take as long to load, and are as large, as is asked for."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._fetch_s = args.fetch / 1000
        self._rows = torch.rand(ROWS, 3, SIDE, SIDE)
        self._ballast = torch.zeros(max(1, args.copied) << 18) if args.copied else None

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            time.sleep(self._fetch_s)
            more = {} if self._ballast is None else {"ballast": self._ballast}
            yield {"rows": self._rows, **more}


def compute(ms: float) -> None:
    """Keep the host busy for so long."""
    until = time.perf_counter() + ms / 1000
    while time.perf_counter() < until:
        pass


def main() -> None:
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1 if SIMULATED else torch.get_num_threads())
    device = torch.device("cuda")
    kernels = Kernels(device)
    network: torch.nn.Module = Network(args, kernels).to(device)
    if args.variant == "channels_last":
        network = network.to(memory_format=torch.channels_last)
    if args.variant == "compile":
        network.compile(**({"backend": "eager"} if SIMULATED else {}))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=args.variant == "scaler")
    half = torch.autocast("cuda", torch.float16, enabled=args.variant == "scaler")
    static = torch.rand(ROWS, 3, SIDE, SIDE).to(device)

    def step(x: torch.Tensor) -> torch.Tensor:
        if not args.train:
            with torch.no_grad():
                return network(x).mean()
        optimizer.zero_grad()
        with half:
            loss = network(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    replay = None
    if args.variant == "graph":
        optimizer = (
            torch.optim.SGD(network.parameters(), lr=1e-4)  # AdamW captures on real cards only
            if SIMULATED
            else torch.optim.AdamW(network.parameters(), lr=1e-4, capturable=True)
        )
        replay = captured(step, static)
    source = Batches(args)
    data = torch.utils.data.DataLoader(source, batch_size=None) if args.loader else source
    events = []
    rows = ROWS
    begun = None  # the first step may compile for longer than all others take
    for batch in data:
        moved = {name: part.to(device) for name, part in batch.items()} if args.loader else {}
        x = moved.get("rows", static)[:rows]
        if args.variant == "channels_last":
            x = x.to(memory_format=torch.channels_last)
        compute(args.host)
        if replay is not None:
            replay()
        else:
            try:
                result = step(x)
            except torch.cuda.OutOfMemoryError:
                if not args.halve:
                    raise
                torch.cuda.empty_cache()
                rows //= 2
                continue
            if args.item:
                result.item()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append(event)
        begun = begun or time.perf_counter()
        if time.perf_counter() - begun > args.seconds:
            break
    print(f"own steps: {json.dumps(finished(events, rows))}", flush=True)


def finished(events: list[torch.cuda.Event], rows: int) -> list[tuple[float, int]]:
    """(epoch seconds, samples done by then) of some steps, the last one included."""
    torch.cuda.synchronize()
    last = torch.cuda.Event(enable_timing=True)
    now = time.time()
    last.record()
    last.synchronize()
    some = [*range(0, len(events), max(1, len(events) // POINTS)), len(events) - 1]
    return [
        (round(now - events[step].elapsed_time(last) / 1000, 6), rows * (step + 1))
        for step in dict.fromkeys(some)
    ]


def captured(step, static):  # type: ignore[no-untyped-def]
    """Whole steps as one CUDA graph, by the recipe of torch's own documentation."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(static)
    return graph.replay


if __name__ == "__main__":
    main()
