import argparse
import ast
import os


class DictAction(argparse.Action):
    """`--cfg-options a.b=1 c=2`: values are literals where they read as such."""

    def __call__(self, parser, namespace, values, option_string=None):
        options = {}
        for pair in values:
            key, _, text = pair.partition("=")
            try:
                options[key] = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                options[key] = text
        setattr(namespace, self.dest, options)


class Config(dict):
    __getattr__ = dict.__getitem__

    @classmethod
    def fromfile(cls, path):
        own = {}
        with open(path) as f:
            exec(compile(f.read(), path, "exec"), {}, own)
        config = {}
        for base in own.pop("_base_", []):
            config.update(cls.fromfile(os.path.join(os.path.dirname(path), base)))
        config.update(own)
        return cls(config)

    def merge_from_dict(self, options):
        for key, value in options.items():
            *parents, leaf = key.split(".")
            here = self
            for parent in parents:
                here = here[int(parent)] if isinstance(here, list) else here[parent]
            here[int(leaf) if isinstance(here, list) else leaf] = value
