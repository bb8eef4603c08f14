"""Choosing the device and precision of inference, and pinning memory for transfers to a GPU."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import torch

from sampler.errors import ConfigError
from sampler.process.resources import cpu_has_bfloat16

logger = logging.getLogger("fastrl")


def choose_device(name: str) -> torch.device:
    """The device for "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:N".

    Raises ConfigError for one that does not exist.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise ConfigError(f"device={name!r} is not auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={name!r} is not there ({torch.cuda.device_count()} CUDA devices found); "
            "use auto or cpu"
        )
    return device


def has_native_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32: on recent GPUs, and CPUs with AVX512-BF16, AMX or
    Arm BF16."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and cpu_has_bfloat16()


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The dtype for "float32" or "bfloat16"; "auto" is bfloat16 where the device has it."""
    if name == "auto":
        return torch.bfloat16 if has_native_bfloat16(device) else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def pin(array: np.ndarray) -> None:
    """Register an array's memory with CUDA, so that transfers from it need no staging copy."""
    if array.nbytes == 0:
        return
    code = torch.cuda.cudart().cudaHostRegister(array.ctypes.data, array.nbytes, 0)
    if int(code) != 0:
        logger.warning("CUDA did not pin %d bytes (error %s)", array.nbytes, code)


def pin_arena(memory: Any) -> None:
    """Pin all shared memory of a sampler in this process; `memory`: the arena's buffer."""
    pin(np.frombuffer(memory, np.uint8))
