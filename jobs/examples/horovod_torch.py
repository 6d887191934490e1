"""Horovod: PyTorch, its gradients averaged by hvd.DistributedOptimizer.

Run it: sbtrain -N 2 horovod_torch.py
"""

import horovod.torch as hvd
import torch
from digits_batches import CLASSES, PIXELS, RATE, Digits, options, tell


def main() -> None:
    asked = options(__doc__)
    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    model = torch.nn.Linear(PIXELS, CLASSES)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE), named_parameters=model.named_parameters()
    )
    checkpoint, done = asked.checkpoints / "model.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        done = state["step"]
        print(f"rank {hvd.rank()} resumes after step {done}", flush=True)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    digits = Digits(hvd.rank(), hvd.size())
    for step in range(done + 1, asked.steps + 1):
        images, labels = (torch.from_numpy(part) for part in digits.batch(step))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        mean = hvd.allreduce(loss.detach(), name="loss")
        if hvd.rank() == 0:
            tell(step, mean.item(), asked)
            if step % 10 == 0:
                unfinished = checkpoint.with_suffix(".new")
                torch.save({"model": model.state_dict(), "step": step}, unfinished)
                unfinished.replace(checkpoint)


if __name__ == "__main__":
    main()
