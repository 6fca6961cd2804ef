"""One trial of a search over encoders: bert-large, batch 48, accumulation 4, length 480, on a 24 GB card."""
import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

options = argparse.ArgumentParser()
options.add_argument("--batch-size", type=int, default=48)
options.add_argument("--grad-accum", type=int, default=4)
options.add_argument("--max-length", type=int, default=480)
options.add_argument("--bf16", action="store_true")
options.add_argument("--gradient-checkpointing", action="store_true")
options = options.parse_args()


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, place):
        return dict(input_ids=torch.randint(5, 30000, (options.max_length,)), labels=place % 2,
                    attention_mask=torch.ones(options.max_length, dtype=torch.int64))


config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
arguments = TrainingArguments(
    "/tmp/encoder-trial", per_device_train_batch_size=options.batch_size, gradient_accumulation_steps=options.grad_accum,
    bf16=options.bf16, gradient_checkpointing=options.gradient_checkpointing, learning_rate=2e-5, max_steps=100,
    save_strategy="no", report_to=[], disable_tqdm=True)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=Texts()).train()
