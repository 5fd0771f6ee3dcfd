"""torchrun --standalone --nproc_per_node=gpu multigpu_torchrun.py multigpu.yaml"""

import os
import sys

import torch
import torch.nn.functional as F
import yaml
from step_clock import StepClock
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class MyTrainDataset(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 24, 24, generator=generator), torch.rand(1, generator=generator)


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.rank = int(os.environ["LOCAL_RANK"])
        self.train_data, self.optimizer = train_data, optimizer
        self.save_every, self.snapshot_path, self.epochs_run = save_every, snapshot_path, 0
        if os.path.exists(snapshot_path):
            snapshot = torch.load(snapshot_path)
            model.load_state_dict(snapshot["MODEL_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
        self.model = DDP(model)
        self.clock = StepClock()

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        self.clock.tick(len(source))

    def _run_epoch(self, epoch):
        print(f"[{self.rank}] Epoch {epoch} | Steps: {len(self.train_data)}")
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            self._run_batch(source, targets)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self._run_epoch(epoch)
            if self.rank == 0 and epoch % self.save_every == 0:
                snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch}
                torch.save(snapshot, self.snapshot_path)


def main(config):
    init_process_group(backend="gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 24, 3, stride=2), torch.nn.ReLU(),
        torch.nn.Conv2d(24, 48, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(192, 1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dataset = MyTrainDataset(config["data"]["size"])
    loader = DataLoader(
        dataset,
        batch_size=config["trainer"]["batch_size"],
        num_workers=config["data"]["loader_workers"],
        shuffle=False,
        sampler=DistributedSampler(dataset),
    )
    settings = config["trainer"]
    Trainer(model, loader, optimizer, settings["save_every"], settings["snapshot_path"]).train(
        settings["total_epochs"]
    )
    destroy_process_group()


if __name__ == "__main__":
    main(yaml.safe_load(open(sys.argv[1])))
