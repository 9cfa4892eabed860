"""How a plan is told: the bill as a table or JSON on stdout, the sentences around it on stderr."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewright.fitting.words import counted
from scalewright.orchestrator.config.ladder import plain_params
from scalewright.orchestrator.config.resources import EXECUTORS
from scalewright.orchestrator.plan.bill import BillRow, Plan, bill
from scalewright.orchestrator.report.format import duration, short_count, size_words
from scalewright.orchestrator.report.tables import print_json, print_rows
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    from scalewright.db.store import PlanReceipt
    from scalewright.orchestrator.data.manifest import Manifest


def print_plan(plan: Plan, study: Study, receipt: "PlanReceipt | None", *, as_json: bool) -> None:
    """Print the bill; with `as_json` one object with the bill, every run and the warnings."""
    if as_json:
        print_json(plan_record(plan))
        return
    if solved := solved_sizes(plan):
        print_rows([_solved_line(row) for row in solved], title="sizes by their parameters")
        print()
    print_rows(
        [_bill_line(row) for row in bill(plan)], title=f"{plan.experiment.name}: {counted(len(plan.runs), 'run')}"
    )
    for line in summary(plan, study, receipt):
        print(line, file=sys.stderr)


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return what `plan --json` prints: the bill, warnings, and each run with what was planned for it."""
    to_do = {run.run_id for run in plan.to_do}
    return {
        "experiment": plan.experiment.name,
        "bill": [asdict(row) for row in bill(plan)],
        "total": _total(plan),
        "notes": list(plan.notes),
        "solved_sizes": solved_sizes(plan),
        "warnings": list(plan.warnings),
        "runs": [
            {
                "run_id": run.run_id,
                "label": run.label,
                "size": run.size,
                "budget": run.budget,
                "group": run.group,
                "holdout": run.holdout,
                "profile": run.profile,
                "seed": run.spec.training["seed"],
                "lr_peak": run.spec.training["optimizer"]["lr_peak"],
                "n_tokens": run.spec.training["n_tokens"],
                "state": plan.states.get(run.run_id, "new"),
                "to_do": run.run_id in to_do,
                **run.planned,
            }
            for run in plan.runs
        ],
    }


def solved_sizes(plan: Plan) -> list[dict[str, Any]]:
    """Return shape and parameters of each size that was asked for by its number of parameters."""
    rows = []
    for name, asked in plan.experiment.asked_params.items():
        size = plan.experiment.sizes[name]
        shape = {key: getattr(size, key) for key in ("width", "depth", "heads")}
        rows.append(
            {"size": name, "asked": asked, **shape, "n_params": (n := plain_params(size)), "off": n / asked - 1}
        )
    return rows


def _solved_line(row: dict[str, Any]) -> dict[str, Any]:
    shown = {"asked": f"{row['asked']:,.0f}", "n_params": f"{row['n_params']:,}", "off": f"{row['off']:+.1%}"}
    names = {"asked": "asked for", "n_params": "parameters", "off": "off by"}
    return {names.get(key, key): value for key, value in (row | shown).items()}


def _total(plan: Plan) -> dict[str, Any]:
    rows = bill(plan)
    return {
        "runs": len(plan.runs),
        "to_do": len(plan.to_do),
        "n_tokens": sum(row.n_tokens for row in rows),
        "flops": sum(row.flops for row in rows),
        "wall_s": plan.wall_s,
        "gpu_hours": plan.gpu_hours,
        "price": plan.price,
        "disk_bytes": plan.disk_bytes,
        "runs_with_measured_throughput": plan.n_measured,
    }


def _bill_line(row: BillRow) -> dict[str, Any]:
    return {
        "method": row.method,
        "size": row.size,
        "runs": row.runs,
        "to do": row.to_do,
        "parameters": row.n_params,
        "with embeddings": row.n_params_total,
        "tokens": short_count(row.n_tokens),
        "FLOPs": f"{row.flops:.3g}",
        "time": duration(row.wall_s),
        "memory": f"{row.memory_bytes / 2**30:.2g} GiB",
    }


def summary(plan: Plan, study: Study, receipt: "PlanReceipt | None") -> list[str]:
    """Say the total, where the times come from, what exists already, and the warnings."""
    numbers = _total(plan)
    lines = [
        f"to do: {numbers['to_do']} of {counted(numbers['runs'], 'run')}, {short_count(numbers['n_tokens'])} tokens, "
        f"{numbers['flops']:.3g} FLOPs, about {duration(plan.wall_s)} of training{at_once(plan)}"
    ]
    lines.append(f"{gpus(plan)}checkpoints: up to {size_words(plan.disk_bytes)} of disk")
    if plan.n_measured < len(plan.runs):
        lines.append(
            f"time: measured throughput for {plan.n_measured} of {counted(len(plan.runs), 'run')}, or an assumed speed"
        )
    if receipt is not None:
        from scalewright.db.engine import name_of, parse_url

        place = name_of(parse_url(study.database))
        lines.append(f"recorded in {place}: {receipt.n_new} new runs, {receipt.n_existing} known ones")
    return [*lines, *plan.notes] + [f"warning: {warning}" for warning in plan.warnings]


def gpus(plan: Plan) -> str:
    """Say the GPU hours and their price, if runs ask for GPUs."""
    if not plan.gpu_hours:
        return ""
    price = "" if plan.price is None else f", {plan.price:,.2f} at the profiles' price"
    return f"GPU hours: {plan.gpu_hours:.3g}{price}; "


def at_once(plan: Plan) -> str:
    """Say how long the runs take side by side on this machine; a cluster decides that itself."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n_jobs = min(n_cores, plan.experiment.max_parallel or n_cores, len(plan.to_do))
    if not EXECUTORS[plan.experiment.executor].shares_cores or n_jobs < 2:
        return ""
    return f", {duration(plan.wall_s / n_jobs)} with {n_jobs} at once"


def print_data(manifest: "Manifest", folder: Path, *, as_json: bool) -> None:
    """Print what the shards hold, one row a split."""
    rows = [
        {
            "split": name,
            "documents": split.n_documents,
            "tokens": split.n_tokens,
            "bytes": split.n_bytes,
            "bytes per token": split.bytes_per_token,
        }
        for name, split in (("train", manifest.train), ("validation", manifest.validation))
    ]
    if as_json:
        print_json({"folder": str(folder), **manifest.identity(), "splits": rows})
        return
    print_rows(rows, title=f"{folder}: fingerprint {manifest.fingerprint}, vocabulary {manifest.vocab_size}")


def show_shapes(n_timed: int, n_shapes: int) -> None:
    """Show how many shapes were timed, on one line of a terminal."""
    if sys.stderr.isatty():
        end = "\n" if n_timed == n_shapes else ""
        print(f"\rtimed {n_timed} of {counted(n_shapes, 'shape')}", end=end, file=sys.stderr, flush=True)


def show_documents(n_documents: int, n_tokens: int) -> None:
    """Show how far the tokenizer is, on one line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r{n_documents:,} documents, {n_tokens:,} tokens", end="", file=sys.stderr, flush=True)
