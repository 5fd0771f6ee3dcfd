from .config import Config, DictAction
from .registry import DATASETS, MODELS, TRANSFORMS
from .runner import Runner
