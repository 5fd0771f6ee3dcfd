import numpy as np
import torch
from base import BaseTrainer
from step_clock import StepClock


class Trainer(BaseTrainer):
    def __init__(
        self, model, criterion, metrics, optimizer, config, data_loader, valid_loader, lr_scheduler
    ):
        super().__init__(model, criterion, metrics, optimizer, config)
        self.data_loader, self.valid_data_loader = data_loader, valid_loader
        self.lr_scheduler = lr_scheduler
        self.log_step = int(np.sqrt(data_loader.batch_size))
        self.clock = StepClock()

    def _train_epoch(self, epoch):
        self.model.train()
        losses = []
        for batch_idx, (data, target) in enumerate(self.data_loader):
            self.optimizer.zero_grad()
            output = self.model(data)
            loss = self.criterion(output, target)
            loss.backward()
            self.optimizer.step()
            self.clock.tick(len(data))
            losses.append(loss.item())
            for metric in self.metrics:
                metric(output, target)
            if batch_idx % self.log_step == 0:
                self.logger.debug("Train Epoch: %d %d Loss: %.6f", epoch, batch_idx, loss.item())
        log = {"loss": float(np.mean(losses))}
        if self.valid_data_loader is not None:
            log["val_loss"] = self._valid_epoch()
        self.lr_scheduler.step()
        return log

    def _valid_epoch(self):
        self.model.eval()
        with torch.no_grad():
            losses = [
                self.criterion(self.model(data), target).item()
                for data, target in self.valid_data_loader
            ]
        return float(np.mean(losses))
