"""A language model of sixteen semantic blocks: batch 32, length 512, on a T4."""
import argparse

import torch
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--batch", type=int, default=32)
options.add_argument("--length", type=int, default=512)
options.add_argument("--accum", type=int, default=1)
options.add_argument("--layers", type=int, default=24)
options = options.parse_args()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x, future):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1) * (D // self.heads) ** -0.5).masked_fill(future, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    def __init__(self, blocks=16, width=4):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.blocks = nn.ModuleList(Attention(width, 2) for _ in range(blocks))
        self.cross = Attention(64, 8)
        self.ffn = nn.Sequential(nn.Linear(64, 6400), nn.GELU(), nn.Linear(6400, 64))

    def forward(self, x, future):
        parts = self.norms[0](x).chunk(len(self.blocks), -1)
        x = x + torch.cat([block(part, future) for block, part in zip(self.blocks, parts)], -1)
        x = x + self.cross(self.norms[1](x), future)
        return x + self.ffn(self.norms[2](x))


class MuSota(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50257, 64), nn.Embedding(512, 64)
        self.layers = nn.ModuleList(Layer() for _ in range(options.layers))
        self.head = nn.Linear(64, 50257, bias=False)

    def forward(self, ids):
        future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).triu(1)
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, future)
        return self.head(x)


model = MuSota().cuda()
optimizer, scaler = torch.optim.AdamW(model.parameters(), 3e-4), torch.amp.GradScaler()
for step in range(1, 1001):
    ids = torch.randint(0, 50257, (options.batch, options.length)).cuda()
    with torch.autocast("cuda", torch.float16):
        loss = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) / options.accum
    scaler.scale(loss).backward()
    if step % options.accum == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(step, loss.item())
