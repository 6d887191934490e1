"""PyTorch: DistributedDataParallel, started from the environment (env://).

Run it: sbtrain -N 2 pytorch_ddp.py
"""

import os

import torch
import torch.distributed as dist
from digits_batches import CLASSES, PIXELS, RATE, Digits, options, tell
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    asked = options(__doc__)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = torch.nn.Linear(PIXELS, CLASSES).to(device)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)
    checkpoint, done = asked.checkpoints / "model.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        done = state["step"]
        print(f"rank {rank} resumes after step {done}", flush=True)

    digits = Digits(rank, world)
    for step in range(done + 1, asked.steps + 1):
        images, labels = (torch.from_numpy(part).to(device) for part in digits.batch(step))
        loss = torch.nn.functional.cross_entropy(parallel(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if rank == 0:
            tell(step, mean.item(), asked)
            if step % 10 == 0:
                unfinished = checkpoint.with_suffix(".new")
                torch.save({"model": model.state_dict(), "step": step}, unfinished)
                unfinished.replace(checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
