#!/usr/bin/env bash
# Checks a machine with CUDA within eight minutes: the gpu tests, then sampling, training and the
# sampler's own cost, and a short table last. Without CUDA it is a dry run: everything on the CPU,
# a second each.
#
#   bash perf/gpu_check.sh [FOLDER]      logs and JSON reports go to FOLDER (gpu_check)
#
# PYTHON names the interpreter (python). Exits with 1 if a part failed.
set -u
cd "$(dirname "$0")/.."
out=${1:-gpu_check}
python=${PYTHON:-python}
mkdir -p "$out"

device=$("$python" -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")') || exit 1
cores=$("$python" -c 'from sampler.process.resources import available_cores; print(available_cores())')
if [ "$device" = cuda ]; then
    seconds=8 rounds=3 workers=$((cores > 3 ? cores - 2 : 1)) batch=128 lanes=32
else
    echo "No CUDA here: a dry run on the CPU."
    seconds=1 rounds=1 workers=1 batch=16 lanes=8
fi
measuring=(--seconds "$seconds" --rounds "$rounds" --workers "$workers")
sampling=("${measuring[@]}" --envs-per-worker "$lanes" --batch "$batch" --device "$device")

failed=0
part() { # NAME LIMIT_IN_SECONDS COMMAND...
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    if timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1; then
        echo "$name: ok, $((SECONDS - began)) s"
    else
        echo "$name: FAILED with $?, $((SECONDS - began)) s; the end of $out/$name.log:"
        tail -n 15 "$out/$name.log"
        failed=1
    fi
}

rm -f "$out"/*.json
part tests 180 "$python" -m pytest -q -m gpu tests
part fps 90 "$python" -m perf.fps --inference model "${sampling[@]}" --json "$out/fps.json"
part train 120 "$python" -m perf.train "${sampling[@]}" --learner-device "$device" \
    --json "$out/train.json"
part overhead 70 "$python" -m perf.overhead "${measuring[@]}" --json "$out/overhead.json"

"$python" - "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

figures = {
    "fps": {"FPS, sampling": "fps", "of the emulator alone": "efficiency",
            "observations in one inference": "policy_batch_mean"},
    "train": {"FPS, training": "fps", "of the emulator alone": "efficiency",
              "policy lag, mean": "policy_lag_mean"},
    "overhead": {"steps/s, null environment": "sps", "of the ceiling": "share_of_ceiling"},
}
print()
for name, wanted in figures.items():
    path = Path(sys.argv[1], f"{name}.json")
    report = json.loads(path.read_text()) if path.exists() else {}
    for title, key in wanted.items():
        value = f"{report[key]:,.2f}" if key in report else "missing"
        print(f"{name:10}{title:32}{value:>14}")
PYTHON
tests=$(tail -n 1 "$out/tests.log")
echo "tests     $tests"
exit $failed
