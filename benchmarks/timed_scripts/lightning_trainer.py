import os
import time

import lightning as L
import torch
from torch import nn, utils


class Clock(L.Callback):
    ended = ()

    def on_train_batch_end(self, *_):
        self.ended += (time.perf_counter(),)


class AutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        return nn.functional.mse_loss(self.layers(x), x)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


dataset = utils.data.TensorDataset(torch.randn(64 * 300, 512))
clock = Clock()
trainer = L.Trainer(
    accelerator="cpu",
    devices=int(os.environ.get("SLURM_NTASKS_PER_NODE", 1)),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    strategy="ddp",
    max_steps=120,
    logger=False,
    enable_progress_bar=False,
    callbacks=[clock],
)
trainer.fit(AutoEncoder(), utils.data.DataLoader(dataset, batch_size=64))
periods = [b - a for a, b in zip(clock.ended, clock.ended[1:])]
print("clock", trainer.global_rank, *periods, flush=True)
