"""Stand-ins for the libraries that options are declared with: what a program of theirs is told."""

from __future__ import annotations

TRANSFORMERS = {
    "transformers.py": """\
import argparse, dataclasses, typing
def truth(text):
    return {"true": True, "false": False}[text.lower()]
class HfArgumentParser(argparse.ArgumentParser):
    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        for kind in kinds:
            for each in dataclasses.fields(kind):
                made = {"int": int, "float": float, "bool": truth}.get(each.type, str)
                self.add_argument(f"--{each.name}", type=made, default=each.default)
@dataclasses.dataclass
class TrainingArguments:
    per_device_train_batch_size: "int" = dataclasses.field(
        default=8, metadata={"help": "Batch size per device"})
    dataloader_num_workers: "int" = 0
    bf16: "bool" = False
    output_dir: "str" = "out"
""",
}

ABSL = {
    "absl/__init__.py": "",
    "absl/flags.py": """\
import sys
known = {}
def DEFINE_integer(name, default, help, **kw): known[name] = (int, default)
def DEFINE_bool(name, default, help): known[name] = (lambda t: t.lower() == "true", default)
def parse():
    said = {name: default for name, (_, default) in known.items()}
    for word in sys.argv[1:]:
        if not word.startswith("--"):
            break  # as absl does: the first word that is no flag ends them
        name, _, text = word[2:].partition("=")
        said[name] = known[name][0](text)
    return said
""",
}

HYDRA = {
    "hydra/__init__.py": """\
import functools, json, os, sys
import yaml
def main(config_path, config_name, version_base=None):
    def wrap(function):
        def run():
            folder = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), config_path)
            overrides = dict(w.split("=", 1) for w in sys.argv[1:])
            def load(name):
                return yaml.safe_load(open(os.path.join(folder, name + ".yaml")))
            own = load(config_name)
            whole = {}
            for entry in own.pop("defaults"):
                if isinstance(entry, dict):
                    (group, option), = entry.items()
                    option = overrides.pop(group, option)
                    whole.setdefault(group, {}).update(load(f"{group}/{option}"))
            for key, value in own.items():
                whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) else value
            for path, text in overrides.items():
                *above, last = path.split(".")
                holder = functools.reduce(lambda d, k: d[k], above, whole)
                assert last in holder, path
                holder[last] = yaml.safe_load(text)
            function(whole)
        return run
    return wrap
""",
}

LIGHTNING = {
    "lightning.py": """\
import inspect, json, sys
class LightningModule: pass
class LightningDataModule: pass
def LightningCLI(model, data):
    assert sys.argv[1] == "fit"
    said = {}
    for kind, what in ((model, "model"), (data, "data")):
        for name, parameter in inspect.signature(kind.__init__).parameters.items():
            if name != "self":
                said[f"{what}.{name}"] = parameter.default
    words = sys.argv[2:]
    for flag, text in zip(words[::2], words[1::2]):
        name = flag.removeprefix("--")
        said[name] = json.loads(text.lower()) if name in said else text
    print(json.dumps(said))
""",
}

ML_COLLECTIONS = {
    "ml_collections/__init__.py": "class ConfigDict:\n    pass\n",
    "ml_collections/config_flags.py": """\
import runpy, sys, json
def DEFINE_config_file(name, default):
    words = dict(w[2:].split("=", 1) for w in sys.argv[1:])
    config = runpy.run_path(words.pop(name, default))["get_config"]()
    for path, text in words.items():
        *above, last = path.split(".")[1:]
        holder = config
        for part in above:
            holder = getattr(holder, part)
        setattr(holder, last, json.loads(text.lower()))
    def flat(node, above):
        for key, value in vars(node).items():
            if hasattr(value, "__dict__"):
                yield from flat(value, f"{above}.{key}")
            else:
                yield f"{above}.{key}", value
    print(json.dumps(dict(flat(config, name))))
""",
}
