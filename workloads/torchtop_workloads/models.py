"""Small networks whose cost is easy to reason about."""

from __future__ import annotations

from torch import nn


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


def perceptron(width: int, depth: int, classes: int = 10) -> nn.Module:
    """Square linear layers: each weight is used once for a sample, but sent in full in each step.

    Args:
        width: inputs of the network and of each layer.
        depth: number of square layers, of width x width weights each.
        classes: outputs.
    """
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


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
