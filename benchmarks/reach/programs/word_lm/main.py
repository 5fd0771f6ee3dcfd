import argparse
import math
import time

import data
import torch
import torch.nn as nn
from step_clock import StepClock

parser = argparse.ArgumentParser(description="RNN language model")
parser.add_argument("--data", type=str, default="./corpus", help="location of the data corpus")
parser.add_argument("--model", type=str, default="LSTM", help="type of network (LSTM, GRU)")
parser.add_argument("--emsize", type=int, default=64, help="size of word embeddings")
parser.add_argument("--nhid", type=int, default=96, help="number of hidden units per layer")
parser.add_argument("--nlayers", type=int, default=2, help="number of layers")
parser.add_argument("--lr", type=float, default=5, help="initial learning rate")
parser.add_argument("--clip", type=float, default=0.25, help="gradient clipping")
parser.add_argument("--epochs", type=int, default=40, help="upper epoch limit")
parser.add_argument("--batch_size", type=int, default=20, metavar="N", help="batch size")
parser.add_argument("--bptt", type=int, default=35, help="sequence length")
parser.add_argument("--dropout", type=float, default=0.2, help="dropout applied to layers")
parser.add_argument("--seed", type=int, default=1111, help="random seed")
parser.add_argument("--log-interval", type=int, default=50, metavar="N", help="report interval")
parser.add_argument("--save", type=str, default="model.pt", help="path to save the final model")
args = parser.parse_args()

torch.manual_seed(args.seed)
corpus = data.Corpus(args.data)


def batchify(source, bsz):
    # Columns are treated as independent by the model.
    nbatch = source.size(0) // bsz
    return source.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.rnn_type, self.nhid, self.nlayers, self.ntoken = rnn_type, nhid, nlayers, ntoken

    def forward(self, inp, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(inp)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        state = weight.new_zeros(self.nlayers, bsz, self.nhid)
        return (state, state.clone()) if self.rnn_type == "LSTM" else state


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


eval_batch_size = 10
train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, eval_batch_size)
ntokens = len(corpus.dictionary.idx2word)
model = RNNModel(args.model, ntokens, args.emsize, args.nhid, args.nlayers, args.dropout)
criterion = nn.NLLLoss()
clock = StepClock()


def evaluate(data_source):
    model.eval()
    total, hidden = 0.0, model.init_hidden(eval_batch_size)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, args.bptt):
            inputs, targets = get_batch(data_source, i)
            output, hidden = model(inputs, hidden)
            total += len(inputs) * criterion(output, targets).item()
    return total / (len(data_source) - 1)


def train(epoch, lr):
    model.train()
    total_loss, start_time = 0.0, time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        inputs, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(inputs, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        clock.tick(args.batch_size)
        total_loss += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            cur = total_loss / args.log_interval
            ms = (time.time() - start_time) * 1000 / args.log_interval
            print(
                f"| epoch {epoch:3d} | {batch:5d} batches | ms/batch {ms:5.2f} | ppl {math.exp(cur):8.2f}"
            )
            total_loss, start_time = 0.0, time.time()


best_val_loss, lr = None, args.lr
for epoch in range(1, args.epochs + 1):
    train(epoch, lr)
    val_loss = evaluate(val_data)
    print(f"| end of epoch {epoch:3d} | valid loss {val_loss:5.2f}")
    if not best_val_loss or val_loss < best_val_loss:
        with open(args.save, "wb") as f:
            torch.save(model, f)
        best_val_loss = val_loss
    else:
        lr /= 4.0
