"""The catalog of built-in workloads and their options, for programs and for people.

Standard library only: a launcher reads it without loading torch. The scripts build their command
lines from the same table, so every option is declared once.
"""

from __future__ import annotations

from torchtop_workloads.options import Option, Value
from torchtop_workloads.workload import Workload

__all__ = ["FAULT_PREFIX", "WORKLOADS", "Option", "Value", "Workload", "find"]

FAULT_PREFIX = "fault:"
"""What the names of workloads with a known fault begin with; they are not in the catalog."""


def find(name: str) -> Workload:
    """The workload of that name: of the catalog, or of `faults`.

    Raises:
        KeyError: there is none.
    """
    if name.startswith(FAULT_PREFIX):
        from torchtop_workloads import faults

        return faults.workload(name[len(FAULT_PREFIX) :])
    return {workload.name: workload for workload in WORKLOADS}[name]


def _batch(
    default: int, cpu_default: int | None = None, *, per_rank: bool = True
) -> tuple[Option, ...]:
    together = "samples in a step over all GPUs (or ranks) together"
    return (
        Option("batch", "int", default, together, (), 1, cpu_default, per_rank),
        Option("batch_per_gpu", "int", None, "the same for each GPU, instead of batch", minimum=1),
    )


def _loading(workers: int, *files: Option) -> tuple[Option, ...]:
    """How batches are loaded; with `files`, options of a data set on disk, from there."""
    choices = ("files", "memory") if files else ("memory",)
    many = "loader processes for each rank; data=memory: 0"
    made = "read files, or make the batches once in memory" if files else "made once in memory"
    return (
        Option("workers", "int", workers, many, minimum=0),
        Option("pin_memory", "bool", True, "page-locked host memory for batches (GPU only)"),
        Option("data", "str", choices[0], made, choices),
        *files,
    )


def _files(what: str, size: int, cpu_size: int | None = None) -> tuple[Option, ...]:
    where = f"folder with {what} (default: torchtop's cache); made up where they are absent"
    many = "images to make up where the real files are absent"
    return (
        Option("data_dir", "str", None, where),
        Option("synthetic_size", "int", size, many, (), 10, cpu_size),
    )


_CIFAR = _files("cifar-10-batches-py", 50000)


def _model(*, amp: bool = False, channels_last: bool | None = False) -> tuple[Option, ...]:
    layout = () if channels_last is None else (_channels_last(channels_last),)
    how = "ddp: a process for each GPU; dp: DataParallel, one process for all; single: one GPU"
    return (
        Option("compile", "bool", False, "run the model through torch.compile"),
        Option("amp", "bool", amp, "compute in bfloat16 (autocast)", cpu_default=_off(amp)),
        *layout,
        Option("parallel", "str", "ddp", how, ("ddp", "dp", "single")),
    )


def _channels_last(default: bool) -> Option:
    text = "keep images and convolutions in channels-last memory layout"
    return Option("channels_last", "bool", default, text, cpu_default=_off(default))


def _off(default: bool) -> bool | None:
    """The settings that speed up a GPU's tensor cores are off on a CPU."""
    return False if default else None


def _run(lr: float = 0.01) -> tuple[Option, ...]:
    scaled = "multiply lr by batch / 256, as the linear scaling rule has it"
    return (
        Option("steps", "int", None, "optimizer steps, over as many epochs as it takes", minimum=1),
        Option("seconds", "float", None, "or about so many seconds after warmup", minimum=0.1),
        Option("warmup", "int", 20, "steps before seconds begin to count", minimum=2),
        Option("epochs", "int", 90, "passes over the data, where neither is given", minimum=1),
        Option("seed", "int", 0, "seed of the weights, the data and their order", minimum=0),
        Option("lr", "float", lr, "learning rate", minimum=0),
        Option("scale_lr", "bool", False, scaled),
    )


def _transformer(layers: int, seq_len: int, cpu_seq_len: int, vocab: int) -> tuple[Option, ...]:
    return (
        Option("layers", "int", layers, "number of layers", (), 1, 2),
        Option("width", "int", 768, "width of the layers; a multiple of heads", (), 1, 128),
        Option("heads", "int", 12, "attention heads", (), 1, 4),
        Option("seq_len", "int", seq_len, "tokens in a sequence", (), 2, cpu_seq_len),
        Option("vocab", "int", vocab, "different tokens", (), 16, 1000),
    )


