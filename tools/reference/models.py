"""The families `hybrid-cnn-lstm` and `mu-sota` in PyTorch, every size settable.

The module tree is laid out so that `named_parameters()` yields plimsoll's own names and layouts
(`lstm.0.w_ih` stacks both directions, `layers.0.blocks.qkv.weight` stacks all blocks): a golden
file needs no renaming table that could itself be wrong. `against.py` compares these modules with
an independent definition.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


def uniform(fan_in, *shape):
    """A parameter drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as PyTorch draws linear and LSTM weights."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def attend(qkv, heads, causal):
    """Attention with explicit scores. `qkv` is (..., T, 3·D), ordered q | k | v, each split into heads."""
    *lead, steps, triple = qkv.shape
    width = triple // 3
    size = width // heads
    q, k, v = qkv.unflatten(-1, (3, heads, size)).movedim(-3, 0).transpose(-3, -2)  # each (..., heads, T, size)
    scores = q @ k.mT / math.sqrt(size)
    if causal:
        later = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    mixed = scores.softmax(-1) @ v
    return mixed.transpose(-3, -2).reshape(*lead, steps, width)


class ConvNorm(nn.Conv1d):
    """Convolution of width 3 (length kept), batch norm, exact GELU, dropout; works on (B, C, T)."""

    def __init__(self, inputs, outputs, dropout):
        super().__init__(inputs, outputs, 3, padding=1)
        self.norm = nn.BatchNorm1d(outputs)
        self.dropout = dropout

    def forward(self, x):
        return F.dropout(F.gelu(self.norm(super().forward(x))), self.dropout, self.training)


class BiLstm(nn.Module):
    """One bidirectional LSTM layer on (B, T, inputs); gates in the order i, f, g, o; index 0 of `dirs` runs forward."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.w_ih = uniform(hidden, 2, 4 * hidden, inputs)
        self.w_hh = uniform(hidden, 2, 4 * hidden, hidden)
        self.b_ih = uniform(hidden, 2, 4 * hidden)
        self.b_hh = uniform(hidden, 2, 4 * hidden)

    def forward(self, x):
        weights = [p[d] for d in range(2) for p in (self.w_ih, self.w_hh, self.b_ih, self.b_hh)]
        zero = x.new_zeros(2, x.shape[0], self.hidden)
        biases, layers, dropout, bidirectional, batch_first = True, 1, 0.0, True, True
        out, _, _ = torch.lstm(x, (zero, zero), weights, biases, layers, dropout, self.training, bidirectional, batch_first)
        return out  # (B, T, 2·hidden)


class NormedAttention(nn.Module):
    """Pre-norm self-attention over all steps; the residual is added by the caller."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        return self.proj(attend(self.qkv(self.norm(x)), self.heads, causal=False))


class NormedFfn(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.dropout(F.gelu(self.up(self.norm(x))), self.dropout, self.training))


class HybridCnnLstm(nn.Module):
    """Convolutions, a two-layer bidirectional LSTM, one attention block, the mean over time, a classifier."""

    def __init__(self, features=64, channels=(128, 256), hidden=256, heads=4, classes=3, dropout=0.1):
        super().__init__()
        sizes = [features, *channels]
        width = 2 * hidden
        self.dropout = dropout
        self.conv = nn.ModuleList(ConvNorm(i, o, dropout) for i, o in zip(sizes, sizes[1:]))
        self.lstm = nn.ModuleList([BiLstm(sizes[-1], hidden), BiLstm(width, hidden)])
        self.attn = NormedAttention(width, heads)
        self.ffn = NormedFfn(width, dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, x):  # (B, T, features)
        x = x.mT
        for conv in self.conv:
            x = conv(x)
        x = F.dropout(self.lstm[0](x.mT), self.dropout, self.training)
        x = self.lstm[1](x)
        x = x + self.attn(x)
        x = x + self.ffn(x)
        return self.head(x.mean(1))  # (B, classes)


class StackedLinear(nn.Module):
    """`count` independent linear maps, the i-th applied to row i of (..., count, T, inputs)."""

    def __init__(self, count, inputs, outputs):
        super().__init__()
        self.weight = uniform(inputs, count, outputs, inputs)
        self.bias = uniform(inputs, count, outputs)

    def forward(self, x):
        return x @ self.weight.mT + self.bias[:, None]


class Blocks(nn.Module):
    """Causal attention inside each slice of the hidden state; no slice sees another."""

    def __init__(self, count, width, heads):
        super().__init__()
        self.count, self.heads = count, heads
        self.qkv = StackedLinear(count, width, 3 * width)
        self.out = StackedLinear(count, width, width)

    def forward(self, x):  # (B, T, count·width)
        slices = x.unflatten(-1, (self.count, -1)).transpose(1, 2)  # (B, count, T, width)
        mixed = self.out(attend(self.qkv(slices), self.heads, causal=True))
        return mixed.transpose(1, 2).flatten(2)


class Cross(nn.Module):
    """Causal attention over the whole width."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        return self.out(attend(self.qkv(x), self.heads, causal=True))


class Ffn(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MuLayer(nn.Module):
    def __init__(self, blocks, block_width, block_heads, cross_heads, ffn):
        super().__init__()
        width = blocks * block_width
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.blocks = Blocks(blocks, block_width, block_heads)
        self.cross = Cross(width, cross_heads)
        self.ffn = Ffn(width, ffn)

    def forward(self, x):
        x = x + self.blocks(self.norm1(x))
        x = x + self.cross(self.norm2(x))
        return x + self.ffn(self.norm3(x))


class MuSota(nn.Module):
    """The structured-block language model; learned positions, untied head without bias."""

    def __init__(self, vocab=50257, layers=24, blocks=16, block_width=4, block_heads=2, cross_heads=8, ffn=6400, max_length=512):
        super().__init__()
        width = blocks * block_width
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Embedding(max_length, width)
        self.layers = nn.ModuleList(MuLayer(blocks, block_width, block_heads, cross_heads, ffn) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):  # (B, T)
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))  # (B, T, vocab)
