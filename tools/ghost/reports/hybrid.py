"""Time series: convolutions, an LSTM, attention; batch 256 on a 12 GB card."""
import argparse

import torch
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--batch-size", type=int, default=256)
options.add_argument("--grad-accum", type=int, default=1)
options.add_argument("--amp", action="store_true")
options = options.parse_args()


class HybridCNNLSTM(nn.Module):
    def __init__(self, features=64, hidden=256, classes=3):
        super().__init__()
        layers, channels = [], features
        for out in (128, 256):
            layers += [nn.Conv1d(channels, out, 3, padding=1), nn.BatchNorm1d(out), nn.GELU(), nn.Dropout(0.1)]
            channels = out
        self.conv = nn.Sequential(*layers)
        self.lstm = nn.LSTM(channels, hidden, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.attention = nn.MultiheadAttention(2 * hidden, 4, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        x, _ = self.lstm(self.conv(x.transpose(1, 2)).transpose(1, 2))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


data = torch.utils.data.TensorDataset(torch.randn(20000, 60, 64), torch.randint(0, 3, (20000,)))
loader = torch.utils.data.DataLoader(data, options.batch_size, shuffle=True, num_workers=2, pin_memory=True)
model = HybridCNNLSTM().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler(enabled=options.amp)
for step, (x, y) in enumerate(loader):
    with torch.autocast("cuda", torch.float16, enabled=options.amp):
        loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda()) / options.grad_accum
    scaler.scale(loss).backward()
    if (step + 1) % options.grad_accum == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f} {torch.cuda.memory_allocated() >> 20} MiB")
