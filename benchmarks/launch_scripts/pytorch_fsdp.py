import torch
from torch import nn
from torch.distributed import (
    destroy_process_group,
    get_rank,
    get_world_size,
    init_process_group,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    init_process_group(backend="gloo")
    print(f"world {get_world_size()} rank {get_rank()}", flush=True)
    mesh = init_device_mesh("cpu", (get_world_size(),))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        loss = model(torch.randn(8, 16)).sum()
        loss.backward()
        optim.step()
        optim.zero_grad()
    destroy_process_group()


if __name__ == "__main__":
    main()
