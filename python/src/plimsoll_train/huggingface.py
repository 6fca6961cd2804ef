"""For transformers' Trainer: asks before the first step."""
from transformers import TrainerCallback

from .answer import DoesNotFit
from .ask import fits


class FitsCallback(TrainerCallback):
    """`Trainer(…, callbacks=[FitsCallback("rtx-4090")])`: raises `DoesNotFit` before training where it would run out of
    memory; the answer is kept in `answer`."""

    def __init__(self, card=None, memory=None, steps=3):
        self.card, self.memory, self.steps, self.answer = card, memory, steps, None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, train_dataloader=None, **_):
        batch = dict(next(iter(train_dataloader)))
        precision = "bf16" if args.bf16 else "fp16" if args.fp16 else None
        bare = getattr(optimizer, "optimizer", optimizer)
        self.answer = fits(model, batch, bare, card=self.card, memory=self.memory, precision=precision, steps=self.steps,
                           accumulate=args.gradient_accumulation_steps)
        if not self.answer:
            raise DoesNotFit(self.answer)
