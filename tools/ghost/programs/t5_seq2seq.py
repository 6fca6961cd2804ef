"""T5 by transformers' Seq2SeqTrainer: texts of different lengths, padded by batch."""
import random
import sys

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        pick = random.Random(place)
        return [pick.randrange(5, 32000) for _ in range(pick.randint(200, 256))], [
            pick.randrange(5, 32000) for _ in range(pick.randint(40, 64))]


def padded(rows):
    pad = lambda texts, value: torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(text) for text in texts], batch_first=True, padding_value=value)
    source, target = pad([row[0] for row in rows], 0), pad([row[1] for row in rows], -100)
    return dict(input_ids=source, attention_mask=(source != 0).long(), labels=target)


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
config = T5Config(d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12, feed_forward_proj="gated-gelu",
                  decoder_start_token_id=0)
arguments = Seq2SeqTrainingArguments("/tmp/t5-seq2seq", per_device_train_batch_size=batch, max_steps=20, report_to=[],
                                     save_strategy="no", disable_tqdm=True, seed=1)
Seq2SeqTrainer(T5ForConditionalGeneration(config), arguments, train_dataset=Pairs(), data_collator=padded).train()
