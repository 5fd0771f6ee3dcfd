class Registry:
    def __init__(self, name):
        self.name, self._modules = name, {}

    def register_module(self):
        def keep(cls):
            self._modules[cls.__name__] = cls
            return cls

        return keep

    def build(self, cfg, **more):
        cfg = dict(cfg)
        kind = cfg.pop("type")
        if kind not in self._modules:
            raise KeyError(f"{kind} is not in the {self.name} registry")
        return self._modules[kind](**cfg, **more)


DATASETS, MODELS, TRANSFORMS = Registry("dataset"), Registry("model"), Registry("transform")
