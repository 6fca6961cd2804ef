"""FLAN-T5-XL on recipes, all in bf16: batch 8, accumulation 16, length 256, on a 32 GB card."""
import argparse

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

options = argparse.ArgumentParser()
options.add_argument("--batch", type=int, default=8)
options.add_argument("--accum", type=int, default=16)
options.add_argument("--length", type=int, default=256)
options.add_argument("--optim", default="adamw_torch_fused")
options.add_argument("--gradient-checkpointing", action="store_true")
options = options.parse_args()


class Recipes(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, place):
        text = torch.randint(5, 32000, (options.length,))
        return dict(input_ids=text, labels=text, attention_mask=torch.ones_like(text))


config = T5Config(d_model=2048, d_kv=64, d_ff=5120, num_layers=24, num_heads=32, feed_forward_proj="gated-gelu",
                  tie_word_embeddings=False, decoder_start_token_id=0)
with torch.device("cuda"):
    model = T5ForConditionalGeneration._from_config(config, dtype=torch.bfloat16)
arguments = Seq2SeqTrainingArguments(
    "/tmp/flan-t5-xl", per_device_train_batch_size=options.batch, gradient_accumulation_steps=options.accum,
    optim=options.optim, gradient_checkpointing=options.gradient_checkpointing, max_steps=100, save_strategy="no",
    report_to=[], disable_tqdm=True)
Seq2SeqTrainer(model, arguments, train_dataset=Recipes()).train()
