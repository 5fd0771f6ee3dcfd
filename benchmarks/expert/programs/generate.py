"""`generate()` of a small GPT-2, in batches that a YAML says."""

import sys

import torch
import yaml
from body import ITEMS, Clock
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    with open(sys.argv[1]) as file:
        config = yaml.safe_load(file)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=500, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    ).eval()
    prompts = torch.randint(5, 500, (min(ITEMS, 20000), 8))
    clock = Clock()
    for batch in DataLoader(prompts, batch_size=config["batch_size"]):
        model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            max_new_tokens=config["max_new_tokens"],
            min_new_tokens=config["max_new_tokens"],
            do_sample=False,
            pad_token_id=0,
        )
        clock.tick(len(batch))
    clock.stop()


if __name__ == "__main__":
    main()
