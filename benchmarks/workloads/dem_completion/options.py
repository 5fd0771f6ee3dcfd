"""Command line and JSON config, merged into one dictionary."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Options = dict[str, Any]


def load_config(path: Path) -> Options:
    """A JSON file in which everything after `//` on a line is a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return json.loads("\n".join(line.split("//")[0] for line in lines))


def parse(argv: list[str] | None = None) -> Options:
    """Options of this run; makes its output directory and writes them there."""
    parser = argparse.ArgumentParser(prog="dem_completion")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("-p", "--phase", choices=["train", "test"], default="test")
    parser.add_argument("-b", "--batch", type=int, help="batch size of this phase")
    parser.add_argument("--n_timestep", type=int, help="reverse steps a tile")
    parser.add_argument("--tile_overlap", type=int, help="pixels that neighbouring tiles share")
    parser.add_argument("--sample_num", type=int, default=0, help="overwrites the config's, unread")
    parser.add_argument("--tiles", type=int, help="only this many tiles, evenly spread")
    parser.add_argument(
        "--shard", help="I/N: every N-th tile from the I-th, counted from 0", metavar="I/N"
    )
    parser.add_argument("--scale", type=int, default=1, help="larger network, tiles and raster")
    parser.add_argument("--seed", type=int)
    args = parser.parse_args(argv)

    opt = load_config(args.config)
    opt["phase"] = args.phase
    opt["scale"] = args.scale
    network = opt["model"]["which_networks"][0]["args"]
    if args.batch is not None:
        opt["datasets"][args.phase]["dataloader"]["args"]["batch_size"] = args.batch
    if args.n_timestep is not None:
        network["beta_schedule"]["test"]["n_timestep"] = args.n_timestep
    if args.sample_num is not None:
        opt["model"]["which_model"]["args"]["sample_num"] = args.sample_num
    if args.seed is not None:
        opt["seed"] = args.seed
    data = opt["datasets"]["test"]["which_dataset"]["args"]
    for name in ("tile_overlap", "tiles", "shard"):
        if getattr(args, name) is not None:
            data[name] = getattr(args, name)

    stamp = datetime.now(UTC).strftime("%y%m%d_%H%M%S_%f")
    folder = Path(opt["path"]["base_dir"]) / f"{args.phase}_{opt['name']}_{stamp}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(opt, indent=2, default=str) + "\n")
    opt["path"]["experiment"] = folder
    return opt
