"""Trains what a file of measured trainings names, row by row, and prints what PyTorch's allocator says: to be run by
`plimsoll ghost --steps 0 -- python rows.py MEASURED.jsonl OUT.jsonl [EVERY [FIRST]]`, on a card that is not there.
With PROCESS set to a number, all that this process trained when it measured them, in its order, and what it trained between
them (`history.py`): what a training leaves behind counts for all that follow.

With TRACES set to a folder, the allocator's history of every row is left there, for `plimsoll torch replay`.

A row has model, B, T, prec, ckpt, attn, opt, accum, and what a real card said: peak_alloc, peak_reserved.
"""
import gc
import json
import os
import pickle
import sys
import time

import history
import torch
import torch.nn.functional as F
import transformers
from torch import nn

transformers.logging.set_verbosity_error()
torch.set_float32_matmul_precision("high")
STEPS = 3


class Hybrid(nn.Module):
    """Convolutions, a bidirectional LSTM, one block of attention, a classifier."""

    def __init__(self, fused):
        super().__init__()
        layers, channels = [], 64
        for out in (128, 256):
            layers += [nn.Conv1d(channels, out, 3, padding=1), nn.BatchNorm1d(out), nn.GELU(), nn.Dropout(0.1)]
            channels = out
        self.conv = nn.Sequential(*layers)
        self.lstm = nn.LSTM(channels, 256, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.qkv, self.proj, self.fused = nn.Linear(512, 1536), nn.Linear(512, 512), fused
        self.n1, self.n2 = nn.LayerNorm(512), nn.LayerNorm(512)
        self.ff = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Dropout(0.1), nn.Linear(2048, 512))
        self.head = nn.Linear(512, 3)

    def forward(self, x):
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        x, _ = self.lstm(x)
        B, T, D = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, 4, D // 4).permute(2, 0, 3, 1, 4)
        if self.fused:
            a = F.scaled_dot_product_attention(q, k, v)
        else:
            a = ((q @ k.transpose(-2, -1)) * (D // 4) ** -0.5).softmax(-1) @ v
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        x = x + self.ff(self.n2(x))
        return self.head(x.mean(1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.o, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x, future):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        scores = ((q @ k.transpose(-2, -1)) * (D // self.heads) ** -0.5).masked_fill(future, float("-inf"))
        a = scores.softmax(-1) @ v
        return self.o(a.transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    def __init__(self, blocks=16, width=4, hidden=6400):
        super().__init__()
        d = blocks * width
        self.n1, self.n2, self.n3, self.width = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d), width
        self.blocks = nn.ModuleList(Attention(width, 2) for _ in range(blocks))
        self.cross = Attention(d, 8)
        self.ff = nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d))

    def forward(self, x, future):
        h, w = self.n1(x), self.width
        x = x + torch.cat([b(h[..., i * w : (i + 1) * w], future) for i, b in enumerate(self.blocks)], -1)
        x = x + self.cross(self.n2(x), future)
        return x + self.ff(self.n3(x))


class MuSota(nn.Module):
    def __init__(self, layers=6, vocabulary=50257, width=64, length=512):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.n, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        T = ids.shape[1]
        future = torch.triu(torch.ones(T, T, dtype=torch.bool, device=ids.device), 1)
        x = self.emb(ids) + self.pos.weight[:T]
        for layer in self.layers:
            x = layer(x, future)
        return self.head(self.n(x))


def bert(kind, width, layers, heads, vocabulary=30522, **more):
    return getattr(transformers, kind + "ForSequenceClassification"), getattr(transformers, kind + "Config")(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, num_labels=2, **more)


def roberta(kind, vocabulary, width=768, layers=12, heads=12):
    more = dict(max_position_embeddings=514, type_vocab_size=1, pad_token_id=1)
    return bert(kind, width, layers, heads, vocabulary, **more)


def deberta(width, layers, heads):
    return bert("DebertaV2", width, layers, heads, 128100, relative_attention=True, position_buckets=256,
                norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
                max_relative_positions=-1, position_biased_input=False, type_vocab_size=0, pad_token_id=0)


def t5(width, hidden, layers, heads, gated):
    return transformers.T5ForConditionalGeneration, transformers.T5Config(
        d_model=width, d_kv=64, d_ff=hidden, num_layers=layers, num_decoder_layers=layers, num_heads=heads,
        feed_forward_proj="gated-gelu" if gated else "relu", vocab_size=32128, tie_word_embeddings=not gated,
        decoder_start_token_id=0)


def llama():
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, tie_word_embeddings=True)


MODELS = {
    "bert-base-uncased": lambda: bert("Bert", 768, 12, 12),
    "bert-large-uncased": lambda: bert("Bert", 1024, 24, 16),
    "roberta-base": lambda: roberta("Roberta", 50265),
    "roberta-large": lambda: roberta("Roberta", 50265, 1024, 24, 16),
    "xlm-roberta-base": lambda: roberta("XLMRoberta", 250002),
    "deberta-v3-base": lambda: deberta(768, 12, 12),
    "deberta-v3-large": lambda: deberta(1024, 24, 16),
    "t5-small": lambda: t5(512, 2048, 6, 8, False),
    "t5-base": lambda: t5(768, 3072, 12, 12, False),
    "flan-t5-base": lambda: t5(768, 2048, 12, 12, True),
    "flan-t5-large": lambda: t5(1024, 2816, 24, 16, True),
    "flan-t5-xl": lambda: t5(2048, 5120, 24, 32, True),
    "clip-vit-base-patch32": lambda: (transformers.CLIPModel, transformers.CLIPConfig()),
    "gpt2": lambda: (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
    "gpt2-medium": lambda: (transformers.GPT2LMHeadModel, transformers.GPT2Config(n_embd=1024, n_layer=24, n_head=16)),
    "llama-1b": llama,
}


def model_of(row, device="cuda"):
    with torch.device(device):
        if row["model"] == "hybrid":
            model = Hybrid(row["attn"] == "sdpa")
        elif row["model"] == "mu-sota":
            model = MuSota()
        else:
            kind, config = MODELS[row["model"]]()
            config._attn_implementation = row["attn"]
            deberta = row["model"].startswith("deberta")
            model = kind(config) if deberta else kind._from_config(config, attn_implementation=row["attn"])
    if row["prec"] == "bf16":
        model = model.to(torch.bfloat16)
    if row["ckpt"]:
        model.gradient_checkpointing_enable()
    return model.train()


def ids(limit, *shape):
    return torch.randint(0 if limit < 10 else 5, limit, shape, device="cuda")


def batch_of(row):
    name, B, T = row["model"], row["B"], row["T"]
    kind = torch.bfloat16 if row["prec"] == "bf16" else torch.float32
    if name == "hybrid":
        return torch.randn(B, 60, 64, device="cuda", dtype=kind), ids(3, B) % 3
    if name == "mu-sota":
        return ids(50257, B, T)
    if name.startswith(("gpt2", "llama")):
        text = ids(50000, B, T)
        return dict(input_ids=text, labels=text)
    if name.startswith("clip"):
        text = ids(49000, B, T)
        text[:, -1] = 49407
        return dict(input_ids=text, pixel_values=torch.randn(B, 3, 224, 224, device="cuda", dtype=kind), return_loss=True)
    if "t5" in name:
        return dict(input_ids=ids(32000, B, T), labels=ids(32000, B, T))
    return dict(input_ids=ids(30000, B, T), labels=ids(2, B) % 2)


def loss_of(row, model, batch):
    if row["model"] == "hybrid":
        return F.cross_entropy(model(batch[0]), batch[1])
    if row["model"] == "mu-sota":
        return F.cross_entropy(model(batch)[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())
    return model(**batch).loss


def optimizer_of(row, model):
    weights = model.parameters()
    if row["opt"] == "sgd-momentum":
        return torch.optim.SGD(weights, 1e-3, momentum=0.9)
    if row["opt"] == "adafactor":
        return torch.optim.Adafactor(weights, 1e-3)
    return torch.optim.AdamW(weights, 1e-5, **({"fused": True} if row["opt"] == "adamw-fused" else {}))


def train(row):
    model = model_of(row)
    optimizer = optimizer_of(row, model)
    half = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(row["prec"])
    scaler = torch.amp.GradScaler(enabled=row["prec"] == "amp-fp16")
    for _ in range(row.get("steps", STEPS)):
        for _ in range(row["accum"]):
            batch = batch_of(row)
            with torch.autocast("cuda", half or torch.bfloat16, enabled=half is not None):
                loss = loss_of(row, model, batch) / row["accum"]
            scaler.scale(loss).backward()
            del loss, batch
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def clean():
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def make_dropout_state():
    """cuDNN's generator for dropout between recurrent layers is made once in a process and stays. Trainings were measured one
    after another, so it was there for all that shared a process with such layers, but for the first. Where a process is
    repeated whole, its own first one makes it."""
    with torch.device("cuda"):
        nn.LSTM(8, 8, 2, dropout=0.1)(torch.zeros(1, 1, 8))


def with_processes(rows):
    """Rows with the number of the process that measured them: its clock `t` starts again in the next one."""
    process, last = 0, 0
    for row in rows:
        process += row.get("t", 0) < last
        last = row.get("t", 0)
        yield dict(row, process=process)


def record(on):
    if os.environ.get("TRACES"):
        torch.cuda.memory._record_memory_history(enabled="all" if on else None, context=None, stacks="python")


def leave_trace(row):
    if os.environ.get("TRACES"):
        with open(os.path.join(os.environ["TRACES"], f"{row['number']}.pickle"), "wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file, protocol=4)


def main(measured, out, every=1, first=0):
    rows = list(with_processes(dict(json.loads(line), number=number) for number, line in enumerate(open(measured))))
    recurrent = {row["process"] for row in rows if row["model"] == "hybrid"}
    if os.environ.get("PROCESS"):
        process, recurrent = int(os.environ["PROCESS"]), set()
        rows = list(history.of(process, [row for row in rows if row["process"] == process]))
    torch.cuda.memory._record_memory_history(enabled=None)
    with open(out, "w") as file:
        for row in rows[int(first) :: int(every)]:
            if row.get("process") in recurrent:
                make_dropout_state()
            clean()
            started, found = time.time(), dict(row)
            record("number" in row)
            try:
                train(row)
            except Exception as error:
                found["error"] = repr(error)[:300]
            if "number" not in row:
                continue
            found.update(ghost_alloc=torch.cuda.max_memory_allocated(), ghost_reserved=torch.cuda.max_memory_reserved(),
                         ghost_end=torch.cuda.memory_allocated(),
                         ghost_retries=torch.cuda.memory_stats()["num_alloc_retries"], seconds=round(time.time() - started, 2))
            file.write(json.dumps(found) + "\n")
            file.flush()
            leave_trace(row)
            record(False)


if __name__ == "__main__":
    main(*sys.argv[1:])
