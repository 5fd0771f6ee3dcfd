"""What a recipe's config names by `_component_`."""

import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tokenizer:
    def __init__(self, max_seq_len):
        self.max_seq_len = max_seq_len

    def encode(self, text):
        return [b + 1 for b in text.encode()][: self.max_seq_len]


def byte_tokenizer(max_seq_len):
    return Tokenizer(max_seq_len)


class Instructions(torch.utils.data.Dataset):
    def __init__(self, tokenizer, n, packed):
        self.tokenizer, self.n, self.packed = tokenizer, n, packed

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        rng = random.Random(index)
        text = "".join(rng.choice("abcdefgh ") for _ in range(rng.randint(20, 90)))
        prompt, answer = self.tokenizer.encode(text), self.tokenizer.encode(text[::-1])
        tokens = (prompt + answer)[: self.tokenizer.max_seq_len]
        labels = ([-100] * len(prompt) + answer)[: self.tokenizer.max_seq_len]
        return {"tokens": tokens, "labels": labels}


def instruct_dataset(tokenizer, n, packed):
    return Instructions(tokenizer, n, packed)


def padded_collate_sft(batch, padding_idx=0, ignore_idx=-100):
    tokens = [torch.tensor(row["tokens"]) for row in batch]
    labels = [torch.tensor(row["labels"]) for row in batch]
    pad = nn.utils.rnn.pad_sequence
    return {
        "tokens": pad(tokens, batch_first=True, padding_value=padding_idx),
        "labels": pad(labels, batch_first=True, padding_value=ignore_idx),
    }


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.silu(self.up(self.n2(x))))


class TinyDecoder(nn.Module):
    def __init__(self, num_layers, embed_dim, num_heads):
        super().__init__()
        self.tok = nn.Embedding(260, embed_dim)
        self.layers = nn.ModuleList(Layer(embed_dim, num_heads) for _ in range(num_layers))
        self.output = nn.Linear(embed_dim, 260)
        self.checkpointing = False

    def forward(self, tokens):
        x = self.tok(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        return self.output(x)


def tiny_decoder(num_layers, embed_dim, num_heads):
    return TinyDecoder(num_layers, embed_dim, num_heads)
