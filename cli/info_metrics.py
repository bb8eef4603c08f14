"""Metrics from what environments report in their infos, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cli.event_file import Histogram
from sampler.shm.info_figures import EDGES, quantiles

SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
"""What a column of metrics.csv says of a histogram: a share of the numbers lies below it."""


class InfoMetrics:
    """The figures of `info_keys` since the row before.

    key:mean becomes the tag infos/key, key:last becomes infos/key_last, and key:histogram becomes
    infos/key_p10, _p50 and _p90, and a histogram infos/key.
    """

    def __init__(self, stats: Mapping[str, Any]) -> None:
        """stats: `Sampler.stats()` at the first row's beginning."""
        self._before = stats["infos"]
        self._said: set[str] = set()

    def take(self, stats: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Histogram]]:
        """Numbers and histograms by tag, of everything since the last call."""
        metrics: dict[str, float] = {}
        histograms: dict[str, Histogram] = {}
        for name, now in stats["infos"].items():
            before, (key, _, statistic) = self._before[name], name.rpartition(":")
            count, total = now["count"] - before["count"], now["sum"] - before["sum"]
            tag = f"infos/{key}"
            if not count:
                continue
            if statistic != "histogram":
                metrics[tag if statistic == "mean" else f"{tag}_last"] = total / count
                continue
            bins = now["histogram"] - before["histogram"]
            if not bins.any():
                continue
            bounds = now["low"], now["high"]
            found = quantiles(bins, *bounds, list(SHARES.values()))
            metrics |= {f"{tag}_{p}": value for p, value in zip(SHARES, found, strict=True)}
            histograms[tag] = Histogram(bins, EDGES, total, *bounds)
        self._before = stats["infos"]
        return metrics, histograms

    def warnings(self, stats: Mapping[str, Any]) -> Iterator[str]:
        """A line for each key that no info has held although episodes have ended; once each."""
        for name, now in stats["infos"].items():
            if stats["episodes"] and not now["count"] and name not in self._said:
                self._said.add(name)
                yield (
                    f"info_keys: no info of this environment has held {name.rpartition(':')[0]!r} "
                    "so far; correct the key, or leave it out"
                )
