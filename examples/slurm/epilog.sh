#!/bin/bash
# Slurm's Epilog (slurm.conf: Epilog=/etc/slurm/epilog.d/*): runs as root on every node after a job. It looks at the node
# and writes down what a person may then do. It drains nothing. An Epilog that fails drains the node, so it always ends
# with 0.
# slurmd gives it hardly any environment: say where forkpoint is installed.
PATH=/opt/forkpoint/bin:$PATH
folder=/var/log/forkpoint
mkdir -p "$folder" || exit 0

timeout 30 forkpoint doctor --only gpu-recovery,gpu-ecc,gpu-memory-rows,xids,pcie-errors,infiniband,machine-checks --json \
    >"$folder/job-$SLURM_JOB_ID.json" 2>/dev/null
if [ $? -eq 1 ]; then
    node=${SLURMD_NODENAME:-$(hostname -s)}
    {
        echo "after job $SLURM_JOB_ID forkpoint doctor found something bad on $node: $folder/job-$SLURM_JOB_ID.json"
        echo "to keep jobs off it: scontrol update nodename=$node state=drain reason=\"forkpoint doctor, job $SLURM_JOB_ID\""
    } >>"$folder/look-at-these-nodes.txt"
fi
exit 0
