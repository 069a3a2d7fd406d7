"""Training on several processes with PyTorch, that can be stopped at any moment and goes on where it was.

    falaj train --ranks 2 --cpu 2 --checkpoint --retries 3 --follow -- python3 ddp.py --steps 2000

Falaj starts one process for each rank and tells it what `torch.distributed` reads, so there is no `torchrun`.
What makes a stopped run end exactly as one that was never stopped:

- Everything that decides the next step is saved: weights, optimizer, and the random numbers of each rank.
- Which rows a step takes follows from its number alone, so that no loader has to be wound forward.
- A checkpoint counts when every rank has said that its part is on disk. Until then the one before counts.
- All ranks save and end at the same step: they ask each other whether anybody was told to stop.

It runs by hand as well, without Falaj: RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 ddp.py
"""

import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import falaj

ROWS, COLUMNS = 4096, 32
# Whoever was told to leave and ends with anything but 0 goes on later; 0 says that all is done.
LEFT = 75


def data():
    """Rows to learn from: the same on every rank and in every start."""
    chance = torch.Generator().manual_seed(7)
    x = torch.randn(ROWS, COLUMNS, generator=chance)
    y = x[:, :1].sin() + x[:, 1:4].sum(dim=1, keepdim=True)
    return x, y


def rows_of(step, batch, rank, world):
    """The rows that a rank takes at a step: shares of a shuffled epoch."""
    each = batch * world
    steps = ROWS // each
    shuffled = torch.randperm(ROWS, generator=torch.Generator().manual_seed(step // steps))
    first = (step % steps) * each + rank * batch
    return shuffled[first:first + batch]


def anybody(told, device):
    """Whether any rank was told to stop. All ask, so all hear the same."""
    flag = torch.tensor([int(told)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def save(step, rank, model, optimizer):
    folder = falaj.checkpoint_folder(step)
    files = [folder / f"chance-{rank}.pt"]
    torch.save(torch.get_rng_state(), files[0])
    if rank == 0:
        # The same on every rank, so one is enough.
        files.append(folder / "model.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, files[1])
    falaj.checkpoint(step, files)


def restore(rank, model, optimizer):
    """The step to go on with."""
    saved = falaj.resume()
    if saved is None:
        return 0
    state = torch.load(saved.path / "model.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(torch.load(saved.path / f"chance-{rank}.pt"))
    return saved.step


def main():
    options = argparse.ArgumentParser(description="Train a small network on all ranks of a job.")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--batch", type=int, default=64, help="rows of a step on each rank")
    options.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    options.add_argument("--pause", type=float, default=0, help="seconds to wait after a step, to have time to watch")
    asked = options.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(1000 + rank)

    x, y = (part.to(device) for part in data())
    network = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                                  torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = restore(rank, model, optimizer)
    print(f"begins at step {step} of {asked.steps}, rank {rank} of {world}", flush=True)

    falaj.stopping()  # From here on we listen.
    while step < asked.steps:
        rows = rows_of(step, asked.batch, rank, world)
        loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(asked.pause)
        falaj.report(step)
        leaving = step % 10 == 0 and step < asked.steps and anybody(falaj.stopping(), device)
        if leaving or step % asked.save_every == 0 or step == asked.steps:
            # Whoever is leaving may be ended as soon as the last rank has saved, so this is said before.
            print(f"step {step}: loss {loss.item():.6f}", flush=True)
            save(step, rank, model, optimizer)
        if leaving:
            dist.barrier()
            raise SystemExit(LEFT)

    network.eval()
    with torch.no_grad():
        final = torch.nn.functional.mse_loss(network(x), y).item()
    weights = hashlib.sha256()
    for part in network.parameters():
        weights.update(part.detach().cpu().numpy().tobytes())
    if rank == 0:
        print(f"final loss {final!r}, weights {weights.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
