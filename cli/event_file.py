"""TensorBoard events in a file, as TensorBoard itself writes them."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.record_writer import masked_crc32c

from cli.files import write_all


class Histogram(NamedTuple):
    """How many numbers lie between each two edges, and what is known of all of them."""

    counts: np.ndarray
    """int [bins], at least one of them not 0."""
    edges: np.ndarray
    """float64 [bins + 1]."""
    sum: float
    low: float
    high: float


class EventFile:
    """A new file of scalars in a folder; every event is in it when `write` returns.

    tensorboardX's own writer has a thread and a queue: when the disk is full the thread dies with a
    traceback, and the run waits for ever once the queue is full.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        """purge_step: TensorBoard drops events of older files from this step on."""
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("ab", buffering=0)
        self._add(file_version="brain.Event:2")
        if purge_step is not None:
            self._add(step=purge_step, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add `values`, by tag, at `step` agent steps."""
        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._add(step=step, summary=Summary(value=scalars))

    def histograms(self, step: int, values: Mapping[str, Histogram]) -> None:
        """Add histograms, by tag, at `step` agent steps."""
        for tag, value in values.items():
            used = np.flatnonzero(value.counts)
            kept = slice(int(used[0]), int(used[-1]) + 1)
            proto = HistogramProto(
                min=value.low,
                max=value.high,
                num=float(value.counts.sum()),
                sum=value.sum,
                bucket_limit=value.edges[1:][kept].tolist(),
                bucket=value.counts[kept].tolist(),
            )
            self._add(step=step, summary=Summary(value=[Summary.Value(tag=tag, histo=proto)]))

    def text(self, tag: str, text: str) -> None:
        """Add `text`, Markdown."""
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        value = Summary.Value(
            tag=f"{tag}/text_summary",
            metadata=SummaryMetadata(plugin_data=plugin),
            tensor=TensorProto(dtype="DT_STRING", string_val=[text.encode()]),
        )
        self._add(summary=Summary(value=[value]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, **fields: object) -> None:
        data = Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        write_all(self._file, b"".join((length, checksums[0], data, checksums[1])))
