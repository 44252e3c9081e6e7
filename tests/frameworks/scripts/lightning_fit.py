"""A LightningModule and a Trainer, with validation and checkpoints."""

import argparse
import hashlib
import logging
import tempfile
import time
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from timing import Timing
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Rows of numbers with a class each."""

    def __init__(self, count, width, seed):
        made = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, width, generator=made)
        self.y = torch.randint(0, 10, (count,), generator=made)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class EvalRows(Rows):
    """The same to validate with."""


class Classifier(lightning.LightningModule):
    """A multi-layer perceptron."""

    def __init__(self, width, layers):
        super().__init__()
        body = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
        self.net = nn.Sequential(*body, nn.Linear(width, 10))

    def training_step(self, batch, number):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Watch(Callback):
    """Times the steps; a validation that takes long, when asked."""

    def __init__(self, samples, accumulate, sleep_s):
        self.timing, self.samples = Timing(), samples
        self.accumulate, self.sleep_s = accumulate, sleep_s

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if (number + 1) % self.accumulate == 0:
            self.timing.step(self.samples)

    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            time.sleep(self.sleep_s)
            print({name: f"{value:.9g}" for name, value in trainer.callback_metrics.items()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=16, help="of each rank and epoch")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sleep", type=float, default=0.0)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    lightning.seed_everything(7)
    world = args.devices
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(args.batch * args.accumulate * world, args.accumulate, args.sleep)
        trainer = lightning.Trainer(
            accelerator="cpu" if args.device == "cpu" else "gpu",
            devices=world,
            strategy="ddp" if world > 1 else "auto",
            max_epochs=args.epochs,
            accumulate_grad_batches=args.accumulate,
            precision="32-true" if args.device == "cpu" else "bf16-mixed",
            default_root_dir=folder,
            callbacks=[watch, ModelCheckpoint(folder, save_top_k=-1)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = Classifier(args.width, args.layers)
        data = Rows(args.batches * args.batch * world, args.width, seed=1)
        check = EvalRows(2 * args.batch * world, args.width, seed=2)
        loaders = {"batch_size": args.batch, "num_workers": args.workers}
        trainer.fit(model, DataLoader(data, shuffle=True, **loaders), DataLoader(check, **loaders))
        watch.timing.tell()
    flat = torch.cat([tensor.flatten().float().cpu() for tensor in model.state_dict().values()])
    print("weights", hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
