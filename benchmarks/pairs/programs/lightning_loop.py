"""Lightning's loop, whose small batches are mostly launches."""

import lightning
import torch
from body import Clock, Device, Items
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.device_ = Device()

    def on_train_start(self):
        self.clock = Clock()

    def training_step(self, items, _):
        self.clock.tick(len(items))
        return (self.device_(items) - items.mean(1, keepdim=True) / 97.0).square().mean()

    def on_train_end(self):
        self.clock.stop()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


trainer = lightning.Trainer(
    max_epochs=1,
    accumulate_grad_batches=8,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Model(), DataLoader(Items(load_s=0.001), batch_size=4, num_workers=0))
