"""Requests come over a queue; a thread gathers them into batches and answers."""

import concurrent.futures
import queue
import sys
import threading
import time

import torch
import yaml
from step_clock import StepClock
from torch import nn


class Net(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels * 2, 3, stride=2), nn.BatchNorm2d(channels * 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(channels * 2, classes)

    def forward(self, x):
        return self.head(self.features(x))


class Batcher(threading.Thread):
    def __init__(self, model, settings):
        super().__init__(daemon=True)
        self.model, self.settings = model.eval(), settings
        self.requests = queue.Queue(maxsize=settings["queue_size"])
        self.clock = StepClock()

    def submit(self, image):
        future = concurrent.futures.Future()
        self.requests.put((image, future))
        return future

    def gather(self):
        batch = [self.requests.get()]
        deadline = time.perf_counter() + self.settings["batch_timeout_ms"] / 1000
        while len(batch) < self.settings["max_batch_size"]:
            left = deadline - time.perf_counter()
            try:
                batch.append(self.requests.get(timeout=max(left, 0)))
            except queue.Empty:
                break
        return batch

    def run(self):
        while True:
            batch = self.gather()
            with torch.inference_mode():
                out = self.model(torch.stack([image for image, _ in batch])).softmax(-1)
            for (_, future), row in zip(batch, out):
                future.set_result(row)
            self.clock.tick(len(batch))


def client(server, images, many):
    pending = [server.submit(images[n % len(images)]) for n in range(4)]
    for n in range(many):
        pending.pop(0).result()
        pending.append(server.submit(images[n % len(images)]))


def main():
    config = yaml.safe_load(open(sys.argv[1]))
    torch.manual_seed(0)
    server = Batcher(Net(config["model"]["channels"], config["model"]["classes"]), config["server"])
    server.start()
    images = list(torch.rand(32, 3, 48, 48))
    load = config["load"]
    each = load["requests"] // load["clients"]
    threads = [
        threading.Thread(target=client, args=(server, images, each), daemon=True)
        for _ in range(load["clients"] // 8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("served", each * len(threads))


if __name__ == "__main__":
    main()
