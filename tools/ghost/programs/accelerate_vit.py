"""A vision transformer of transformers in a loop of accelerate: fp16, workers, clipping, an evaluation in between."""
import sys

import torch
from accelerate import Accelerator
from transformers import ViTConfig, ViTForImageClassification


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, place):
        return torch.rand(3, 224, 224), place % 10


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
accelerator = Accelerator(mixed_precision="fp16")
model = ViTForImageClassification(ViTConfig(num_labels=10))
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
loader = torch.utils.data.DataLoader(Images(), batch_size=batch, num_workers=2, pin_memory=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, (images, labels) in enumerate(loader):
    loss = model(pixel_values=images, labels=labels).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
