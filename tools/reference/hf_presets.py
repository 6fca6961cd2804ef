"""Prints the number of parameters of every preset, as transformers builds it: the content of
crates/models/src/recipe/model/presets.txt. Models are built without memory for their weights.

    "$(tools/reference/venv)" tools/reference/hf_presets.py > crates/models/src/recipe/model/presets.txt
"""

import torch
import transformers as hf

BASE = dict(num_hidden_layers=12, hidden_size=768, num_attention_heads=12)
LARGE = dict(num_hidden_layers=24, hidden_size=1024, num_attention_heads=16)
ROBERTA = dict(max_position_embeddings=514, type_vocab_size=1)
DEBERTA = dict(
    type_vocab_size=0, position_buckets=256, relative_attention=True, norm_rel_ebd="layer_norm", share_att_key=True,
    pos_att_type=["p2c", "c2p"], position_biased_input=False,
)  # fmt: skip


def small(layers, width, heads):
    return dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads)


def encoder(name, sizes, **keys):
    """A classifier with two labels; every preset's feed-forward layer is four times as wide as the model."""
    if "deberta" in name:
        config, model, fixed = hf.DebertaV2Config, hf.DebertaV2ForSequenceClassification, DEBERTA
    elif "xlm" in name:
        config, model, fixed = hf.XLMRobertaConfig, hf.XLMRobertaForSequenceClassification, ROBERTA
    elif "roberta" in name:
        config, model, fixed = hf.RobertaConfig, hf.RobertaForSequenceClassification, ROBERTA
    else:
        config, model, fixed = hf.BertConfig, hf.BertForSequenceClassification, {}
    return name, model, config(**fixed, **sizes, intermediate_size=4 * sizes["hidden_size"], **keys)


def t5(name, d_model, d_kv, d_ff, num_layers, num_heads, proj="gated-gelu"):
    keys = dict(d_model=d_model, d_kv=d_kv, d_ff=d_ff, num_layers=num_layers, num_heads=num_heads)
    return name, hf.T5ForConditionalGeneration, hf.T5Config(**keys, feed_forward_proj=proj)


def clip(name, vision, text=None, projection_dim=512):
    config = hf.CLIPConfig(vision_config=vision, text_config=text or {}, projection_dim=projection_dim)
    return name, hf.CLIPModel, config


def presets():
    yield encoder("bert-base-uncased", BASE)
    yield encoder("bert-base-cased", BASE, vocab_size=28996)
    yield encoder("bert-base-multilingual-cased", BASE, vocab_size=119547)
    yield encoder("bert-large-uncased", LARGE)
    yield encoder("bert-large-cased", LARGE, vocab_size=28996)
    yield encoder("bert-tiny", small(2, 128, 2))
    yield encoder("bert-mini", small(4, 256, 4))
    yield encoder("bert-small", small(4, 512, 8))
    yield encoder("bert-medium", small(8, 512, 8))
    yield encoder("all-MiniLM-L6-v2", small(6, 384, 12))
    yield encoder("all-MiniLM-L12-v2", small(12, 384, 12))
    yield encoder("roberta-base", BASE, vocab_size=50265)
    yield encoder("roberta-large", LARGE, vocab_size=50265)
    yield encoder("xlm-roberta-base", BASE, vocab_size=250002)
    yield encoder("xlm-roberta-large", LARGE, vocab_size=250002)
    yield encoder("deberta-v3-xsmall", small(12, 384, 6), vocab_size=128100)
    yield encoder("deberta-v3-small", small(6, 768, 12), vocab_size=128100)
    yield encoder("deberta-v3-base", BASE, vocab_size=128100)
    yield encoder("deberta-v3-large", LARGE, vocab_size=128100)
    yield encoder("mdeberta-v3-base", BASE, vocab_size=251000)
    yield t5("t5-small", 512, 64, 2048, 6, 8, "relu")
    yield t5("t5-base", 768, 64, 3072, 12, 12, "relu")
    yield t5("t5-large", 1024, 64, 4096, 24, 16, "relu")
    yield t5("t5-3b", 1024, 128, 16384, 24, 32, "relu")
    yield t5("flan-t5-small", 512, 64, 1024, 8, 6)
    yield t5("flan-t5-base", 768, 64, 2048, 12, 12)
    yield t5("flan-t5-large", 1024, 64, 2816, 24, 16)
    yield t5("flan-t5-xl", 2048, 64, 5120, 24, 32)
    yield t5("flan-t5-xxl", 4096, 64, 10240, 24, 64)
    large_vision = dict(**LARGE, intermediate_size=4096, patch_size=14)
    large_text = dict(hidden_size=768, intermediate_size=3072, num_attention_heads=12)
    yield clip("clip-vit-base-patch32", {})
    yield clip("clip-vit-base-patch16", dict(patch_size=16))
    yield clip("clip-vit-large-patch14", large_vision, large_text, 768)
    yield clip("clip-vit-large-patch14-336", dict(**large_vision, image_size=336), large_text, 768)


def main():
    hf.logging.set_verbosity_error()
    for name, model, config in presets():
        with torch.device("meta"):
            built = model(config)
        # `parameters` counts a tied weight once.
        print(name, sum(p.numel() for p in built.parameters()))


main()
