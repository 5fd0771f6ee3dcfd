"""python train.py configs/tiny_8xb8_shapes.py --cfg-options train_dataloader.batch_size=16"""

import argparse

import mini.parts
from mini import Config, DictAction, Runner


def parse_args():
    parser = argparse.ArgumentParser(description="Train a model")
    parser.add_argument("config", help="train config file path")
    parser.add_argument("--work-dir", help="the dir to save logs and models")
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action=DictAction,
        help="override some settings in the used config, the key-value pair in xxx=yyy format",
    )
    return parser.parse_args()


def main():
    args = parse_args()
    cfg = Config.fromfile(args.config)
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    if args.work_dir is not None:
        cfg["work_dir"] = args.work_dir
    Runner(cfg).train()


if __name__ == "__main__":
    main()
