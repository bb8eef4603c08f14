"""How the processes of a sampler are started."""

from __future__ import annotations

from typing import Any

from sampler.process.launch import context

PRELOADED = ("sampler.runtime.local_worker",)  # it imports the modules of both kinds of worker


def worker_processes(method: str) -> Any:
    """The multiprocessing context for processes without torch; a fork server loads the workers'
    modules only once."""
    return context(method, PRELOADED)


def inference_processes() -> Any:
    """The multiprocessing context for processes that import torch, which start clean because CUDA
    needs that."""
    return context("spawn")
