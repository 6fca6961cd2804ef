"""GPT-2 by transformers' Trainer: bf16, accumulation, clipping."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        ids = torch.randint(0, 50257, (512,), generator=torch.Generator().manual_seed(place))
        return dict(input_ids=ids, labels=ids)


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
arguments = TrainingArguments("/tmp/gpt2-trainer", per_device_train_batch_size=batch, gradient_accumulation_steps=2, bf16=True,
                              max_steps=20, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True)
Trainer(GPT2LMHeadModel(GPT2Config()), arguments, train_dataset=Texts()).train()
