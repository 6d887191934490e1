import lightning
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(16, 4)), batch_size=4)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    num_nodes=2,
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_progress_bar=False,
    enable_checkpointing=False,
    plugins=[SLURMEnvironment(auto_requeue=False)],
)
trainer.fit(Model())
print("rank", trainer.global_rank, "of", trainer.world_size, "at", trainer.global_step)