def _conv_stack(depth: int, cpu_depth: int) -> tuple[Option, ...]:
    return (
        Option("channels", "int", 512, "width of the convolutions", (), 1, 64),
        Option("depth", "int", depth, "number of convolutions", (), 1, cpu_depth),
        Option("image_size", "int", 56, "height and width of the images, pixels", (), 8, 32),
    )


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "resnet50-cifar10",
        "torchtop_workloads.resnet50_cifar10",
        "ResNet-50 on CIFAR-10 files, the textbook DDP script",
        "what an ordinary script spends its time on: small images seldom fill a large GPU",
        (*_batch(256, per_rank=False), *_loading(4, *_CIFAR), *_model(), *_run()),
    ),
    Workload(
        "compute-heavy",
        "torchtop_workloads.compute_heavy",
        "a stack of wide convolutions on batches that are on the GPU already",
        "healthy: the GPU computes nearly all the time and is the limit",
        (
            *_batch(64, 16),
            *_loading(0),
            *_model(amp=True, channels_last=True),
            *_run(),
            *_conv_stack(12, 4),
        ),
    ),
    Workload(
        "slow-loader",
        "torchtop_workloads.slow_loader",
        "a small network on CIFAR-10 files that are slow to read",
        "data stall: the GPU waits because the loader workers cannot keep up",
        (
            *_batch(128),
            *_loading(4, *_CIFAR),
            *_model(),
            *_run(),
            Option("item_ms", "float", 2.0, "extra time to read one image, ms", minimum=0),
        ),
    ),
    Workload(
        "comm-heavy",
        "torchtop_workloads.comm_heavy",
        "a wide perceptron with large gradients and a small batch",
        "exposed communication: the all-reduce takes longer than the backward that could hide it",
        (
            *_batch(32, 4),
            *_loading(0),
            *_model(channels_last=None),
            *_run(),
            Option("width", "int", 8192, "width of the layers", (), 1, 1536),
            Option("depth", "int", 8, "number of layers", minimum=1),
            Option("bucket_mb", "int", 25, "size of DDP's gradient buckets, MiB", (), 1, 1024),
        ),
    ),
    Workload(
        "straggler",
        "torchtop_workloads.straggler",
        "a stack of convolutions in which one rank is slower than the others",
        "straggler wait: every rank waits in the all-reduce for the slowest",
        (
            *_batch(64, 8),
            *_loading(0),
            *_model(amp=True, channels_last=True),
            *_run(),
            *_conv_stack(6, 2),
            Option("slow_rank", "int", 1, "the slow rank; the last one if out of range", minimum=0),
            Option("delay_ms", "float", 30.0, "how much slower it is in each step, ms", minimum=0),
            Option(
                "slow_phase",
                "str",
                "optimizer",
                "where it is slow: optimizer, data, host (pauses), forward, backward (more work)",
                ("optimizer", "data", "forward", "backward", "host"),
            ),
        ),
    ),
    Workload(
        "tiny-kernels",
        "torchtop_workloads.tiny_kernels",
        "a deep stack of small layers, each a few microseconds of work for a GPU",
        "launch-bound: the host cannot issue kernels as fast as the GPU executes them",
        (
            *_batch(128, 32),
            *_loading(0),
            *_model(channels_last=None),
            *_run(),
            Option("width", "int", 128, "width of the layers", (), 1, 64),
            Option("depth", "int", 150, "number of layers", (), 1, 100),
        ),
    ),
    Workload(
        "sync-every-step",
        "torchtop_workloads.sync_every_step",
        "a perceptron behind many small operations, whose loss is read in every step",
        "hidden synchronisation: reading a result makes the host lose its lead over the GPU",
        (
            *_batch(12288, 1024),
            *_loading(0),
            *_model(amp=True, channels_last=None),
            *_run(),
            Option("features", "int", 32, "numbers in a row", minimum=1),
            Option("ops", "int", 300, "small operations before the layers", (), 0, 100),
            Option("width", "int", 4096, "width of the layers", (), 1, 256),
            Option("depth", "int", 4, "number of layers", minimum=1),
            Option("read_every", "int", 1, "steps between two readings of the loss", minimum=1),
        ),
    ),
    Workload(
        "resnet50-imagenet",
        "torchtop_workloads.resnet50_imagenet",
        "ResNet-50 on ImageNet-sized JPEG files, 224 x 224 pixels",
        "what decoding costs: a large GPU eats JPEG files faster than many cores decode them",
        (
            *_batch(64, 4),
            *_loading(8, *_files("train/CLASS/*.jpg", 2000, 200)),
            *_model(),
            *_run(),
            Option("image_size", "int", 224, "height and width after cropping", (), 32, 64),
        ),
        keyed=False,
    ),
    Workload(
        "bert-base",
        "torchtop_workloads.bert_base",
        "a BERT-base-sized encoder that classifies sequences; needs torch alone",
        "what compile and amp give: many pointwise kernels between large matrix products",
        (
            *_batch(32, 4),
            *_loading(0),
            *_model(channels_last=None),
            *_run(5e-5),
            *_transformer(12, 128, 32, 30522),
        ),
        keyed=False,
    ),
    Workload(
        "gpt2-small",
        "torchtop_workloads.gpt2_small",
        "a GPT-2-small-sized language model, in tokens a second; needs torch alone",
        "how attention, a large vocabulary and the optimizer share a step",
        (
            *_batch(8, 4),
            *_loading(0),
            *_model(channels_last=None),
            *_run(3e-4),
            *_transformer(12, 1024, 32, 50257),
        ),
        keyed=False,
    ),
)
"""The built-in workloads: first those that the keys 1, 2, ... of the viewer start, in order."""
