"""For Lightning's Trainer: asks before the first step."""
try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .answer import DoesNotFit
from .ask import fits


def first(output, batch):
    """What a training step gives: the loss, or a mapping with one."""
    return output["loss"] if isinstance(output, dict) else output


class Step:
    """A module whose call is its training step."""

    def __init__(self, module):
        self.module = module

    def train(self):
        self.module.train()
        return self

    def __call__(self, batch):
        return self.module.training_step(batch, 0)




class FitsCallback(Callback):
    """`Trainer(callbacks=[FitsCallback("rtx-4090")])`: raises `DoesNotFit` before the first step where the training would
    run out of memory; the answer is kept in `answer`."""

    def __init__(self, card=None, memory=None, steps=3):
        self.card, self.memory, self.steps, self.answer = card, memory, steps, None

    def on_train_start(self, trainer, module):
        batch = next(iter(trainer.train_dataloader))
        precision = {"16-mixed": "fp16", "bf16-mixed": "bf16"}.get(str(trainer.precision))
        optimizer = getattr(trainer.optimizers[0], "_optimizer", trainer.optimizers[0])
        attached, module._trainer = module._trainer, None
        try:
            self.answer = fits(Step(module), [batch], optimizer, card=self.card, memory=self.memory, loss=first,
                               precision=precision, steps=self.steps, accumulate=trainer.accumulate_grad_batches)
        finally:
            module._trainer = attached
        if not self.answer:
            raise DoesNotFit(self.answer)
