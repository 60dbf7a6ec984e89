"""After Lightning in 15 minutes: an autoencoder, fitted on four CPU ranks."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(0)
    model = LitAutoEncoder(nn.Linear(28, 3), nn.Linear(3, 28))
    loader = DataLoader(TensorDataset(torch.randn(64, 28)), batch_size=4)
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", devices=4, strategy="ddp", enable_progress_bar=False, logger=False)
    trainer.fit(model, loader, loader)


main()
