import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
optimizer = torch.optim.AdamW(model.parameters())
dataset = TensorDataset(torch.randn(32 * 2 * 2 * 120, 512))
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(dataset, batch_size=32, shuffle=True)
)
ended = []
for (x,) in loader:
    with accelerator.accumulate(model):
        accelerator.backward(torch.nn.functional.mse_loss(model(x), x))
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        ended.append(time.perf_counter())
periods = [b - a for a, b in zip(ended, ended[1:])]
print("clock", accelerator.process_index, *periods, flush=True)
accelerator.end_training()
