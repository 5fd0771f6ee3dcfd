import json
import logging
from datetime import datetime
from functools import partial
from pathlib import Path


class ConfigParser:
    def __init__(self, config, resume=None):
        self.config, self.resume = config, resume
        run_id = datetime.now().strftime(r"%m%d_%H%M%S")
        name = self.config["name"]
        self.save_dir = Path(self.config["trainer"]["save_dir"]) / "models" / name / run_id
        self.log_dir = Path(self.config["trainer"]["save_dir"]) / "log" / name / run_id
        self.save_dir.mkdir(parents=True, exist_ok=True)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        (self.save_dir / "config.json").write_text(json.dumps(self.config, indent=4))
        logging.basicConfig(level=logging.INFO)

    @classmethod
    def from_args(cls, parser):
        parser.add_argument("-c", "--config", default=None, type=str)
        parser.add_argument("-r", "--resume", default=None, type=str)
        args = parser.parse_args()
        return cls(json.loads(Path(args.config).read_text()), args.resume)

    def init_obj(self, name, module, *args, **kwargs):
        arguments = dict(self[name].get("args", {}))
        arguments.update(kwargs)
        return getattr(module, self[name]["type"])(*args, **arguments)

    def init_ftn(self, name, module, *args, **kwargs):
        arguments = dict(self[name].get("args", {}), **kwargs)
        return partial(getattr(module, self[name]["type"]), *args, **arguments)

    def __getitem__(self, name):
        return self.config[name]
