"""A compiled transformer in a plain loop, on one device or under DistributedDataParallel."""

import argparse
import hashlib
import os

import torch
import torch.distributed as dist
from timing import Timing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Tokens(Dataset):
    """Random sequences of tokens."""

    def __init__(self, count, length, vocabulary=128):
        made = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, vocabulary, (count, length + 1), generator=made)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


class Decoder(nn.Module):
    """Predicts the next token."""

    def __init__(self, width, layers, length, vocabulary=128):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(
            width, max(2, width // 64), 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("order", torch.arange(length))
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(self.order)
        return self.head(self.layers(x, mask=self.mask, is_causal=True))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=8, help="of each rank and epoch")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    return parser.parse_args()


def main():
    args = arguments()
    cuda = args.device == "cuda"
    world, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(7)
    model = Decoder(args.width, args.layers, args.length).to(device)
    inner = model
    data = Tokens(args.batches * args.batch * world, args.length)
    sampler = None
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
        model = DistributedDataParallel(model, device_ids=[local] if cuda else None)
        sampler = DistributedSampler(data)
    model = torch.compile(model, backend=args.backend)
    loader = DataLoader(
        data,
        args.batch,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=args.workers,
        pin_memory=cuda,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    timing = Timing(warm_up=20)
    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for rows in loader:
            tokens = rows.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(args.device, torch.bfloat16, enabled=cuda):
                logits = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            timing.step(args.batch * world)
        print(f"epoch {epoch} loss {loss.item():.9g}")
    timing.tell()
    flat = torch.cat([tensor.flatten().float().cpu() for tensor in inner.state_dict().values()])
    print("weights", hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16])
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
