"""Relights the portraits of a CSV: python -m benchmarks.workloads.relighting.run -c CONFIG.

One process for each GPU, and each takes its share of the rows.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import multiprocessing

from benchmarks.workloads.relighting import portraits
from benchmarks.workloads.relighting.stages import Relighter

STAGES = ("resize", "segmentation", "albedo", "shadow", "recombine", "files")
LOG_EVERY_S = 2.0


def main(argv: list[str] | None = None) -> None:
    """Reads the command line and the config, shares the rows out, and prints what came of it."""
    parser = argparse.ArgumentParser(prog="relighting")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=1, help="images segmented at once")
    parser.add_argument("--num-gpus", type=int, default=1, help="processes, each on its own GPU")
    parser.add_argument("--limit", type=int, help="only the first so many rows")
    parser.add_argument("--trace", type=Path, help="folder to keep when each stage ran")
    parser.add_argument("--scale", type=int, default=1, help="larger images, wider networks")
    args = parser.parse_args(argv)
    cfg = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    cfg["scale"] = args.scale
    cfg["trace"] = args.trace
    cfg["batch_size"] = args.batch_size
    table = portraits.dataset(cfg["data"]["portraits"], args.scale, cfg["seed"])
    cfg["limit"] = args.limit
    folder = Path(cfg["output"]["dir"])
    folder.mkdir(parents=True, exist_ok=True)

    started = time.perf_counter()
    if args.num_gpus == 1:
        relight(0, 1, cfg, table, folder)
    else:
        multiprocessing.spawn(relight, (args.num_gpus, cfg, table, folder), args.num_gpus)
    summary(folder, args.num_gpus, time.perf_counter() - started)


def relight(rank: int, ranks: int, cfg: dict[str, Any], table: Path, folder: Path) -> None:
    """Relights every `ranks`-th image from the `rank`-th; writes them and `shard_<rank>.json`."""
    mine = portraits.listed(table)[: cfg["limit"]][rank::ranks]
    if torch.cuda.is_available():
        device = torch.device("cuda", rank % torch.cuda.device_count())
    else:
        device = torch.device("cpu")
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    relighter = Relighter(cfg, cfg["scale"], device)
    clock, size = relighter.clock, cfg["batch_size"]
    done, failed, overlap = 0, 0, []
    printed = started = time.perf_counter()
    for first in range(0, len(mine), size):
        batch = mine[first : first + size]
        try:
            with clock.stage("files"):
                images = [portraits.read(path) for path in batch]
            relit, masks = relighter.relight(images)
            with clock.stage("files"):
                for path, image in zip(batch, relit, strict=True):
                    portraits.write(folder / path.name, image)
        except Exception:
            if cfg["pipeline"]["on_error"] == "raise":
                raise
            failed += len(batch)
            continue
        done += len(batch)
        if rank == 0:
            overlap += map(agreement, batch, masks)
        if time.perf_counter() - printed > LOG_EVERY_S:
            printed = time.perf_counter()
            print(f"process {rank}: {done}/{len(mine)}  {printed - started:.1f} s", flush=True)
    shard = {
        "processed": done,
        "failed": failed,
        "wall_s": time.perf_counter() - started,
        "seconds": clock.seconds,
        "mask_iou": sum(overlap) / len(overlap) if overlap else None,
    }
    if cfg["trace"]:
        cfg["trace"].mkdir(parents=True, exist_ok=True)
        (cfg["trace"] / f"trace_{rank}.json").write_text(json.dumps(clock.spans) + "\n")
    (folder / f"shard_{rank}.json").write_text(json.dumps(shard, indent=2) + "\n")


def agreement(path: Path, mask: portraits.Array) -> float:
    """Intersection over union with the true mask."""
    true, seen = portraits.read(portraits.truth_path(path))[..., 0] > 0.5, mask > 0.5
    return float((true & seen).sum() / max((true | seen).sum(), 1))


def summary(folder: Path, ranks: int, wall_s: float) -> None:
    """Prints what all processes did, and how long each stage took them."""
    shards = [json.loads((folder / f"shard_{rank}.json").read_text()) for rank in range(ranks)]
    whole_s = sum(shard["wall_s"] for shard in shards)
    for name in STAGES:
        seconds = sum(shard["seconds"].get(name, 0.0) for shard in shards)
        print(f"{name}: {seconds:.2f} s  {seconds / whole_s:.1%}")
    done, failed = (sum(shard[key] for shard in shards) for key in ("processed", "failed"))
    iou = shards[0]["mask_iou"]
    print(f"mask IoU: {iou:.4f}" if iou is not None else "no mask was made")
    print(f"Processed: {done} in {wall_s:.1f} s")
    print(f"Failed: {failed}")


if __name__ == "__main__":
    main()
