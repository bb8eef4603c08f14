"""The rows of a table, from the JSON report of each profiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perf import soak
from perf.measure.rounds import Summary

Row = Sequence[str]


def speed(report: dict[str, Any]) -> list[Row]:
    fps, limit = Summary.of(report["rounds"]["fps"]), Summary.of(report["rounds"]["limit_fps"])
    low, high = report["efficiency_range"]
    rows: list[Row] = [
        ("FPS", fps.text()),
        ("environment alone, FPS", limit.text()),
        ("share of it", f"{report['efficiency']:.2f} ({low:.2f} to {high:.2f})"),
        ("observations in one inference", f"{report['policy_batch_mean']:.1f}"),
    ]
    if "policy_lag_mean" in report:
        rows.append(("policy lag, mean", f"{report['policy_lag_mean']:.2f}"))
    return rows + stages(report)


def stages(report: dict[str, Any]) -> list[Row]:
    return [
        (f"{kind}: time in", ", ".join(f"{stage} {share:.1%}" for stage, share in shares.items()))
        for kind, shares in report["stages"].items()
    ]


def own_cost(report: dict[str, Any]) -> list[Row]:
    low, high = report["share_of_ceiling_range"]
    cost = report["microseconds"]
    return [
        ("steps/s", Summary.of(report["rounds"]["sps"]).text()),
        ("ceiling, steps/s", Summary.of(report["rounds"]["ceiling_sps"]).text()),
        ("share of it", f"{report['share_of_ceiling']:.2f} ({low:.2f} to {high:.2f})"),
        ("CPU us per lane-step", ", ".join(f"{kind} {us:.2f}" for kind, us in cost.items())),
        *stages(report),
    ]


def emulated(report: dict[str, Any]) -> list[Row]:
    low, high = report["share_range"]
    wait_low, wait_high = report["rollout_wait_share_range"]
    waits = f"{report['rollout_wait_share']:.1%} ({wait_low:.1%} to {wait_high:.1%})"
    return [
        ("steps/s", Summary.of(report["rounds"]["sps"]).text()),
        ("sleeping alone, steps/s", Summary.of(report["rounds"]["ideal_sps"]).text()),
        ("share of it", f"{report['share']:.3f} ({low:.3f} to {high:.3f})"),
        ("rollout workers wait", waits),
        *stages(report),
    ]


def overlaps(report: dict[str, Any]) -> list[Row]:
    return [
        (
            str(take["groups"]),
            f"{take['sps']:,.0f}",
            f"{take['overlap']:.2f}",
            f"{take['inference_while_stepping']:.0%}",
            f"{take['learning_while_stepping']:.0%}",
        )
        for take in report["takes"]
    ]


def sizes(report: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        (
            f"{kind} ({facts['count']})",
            f"{facts['pss_mib'] / facts['count']:,.0f}",
            f"{facts['private_mib'] / facts['count']:,.0f}",
            f"{facts['growth_mib_per_minute']:+.2f}",
        )
        for kind, facts in report["processes"].items()
    ]
    per_step = f"{report['bytes_per_step']:,.0f} bytes"
    return [*rows, ("store, per step", per_step, "", "")]


def predicted(report: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        ("predicted steps/s", f"{report['sps']:,.0f}"),
        ("held back by", report["bottleneck"]),
    ]
    if "error" in report:
        rows.append(("measured steps/s", f"{report['measured_sps']:,.0f}"))
        rows.append(("error", f"{report['error']:+.1%}"))
    else:
        rows.append(("predicted FPS", f"{report['fps']:,.0f}"))
    costs = ", ".join(f"{name} {us:,.1f}" for name, us in report["costs_us"].items())
    assumed = ", inference on the GPU assumed" if report.get("gpu_costs_assumed") else ""
    return [*rows, (f"costs, us{assumed}", costs)]


def comparison(report: dict[str, Any]) -> list[Row]:
    (task,) = report["tasks"].values()
    rows: list[Row] = [
        (
            name,
            f"{Summary.of(facts['rounds']).text()} {task['unit']}",
            Summary(**facts["to_baseline"]).text("{:.3f}"),
            f"`{facts['settings']}`" if facts["settings"] else "",
        )
        for name, facts in task["contestants"].items()
    ]
    return rows + [("missing", reason, "", "") for reason in task["missing"]]


def soaked(report: dict[str, Any]) -> list[Row]:
    total = f"{report['steps']:,} at {report['sps']:,.0f} a second"
    return [*soak.rows(report), ("steps", total, "", "", "", "")]
