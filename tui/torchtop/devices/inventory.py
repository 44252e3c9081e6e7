"""Run as a program: asks the driver for the GPUs, and prints the answer as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from torchtop.devices.nvml import Nvml


def main() -> None:
    """Print the inventory on standard output."""
    nvml = Nvml()
    print(json.dumps(asdict(nvml.inventory)), flush=True)
    nvml.close()


if __name__ == "__main__":
    main()
