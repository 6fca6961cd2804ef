"""Swin (tiny) of torchvision as its reference training goes: AdamW, mixed precision in bf16, clipping."""
import sys

import torch
import torchvision

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
model = torchvision.models.swin_t(num_classes=100).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
for step in range(20):
    images, labels = torch.randn(batch, 3, 224, 224).cuda(), torch.randint(0, 100, (batch,)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    schedule.step()
    print(step, loss.item(), flush=True)
