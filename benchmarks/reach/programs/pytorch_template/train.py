import argparse

import data_loader.data_loaders as module_data
import model.loss as module_loss
import model.metric as module_metric
import model.model as module_arch
import numpy as np
import torch
from parse_config import ConfigParser
from trainer import Trainer

SEED = 123
torch.manual_seed(SEED)
np.random.seed(SEED)


def main(config):
    data_loader = config.init_obj("data_loader", module_data)
    valid_data_loader = data_loader.split_validation()
    model = config.init_obj("arch", module_arch)
    criterion = getattr(module_loss, config["loss"])
    metrics = [getattr(module_metric, met) for met in config["metrics"]]
    trainable_params = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = config.init_obj("optimizer", torch.optim, trainable_params)
    lr_scheduler = config.init_obj("lr_scheduler", torch.optim.lr_scheduler, optimizer)
    Trainer(
        model, criterion, metrics, optimizer, config, data_loader, valid_data_loader, lr_scheduler
    ).train()


if __name__ == "__main__":
    main(ConfigParser.from_args(argparse.ArgumentParser(description="PyTorch Template")))
