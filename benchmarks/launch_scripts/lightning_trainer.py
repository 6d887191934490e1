import os

import lightning as L
import torch
from torch import nn, utils


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 64))

    def on_fit_start(self):
        print(f"world {self.trainer.world_size} rank {self.global_rank}", flush=True)

    def training_step(self, batch, batch_idx):
        (x,) = batch
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


dataset = utils.data.TensorDataset(torch.randn(1024, 64))
train_loader = utils.data.DataLoader(dataset, batch_size=8)
trainer = L.Trainer(
    accelerator="cpu",
    devices=int(os.environ.get("SLURM_NTASKS_PER_NODE", 1)),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    strategy="ddp",
    max_steps=20,
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(model=LitAutoEncoder(), train_dataloaders=train_loader)
