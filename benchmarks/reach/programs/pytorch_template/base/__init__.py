from .base_data_loader import BaseDataLoader
from .base_trainer import BaseTrainer
