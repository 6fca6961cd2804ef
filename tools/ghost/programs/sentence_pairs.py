"""A sentence encoder by sentence-transformers' Trainer, with in-batch negatives."""
import sys
import tempfile

import tokenizers
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers import losses, models
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

try:
    from datasets import Dataset
except ImportError:
    sys.exit("this program wants `datasets`")

words = [f"word{number}" for number in range(2000)]
names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: place for place, word in enumerate(names + words)}, "[UNK]"))
inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                    sep_token="[SEP]", mask_token="[MASK]", model_max_length=128)
batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
with tempfile.TemporaryDirectory() as folder:
    BertModel(BertConfig(vocab_size=2005)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    encoder = models.Transformer(folder, max_seq_length=128)
model = SentenceTransformer(modules=[encoder, models.Pooling(encoder.get_word_embedding_dimension())])
text = lambda place: " ".join(words[(place * 31 + word) % 2000] for word in range(120))
pairs = Dataset.from_dict(dict(anchor=[text(row) for row in range(1000)], positive=[text(row + 7) for row in range(1000)]))
arguments = SentenceTransformerTrainingArguments("/tmp/sentence-pairs", per_device_train_batch_size=batch, max_steps=20,
                                                 bf16=True, report_to=[], save_strategy="no", disable_tqdm=True)
SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=losses.MultipleNegativesRankingLoss(model)).train()
