"""Checkpoints of transformers, small and random, and the way back.

    hf_round_trip.py make DIR                one folder per case; crates/train/tests/goldens/hf holds them
    hf_round_trip.py compare SOURCE EXPORT   both folders, loaded by transformers, give the same outputs
    hf_round_trip.py large DIR [--dtype F16] a checkpoint of flan-t5-large's size, written tensor by tensor
    hf_round_trip.py sizes DIR               its parameters and the bytes of its largest tensor

`compare` takes any two folders of one model: what training changed shows as a difference, so export before training,
or after zero steps.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import transformers as hf

SIZES = dict(vocab_size=41, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
POSITIONS = dict(max_position_embeddings=18)
ROBERTA = dict(**SIZES, **POSITIONS, type_vocab_size=1, layer_norm_eps=1e-5)
DEBERTA = dict(
    **SIZES, **POSITIONS, type_vocab_size=0, position_buckets=4, relative_attention=True, norm_rel_ebd="layer_norm",
    share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
)  # fmt: skip
T5 = dict(vocab_size=41, d_model=12, d_kv=5, d_ff=20, num_layers=2, num_decoder_layers=1, num_heads=3,
          relative_attention_num_buckets=8, relative_attention_max_distance=20, decoder_start_token_id=0)  # fmt: skip
TOWER = dict(hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
CLIP_TEXT = dict(**TOWER, vocab_size=41, max_position_embeddings=9, eos_token_id=40, bos_token_id=39, pad_token_id=0)
CLIP_VISION = dict(**TOWER, image_size=14, patch_size=4)
LABELS = {0: "no", 1: "perhaps", 2: "yes"}


def cases():
    """Name, class, config, element type."""
    bert = hf.BertConfig(**SIZES, **POSITIONS, id2label=LABELS, problem_type="multi_label_classification")
    yield "bert", hf.BertForSequenceClassification, bert, torch.float32
    yield "bert-bare-f16", hf.BertModel, hf.BertConfig(**SIZES, **POSITIONS), torch.float16
    yield "bert-pretraining", hf.BertForPreTraining, hf.BertConfig(**SIZES, **POSITIONS), torch.float32
    regression = hf.RobertaConfig(**ROBERTA, num_labels=1)
    yield "roberta-regression", hf.RobertaForSequenceClassification, regression, torch.float32
    yield "roberta-masked", hf.RobertaForMaskedLM, hf.RobertaConfig(**ROBERTA), torch.float32
    xlm = hf.XLMRobertaConfig(**ROBERTA, classifier_dropout=0.3)
    yield "xlm-roberta-bf16", hf.XLMRobertaForSequenceClassification, xlm, torch.bfloat16
    deberta = hf.DebertaV2Config(**DEBERTA, id2label=LABELS)
    yield "deberta-v3", hf.DebertaV2ForSequenceClassification, deberta, torch.float32
    yield "t5-tied", hf.T5ForConditionalGeneration, hf.T5Config(**T5), torch.float32
    flan = hf.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    yield "t5-gated-tied", hf.T5ForConditionalGeneration, flan, torch.float32
    yield "t5-gated-untied", hf.T5ForConditionalGeneration, flan, torch.float32
    clip = hf.CLIPConfig(text_config=CLIP_TEXT, vision_config=CLIP_VISION, projection_dim=7)
    yield "clip", hf.CLIPModel, clip, torch.float32


def spread(model):
    """Biases and norms away from their 0 and 1, so that one in the wrong place shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def make(directory):
    torch.manual_seed(1)
    for name, model_class, config, dtype in cases():
        model = spread(model_class(config))
        if name.endswith("-untied"):
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        model.to(dtype).save_pretrained(directory / name)
        (directory / name / "generation_config.json").unlink(missing_ok=True)


def outputs(model):
    """A few numbers that every weight has a part in."""
    torch.manual_seed(1)
    config = model.config
    text = config.text_config if config.model_type == "clip" else config
    ids = torch.randint(3, text.vocab_size, (3, 8))
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] + [0] * 7])
    if config.model_type == "clip":
        ids[:, -1] = text.eos_token_id
        vision = config.vision_config
        pixels = torch.randn(3, vision.num_channels, vision.image_size, vision.image_size)
        return model(input_ids=ids, pixel_values=pixels.to(model.dtype)).logits_per_image
    if config.model_type == "t5":
        return model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, :4]).logits
    return model(input_ids=ids, attention_mask=mask).logits


def load(folder, model_class, **keys):
    model, report = model_class.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **keys)
    return model.eval(), report


def compare(source, export):
    architecture = json.loads((export / "config.json").read_text())["architectures"][0]
    model_class = getattr(hf, architecture)
    ours, report = load(export, model_class)
    labels = {} if architecture in ("CLIPModel", "T5ForConditionalGeneration") else dict(num_labels=ours.config.num_labels)
    theirs, found = load(source, model_class, ignore_mismatched_sizes=True, **labels)
    # A head that the source does not have, or has for other labels: both get the same random one.
    fresh = set(found["missing_keys"]) | {name for name, *_ in found["mismatched_keys"]}
    torch.manual_seed(2)
    heads = {name: torch.randn_like(value) for name, value in ours.state_dict().items() if name in fresh}
    ours.load_state_dict(heads, strict=False)
    theirs.load_state_dict(heads, strict=False)
    strange = {key: sorted(map(str, names)) for key, names in report.items() if names}
    with torch.no_grad():
        a, b = outputs(ours).double(), outputs(theirs).double()
    error = ((a - b).norm() / b.norm().clamp_min(1e-30)).item()
    print(json.dumps(dict(architecture=architecture, fresh=sorted(fresh), loading=strange, relative_error=error)))
    return 0 if error == 0 and not strange else 1


def flan_t5_large():
    config = hf.T5Config(d_model=1024, d_kv=64, d_ff=2816, num_layers=24, num_heads=16, feed_forward_proj="gated-gelu",
                         tie_word_embeddings=False, decoder_start_token_id=0)  # fmt: skip
    with torch.device("meta"):
        model = hf.T5ForConditionalGeneration(config)
    tensors = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return config, tensors | {"lm_head.weight": tensors["shared.weight"]}


def large(directory, dtype):
    directory.mkdir(parents=True)
    config, tensors = flan_t5_large()
    config.architectures = ["T5ForConditionalGeneration"]
    config.save_pretrained(directory)
    bytes_each = dict(F32=4, F16=2)[dtype]
    header, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + int(np.prod(shape)) * bytes_each
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=(start, end))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1)
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            values = random.standard_normal(shape, dtype=np.float32) * np.float32(0.05)
            file.write(values.astype(dict(F32=np.float32, F16=np.float16)[dtype]).tobytes())


def sizes(directory):
    with open(directory / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    counts = [int(np.prod(tensor["shape"])) for tensor in header.values()]
    print(json.dumps(dict(tensors=len(counts), parameters=sum(counts), largest_f32_bytes=4 * max(counts))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, folders in dict(make=["dir"], compare=["source", "export"], large=["dir"], sizes=["dir"]).items():
        command = commands.add_parser(name)
        for folder in folders:
            command.add_argument(folder, type=Path)
    commands.choices["large"].add_argument("--dtype", choices=["F32", "F16"], default="F32")
    args = parser.parse_args()
    hf.logging.set_verbosity_error()
    match args.command:
        case "make":
            make(args.dir)
        case "compare":
            sys.exit(compare(args.source, args.export))
        case "large":
            large(args.dir, args.dtype)
        case "sizes":
            sizes(args.dir)


main()
