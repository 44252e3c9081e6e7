"""Small networks whose cost is easy to reason about."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_stack(channels: int, depth: int, classes: int = 10) -> nn.Module:
    """Convolutions of one width at full resolution: much compute, few weights, few kernels.

    Args:
        channels: width of each convolution.
        depth: number of convolutions.
        classes: outputs.

    Returns:
        A network for images (batch, 3, height, width) of any size. Its batch norms keep no running
        statistics, so DDP has no buffers to send around in each forward.
    """
    layers: list[nn.Module] = []
    for index in range(depth):
        layers += [
            nn.Conv2d(channels if index else 3, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels, track_running_stats=False),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def perceptron(width: int, depth: int, classes: int = 10, shared: bool = False) -> nn.Module:
    """Square linear layers: each weight is used once for a sample, but sent in full in each step.

    Args:
        width: inputs of the network and of each layer.
        depth: number of square layers, of width x width weights each.
        classes: outputs.
        shared: all square layers have the same weights.
    """
    layers: list[nn.Module] = []
    for _ in range(depth):
        layer = layers[0] if shared and layers else nn.Linear(width, width)
        layers += [layer, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


class TinyOps(nn.Module):
    """A chain of pointwise operations, each a kernel of its own that is quickly done.

    Args:
        count: number of operations.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def forward(self, values: Tensor) -> Tensor:
        """The values after as many sines."""
        for _ in range(self._count):
            values = torch.sin(values)
        return values


def fronted_perceptron(
    features: int,
    ops: int,
    width: int,
    depth: int,
    batch_norm: bool = False,
    shared: bool = False,
) -> nn.Module:
    """A perceptron behind a chain of tiny operations.

    The chain needs the host more than the GPU, the layers the GPU more than the host. As the chain
    comes first, a host that is not ahead of the GPU at the start of a step delays everything.

    Args:
        features: inputs of the network.
        ops: number of tiny operations; 0 leaves them out.
        width: of the layers.
        depth: number of layers of width x width weights each.
        batch_norm: normalise the first layer's outputs, with running statistics.
        shared: the layers have the same weights.
    """
    front: list[nn.Module] = [nn.Linear(features, features), TinyOps(ops)] if ops else []
    front += [nn.Linear(features, width), nn.ReLU(inplace=True)]
    if batch_norm:
        front.append(nn.BatchNorm1d(width))
    return nn.Sequential(*front, perceptron(width, depth, shared=shared))


def small_cnn(classes: int = 10) -> nn.Module:
    """Three strided convolutions for 32 x 32 images: a fraction of a millisecond an image."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )
