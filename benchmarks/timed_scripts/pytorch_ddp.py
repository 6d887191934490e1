import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train = DataLoader(TensorDataset(torch.randn(64 * 50, 512)), batch_size=64)
valid = DataLoader(TensorDataset(torch.randn(64 * 20, 512)), batch_size=64)
periods = []
for _ in range(3):
    began = time.perf_counter()
    for (x,) in train:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        ended = time.perf_counter()
        periods.append(ended - began)
        began = ended
    with torch.no_grad():
        for (x,) in valid:
            model.module(x)
print("clock", dist.get_rank(), *periods, flush=True)
dist.destroy_process_group()
