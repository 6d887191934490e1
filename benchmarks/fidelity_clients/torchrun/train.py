import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("rank", dist.get_rank(), "sum", int(ones), flush=True)
