"""The format of PyTorch's benchmark HUD."""

from __future__ import annotations

import math
import statistics

from groundspeed.evidence.revision import packages_of
from groundspeed.judge.judgement import Judgement
from groundspeed.report.formats.passed import Row, known, passed, small, verdict, whole
from groundspeed.report.plain_json import dump


def to_hud(judgement: Judgement, identity: str) -> str:
    """Return records of PyTorch's benchmark database, one per line. They have one value per process; times are in
    microseconds, because the HUD cuts values off after two decimals. The uploader adds the fields about the change and
    the job, and leaves `runners` unchanged."""
    record, environment = judgement.record, judgement.record.environment
    runner: Row = {
        "name": record.run.device,
        "type": judgement.device_name,
        "cpu_info": str(known(environment, "cpu", "name") or ""),
        "cpu_count": small(whole(environment, "cpu", "cores")),
        "avail_mem_in_gb": small(whole(environment, "memory", "total_bytes") >> 30),
        "gpu_info": str(known(environment, "gpu", "name") or ""),
        "gpu_count": int(record.run.device == "cuda"),
        "avail_gpu_mem_in_gb": small(whole(environment, "gpu", "memory_bytes") >> 30),
        "extra_info": {},
    }
    lines = []
    for case, result, _, seconds in passed(judgement):
        about = {
            "benchmark": {
                "name": f"groundspeed {record.run.suite}",
                "mode": "inference",
                "dtype": str(case.facts.params.get("dtype", "")),
                "extra_info": {"clock": case.clock, "bundle": identity},
            },
            "model": {
                "name": case.facts.name,
                "type": record.run.suite,
                "backend": result.contender,
                "origins": ["groundspeed"],
                "extra_info": {str(key): str(value) for key, value in case.facts.params.items()},
            },
            "runners": [runner],
            "dependencies": {
                name: {"version": version, "extra_info": {}}
                for name, version in packages_of(environment, result.contender).items()
            },
        }
        target: Row = {"target_value": 1e6 * case.target.target_s} if case.target and case.target.target_s else {}
        medians = [1e6 * statistics.median(of_one) for of_one in seconds]
        metrics: dict[str, tuple[list[float], Row]] = {"latency_us": (medians, target)}
        if case.facts.flops:
            metrics["tflops"] = ([case.facts.flops / 1e6 / us for us in medians], {})
        if c := result.comparison:
            values = [math.exp(centre.theta.mean) for centre in c.centres]
            metrics[f"speedup_vs_{c.baseline}"] = (values, {"extra_info": verdict(c)})
        for name, (values, more) in metrics.items():
            lines.append(dump({**about, "metric": {"name": name, "benchmark_values": values, **more}}) + "\n")
    return "".join(lines)
