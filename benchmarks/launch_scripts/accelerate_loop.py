import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
print(f"world {accelerator.num_processes} rank {accelerator.process_index}", flush=True)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters())
dataset = TensorDataset(torch.randn(320, 8), torch.randint(2, (320,)))
model, optimizer, training_dataloader = accelerator.prepare(
    model, optimizer, DataLoader(dataset, batch_size=8, shuffle=True)
)
for inputs, targets in training_dataloader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
accelerator.end_training()
