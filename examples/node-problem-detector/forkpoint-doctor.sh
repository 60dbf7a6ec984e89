#!/bin/sh
# A custom plug-in of Node Problem Detector. Its exit codes are the doctor's: 0 nothing bad, 1 something is, 2 not known.
# What it prints becomes the message of the condition, of which 80 characters are kept: the checks that are bad.
checks=gpu-recovery,gpu-ecc,gpu-memory-rows,gpu-nvlink,xids,pcie-errors,pcie-link,infiniband,machine-checks
report=$(forkpoint doctor --only "$checks" --json 2>/dev/null)
code=$?
printf '%s' "$report" | python3 -c '
import json, sys
try:
    results = json.load(sys.stdin)["results"]
except (ValueError, KeyError):
    sys.exit("forkpoint doctor gave no report")
print(",".join(row["check"] for row in results if row["status"] == "bad") or "nothing bad")
' 2>&1
exit $code
