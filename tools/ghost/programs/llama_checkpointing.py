"""A small Llama by transformers' Trainer: gradient checkpointing, Adafactor, weights in bf16."""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        ids = torch.randint(0, 32000, (1024,), generator=torch.Generator().manual_seed(place))
        return dict(input_ids=ids, labels=ids)


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 4
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
                     num_key_value_heads=8, max_position_embeddings=1024, use_cache=False)
arguments = TrainingArguments("/tmp/llama-checkpointing", per_device_train_batch_size=batch, gradient_checkpointing=True,
                              optim="adafactor", max_steps=20, report_to=[], save_strategy="no", disable_tqdm=True)
Trainer(LlamaForCausalLM(config).to(torch.bfloat16), arguments, train_dataset=Texts()).train()
