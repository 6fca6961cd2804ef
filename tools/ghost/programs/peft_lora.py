"""LoRA on a small Llama by PEFT and transformers' Trainer: few weights learn, the rest are frozen in bf16."""
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        ids = torch.randint(0, 32000, (512,), generator=torch.Generator().manual_seed(place))
        return dict(input_ids=ids, labels=ids)


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 4
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16)
model = LlamaForCausalLM(config).to(torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
arguments = TrainingArguments("/tmp/peft-lora", per_device_train_batch_size=batch, bf16=True, max_steps=20, report_to=[],
                              save_strategy="no", disable_tqdm=True)
Trainer(model, arguments, train_dataset=Texts()).train()
