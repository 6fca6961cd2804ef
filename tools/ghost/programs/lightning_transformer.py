"""The transformer that PyTorch Lightning ships as a demonstration, by its Trainer, in 16-bit mixed precision."""
import sys

import torch
try:
    import pytorch_lightning as lightning
    from pytorch_lightning.demos.transformer import Transformer
except ImportError:
    import lightning.pytorch as lightning
    from lightning.pytorch.demos.transformer import Transformer


class Language(lightning.LightningModule):
    def __init__(self, vocabulary=33278):
        super().__init__()
        self.model = Transformer(vocab_size=vocabulary, ninp=512, nhead=8, nhid=2048, nlayers=6)

    def training_step(self, batch, place):
        inputs, target = batch
        loss = torch.nn.functional.nll_loss(self.model(inputs, target), target.view(-1))
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-4)


batch = int(sys.argv[1]) if len(sys.argv) > 1 else 16
texts = torch.randint(0, 33278, (400, 2, 128), generator=torch.Generator().manual_seed(1))
loader = torch.utils.data.DataLoader([(row[0], row[1]) for row in texts], batch_size=batch)
trainer = lightning.Trainer(max_steps=20, precision="16-mixed", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, gradient_clip_val=1.0, default_root_dir="/tmp/lightning-transformer")
trainer.fit(Language(), loader)
