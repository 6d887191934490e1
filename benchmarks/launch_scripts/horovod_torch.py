import horovod.torch as hvd
import torch
import torch.nn.functional as F

hvd.init()
print(f"world {hvd.size()} rank {hvd.rank()} local {hvd.local_rank()}", flush=True)
torch.manual_seed(42)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(20):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,)))
    loss.backward()
    optimizer.step()
