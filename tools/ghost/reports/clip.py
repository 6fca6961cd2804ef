"""CLIP on pictures of cars: batch 128 on an 8 GB card."""
import argparse

import torch
from transformers import CLIPConfig, CLIPModel

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=20)
options.add_argument("--lr", type=float, default=2e-5)
options.add_argument("--batch_size", type=int, default=128)
options.add_argument("--gradient_accumulation", type=int, default=1)
options.add_argument("--gradient_checkpointing", action="store_true")
options = options.parse_args()


class Cars(torch.utils.data.Dataset):
    def __len__(self):
        return 2560

    def __getitem__(self, place):
        text = torch.randint(0, 49000, (77,))
        text[-1] = 49407
        return dict(input_ids=text, pixel_values=torch.rand(3, 224, 224))


model = CLIPModel(CLIPConfig()).cuda().train()
if options.gradient_checkpointing:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), options.lr)
loader = torch.utils.data.DataLoader(Cars(), options.batch_size, shuffle=True, num_workers=2)
for epoch in range(options.epochs):
    for step, batch in enumerate(loader):
        batch = {name: value.cuda() for name, value in batch.items()}
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(**batch, return_loss=True).loss / options.gradient_accumulation
        loss.backward()
        if (step + 1) % options.gradient_accumulation == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
