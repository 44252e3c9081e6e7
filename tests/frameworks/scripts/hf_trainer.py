"""A small language model, trained by transformers' Trainer on random tokens."""

import argparse
import hashlib
import tempfile
import time

import torch
from timing import Timing
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class RandomTokens(Dataset):
    """Sequences of tokens; each is its own label."""

    def __init__(self, count, length, vocabulary, seed):
        made = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, vocabulary, (count, length), generator=made)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class EvalTokens(RandomTokens):
    """The same to evaluate with."""


class Watch(TrainerCallback):
    """Times the steps; a logger and a checkpoint that take long, when asked."""

    def __init__(self, timing, samples, sleep_s):
        self.timing, self.samples, self.sleep_s = timing, samples, sleep_s

    def on_step_end(self, args, state, control, **kwargs):
        self.timing.step(self.samples)

    def on_log(self, args, state, control, **kwargs):
        time.sleep(self.sleep_s)

    def on_save(self, args, state, control, **kwargs):
        time.sleep(self.sleep_s)

    def on_evaluate(self, args, state, control, **kwargs):
        time.sleep(self.sleep_s)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=8, help="evaluate, save and log so often")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sleep", type=float, default=0.0)
    return parser.parse_args()


def main():
    args = arguments()
    set_seed(7)
    config = GPT2Config(
        vocab_size=128,
        n_positions=args.length,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=max(2, args.width // 64),
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            per_device_eval_batch_size=args.batch,
            gradient_accumulation_steps=args.accumulate,
            dataloader_num_workers=args.workers,
            eval_strategy="steps",
            eval_steps=args.every,
            save_steps=args.every,
            logging_steps=args.every,
            use_cpu=args.device == "cpu",
            bf16=args.device == "cuda",
            ddp_backend="gloo" if args.device == "cpu" else "nccl",
            disable_tqdm=True,
            report_to=[],
        )
        timing = Timing()
        each = args.batch * args.accumulate * settings.world_size
        trainer = Trainer(
            model=model,
            args=settings,
            train_dataset=RandomTokens(40 * each, args.length, 128, seed=1),
            eval_dataset=EvalTokens(8 * args.batch, args.length, 128, seed=2),
            callbacks=[Watch(timing, each, args.sleep)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        timing.tell()
    for entry in trainer.state.log_history:
        print({k: v for k, v in entry.items() if "loss" in k or k in ("step", "grad_norm")})
    state = model.state_dict()
    flat = torch.cat([tensor.flatten().float().cpu() for tensor in state.values()])
    print("weights", hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
