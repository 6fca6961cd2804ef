"""BART of transformers in a loop of accelerate: bf16, two batches an update, texts of different lengths that are padded."""
import sys

import torch
from accelerate import Accelerator
from transformers import BartConfig, BartForConditionalGeneration


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, place):
        pick = torch.Generator().manual_seed(place)
        length = int(torch.randint(100, 257, (), generator=pick))
        return torch.randint(4, 50000, (length,), generator=pick)


def together(texts):
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=1)
    ids = torch.nn.functional.pad(ids, (0, 256 - ids.shape[1]), value=1)
    return dict(input_ids=ids, attention_mask=(ids != 1).long(), labels=ids.masked_fill(ids == 1, -100)[:, :128])


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 16
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = BartForConditionalGeneration(BartConfig(encoder_layers=6, decoder_layers=6, d_model=768, encoder_ffn_dim=3072,
                                                decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12))
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
loader = torch.utils.data.DataLoader(Texts(), batch_size=batch, collate_fn=together)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, texts in enumerate(loader):
    with accelerator.accumulate(model):
        loss = model(**texts).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(step, loss.item(), flush=True)
