"""What the tests ask about: importable by another process, as everything that is asked about must be."""
import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, width=2048, layers=4):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.layers(x).relu())


def training(rows=64):
    model = Wide()
    return model, torch.zeros(rows, 2048), torch.optim.AdamW(model.parameters())


def squares(output, batch):
    return output.float().pow(2).mean()
