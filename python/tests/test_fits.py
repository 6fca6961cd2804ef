"""The module against the command that it asks (the one beside this Python, or the one that PLIMSOLL names)."""
import pickle

import pytest
import torch

import small
from plimsoll_train import DoesNotFit, PlimsollError, fits
from plimsoll_train.parcel import pack, unpack


def test_a_training_that_fits_says_so_with_its_bytes():
    model, batch, optimizer = small.training()
    answer = fits(model, batch, optimizer, card="rtx-4090", loss=small.squares)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    assert answer and answer.fits and answer.message is None
    # Weights, gradients and two moments at least.
    assert 4 * weights < answer.peak_allocated_bytes <= answer.peak_reserved_bytes < 2**30
    assert "fits rtx-4090" in str(answer)
    assert not any(weight.is_cuda for weight in model.parameters()), "the asker's own model stays where it was"


def test_one_that_does_not_says_so_in_pytorchs_words():
    answer = fits(*small.training(rows=1 << 17), memory="4GiB", loss=small.squares)
    assert not answer and "CUDA out of memory" in answer.message and answer.peak_reserved_bytes > 4 << 30


def test_the_assertion_fails_with_the_whole_answer(assert_fits):
    assert_fits("t4", *small.training())
    with pytest.raises(AssertionError, match="does not fit"):
        assert_fits(None, *small.training(rows=1 << 17), memory="4GiB")


def test_precision_and_accumulation_are_those_of_the_training():
    plain = fits(*small.training(rows=8192), card="h200", loss=small.squares)
    half = fits(*small.training(rows=8192), card="h200", loss=small.squares, precision="bf16", accumulate=2)
    assert half.peak_allocated_bytes != plain.peak_allocated_bytes


def test_what_cannot_be_asked_is_refused_with_a_reason():
    model, batch, optimizer = small.training()
    with pytest.raises(ValueError, match="name a card"):
        fits(model, batch, optimizer)
    with pytest.raises(ValueError, match="precision is one of"):
        fits(model, batch, optimizer, card="t4", precision="int3")
    with pytest.raises(PlimsollError, match="sent to another process"):
        fits(model, batch, optimizer, card="t4", loss=lambda output, batch: output.sum())
    with pytest.raises(PlimsollError, match="rtx-40900"):
        fits(model, batch, optimizer, card="rtx-40900")


def test_tensors_travel_as_shapes_and_stay_the_same_ones():
    model, batch, optimizer = small.training()
    model.head.weight = torch.nn.Parameter(model.head.weight.detach())
    shared = dict(model=model, again=model.head.weight, optimizer=optimizer, batch=batch.to(torch.float16))
    parcel = pack(shared)
    assert len(parcel) < 100_000, "no bytes of weights travel"
    found = unpack(parcel, "cpu")
    assert found["again"] is found["model"].head.weight and isinstance(found["again"], torch.nn.Parameter)
    assert found["batch"].dtype == torch.float16 and found["batch"].shape == batch.shape
    first = found["optimizer"].param_groups[0]["params"][0]
    assert first is next(iter(found["model"].parameters()))
    pickle.loads(pickle.dumps(parcel))


def test_transformers_trainer_is_stopped_before_its_first_step(tmp_path):
    transformers = pytest.importorskip("transformers")
    from plimsoll_train.huggingface import FitsCallback

    config = transformers.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256)
    rows = [dict(input_ids=torch.ones(64, dtype=torch.int64), labels=0) for _ in range(32)]
    arguments = transformers.TrainingArguments(str(tmp_path), per_device_train_batch_size=16, max_steps=2, report_to=[],
                                               save_strategy="no", disable_tqdm=True, use_cpu=True)
    callback = FitsCallback(memory="900MiB")
    model = transformers.BertForSequenceClassification(config)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[callback])
    with pytest.raises(DoesNotFit):
        trainer.train()
    assert trainer.state.global_step == 0
    roomy = FitsCallback(card="t4")
    transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[roomy]).train()
    assert roomy.answer


def test_lightning_is_stopped_before_its_first_step(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")
    import module_for_lightning
    from plimsoll_train.lightning import FitsCallback

    loader = torch.utils.data.DataLoader(torch.zeros(64, 2048), batch_size=16)
    settings = dict(max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    default_root_dir=str(tmp_path))
    trainer = lightning.Trainer(callbacks=[FitsCallback(memory="900MiB")], **settings)
    with pytest.raises(DoesNotFit):
        trainer.fit(module_for_lightning.Module(), loader)
    assert trainer.global_step == 0
    roomy = FitsCallback(card="t4")
    lightning.Trainer(callbacks=[roomy], **settings).fit(module_for_lightning.Module(), loader)
    assert roomy.answer
