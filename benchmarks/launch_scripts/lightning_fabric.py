import os

import lightning as L
import torch

fabric = L.Fabric(
    accelerator="cpu",
    devices=int(os.environ.get("SLURM_NTASKS_PER_NODE", 1)),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    strategy="ddp",
)
fabric.launch()
print(f"world {fabric.world_size} rank {fabric.global_rank}", flush=True)
model = torch.nn.Linear(32, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
dataset = torch.utils.data.TensorDataset(torch.randn(640, 32))
dataloader = fabric.setup_dataloaders(torch.utils.data.DataLoader(dataset, batch_size=8))
model.train()
for batch in dataloader:
    optimizer.zero_grad()
    loss = model(batch[0]).sum()
    fabric.backward(loss)
    optimizer.step()
