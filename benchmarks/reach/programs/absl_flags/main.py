"""Contrastive training of sentence pairs, with absl flags."""

from absl import app, flags, logging

FLAGS = flags.FLAGS
flags.DEFINE_integer("train_batch_size", 16, "Total batch size for training.", lower_bound=1)
flags.DEFINE_integer("num_train_steps", 100000, "Number of training steps.")
flags.DEFINE_integer("max_seq_length", 32, "Longer sentences are cut, shorter ones padded.")
flags.DEFINE_float("learning_rate", 5e-4, "The initial learning rate for Adam.")
flags.DEFINE_integer("loader_threads", 0, "Processes that load.")
flags.DEFINE_string("model_dir", "model", "Where checkpoints go.")
flags.DEFINE_integer("save_checkpoints_steps", 1000, "How often to save the model checkpoint.")
flags.DEFINE_bool("do_train", True, "Whether to run training.")


def main(argv):
    del argv
    import os

    import torch
    from step_clock import StepClock
    from torch import nn

    torch.manual_seed(0)

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 50000

        def __getitem__(self, index):
            g = torch.Generator().manual_seed(index)
            many = int(torch.randint(8, FLAGS.max_seq_length, (1,), generator=g))
            row = torch.zeros(FLAGS.max_seq_length, dtype=torch.long)
            row[:many] = torch.randint(1, 2000, (many,), generator=g)
            other = row.clone()
            other[torch.rand(len(row), generator=g) < 0.2] = 0
            return {"a": row, "b": other}

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(2000, 64, padding_idx=0)
            self.gru = nn.GRU(64, 64, batch_first=True)

        def forward(self, ids):
            return nn.functional.normalize(self.gru(self.embed(ids))[1][0], dim=-1)

    tower = Tower()
    optimizer = torch.optim.Adam(tower.parameters(), lr=FLAGS.learning_rate)
    loader = torch.utils.data.DataLoader(
        Pairs(),
        FLAGS.train_batch_size,
        shuffle=True,
        num_workers=FLAGS.loader_threads,
        drop_last=True,
    )
    clock, step = StepClock(), 0
    os.makedirs(FLAGS.model_dir, exist_ok=True)
    while FLAGS.do_train and step < FLAGS.num_train_steps:
        for pair in loader:
            scores = tower(pair["a"]) @ tower(pair["b"]).T / 0.1
            loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.tick(len(scores))
            step += 1
            if step % FLAGS.save_checkpoints_steps == 0:
                torch.save(tower.state_dict(), os.path.join(FLAGS.model_dir, f"{step}.pt"))
                logging.info("step %d loss %.4f", step, loss.item())
            if step >= FLAGS.num_train_steps:
                break


if __name__ == "__main__":
    app.run(main)
