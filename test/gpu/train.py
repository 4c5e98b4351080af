"""Steps of PyTorch in rounds: a launch-bound one and a transformer's. A line on stdin starts a round of N steps each; a line
of JSON with the times of all steps answers. The loader has worker processes, and its tensors are not pinned."""

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((256,), index % 97, dtype=torch.int64)


class Small(nn.Module):
    """Many small kernels: the processor is the limit."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(60))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.sum()


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 6)
        self.head = nn.Linear(512, 100)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x))).float().mean()


def load_batch(loader):
    return next(loader).cuda()


def launch_step(model, optimizer):
    x = torch.ones(32, 64).cuda()
    optimizer.zero_grad()
    loss = model(x)
    loss.backward()
    optimizer.step()
    return loss.item()


def transformer_step(model, optimizer, loader):
    batch = load_batch(loader)
    optimizer.zero_grad()
    loss = model(batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def timed(call, n):
    took = []
    for _ in range(n):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        took.append((time.perf_counter() - start) * 1e3)
    return took


def main():
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    small, large = Small().cuda(), Transformer().cuda()
    small_optimizer = torch.optim.SGD(small.parameters(), lr=1e-3)
    large_optimizer = torch.optim.AdamW(large.parameters(), lr=1e-4)
    loader = iter(DataLoader(Batches(), batch_size=64, num_workers=2))
    launch = lambda: launch_step(small, small_optimizer)
    transformer = lambda: transformer_step(large, large_optimizer, loader)
    timed(launch, 20), timed(transformer, 20)
    print(json.dumps({"ready": True, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        n = int(line)
        print(json.dumps({
            "launch_ms": timed(launch, n),
            "transformer_ms": timed(transformer, n),
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
        }), flush=True)


main()
