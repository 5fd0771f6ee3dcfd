import logging

import torch


class BaseTrainer:
    def __init__(self, model, criterion, metrics, optimizer, config):
        self.model, self.criterion, self.metrics = model, criterion, metrics
        self.optimizer, self.config = optimizer, config
        self.logger = logging.getLogger("trainer")
        settings = config["trainer"]
        self.epochs, self.save_period = settings["epochs"], settings["save_period"]
        self.checkpoint_dir = config.save_dir

    def train(self):
        for epoch in range(1, self.epochs + 1):
            for key, value in self._train_epoch(epoch).items():
                self.logger.info("    %-15s: %s", key, value)
            if epoch % self.save_period == 0:
                state = {"epoch": epoch, "state_dict": self.model.state_dict()}
                torch.save(state, self.checkpoint_dir / f"checkpoint-epoch{epoch}.pth")
