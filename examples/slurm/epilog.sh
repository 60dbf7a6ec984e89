#!/bin/bash
# Slurm's Epilog (slurm.conf: Epilog=/etc/slurm/epilog.d/*): runs as root on every node after a job. It looks at the node
# and writes down what a person may then do. It drains nothing. An Epilog that fails drains the node, so it always ends
# with 0.
# slurmd gives it hardly any environment, and no PATH: say where forkpoint is installed.
export PATH=/opt/forkpoint/bin:/usr/bin:/bin
folder=/var/log/forkpoint
mkdir -p "$folder" || exit 0
report=$folder/job-$SLURM_JOB_ID.json node=${SLURMD_NODENAME:-$(hostname -s)}

timeout 30 forkpoint doctor --only gpu-recovery,gpu-ecc,gpu-memory-rows,xids,pcie-errors,infiniband,machine-checks --json \
    >"$report" 2>"$report.err"
case $? in
0) rm -f "$report.err" ;;
1)
    {
        echo "after job $SLURM_JOB_ID forkpoint doctor found something bad on $node: $report"
        echo "to keep jobs off it: scontrol update nodename=$node state=drain reason=\"forkpoint doctor, job $SLURM_JOB_ID\""
    } >>"$folder/look-at-these-nodes.txt"
    ;;
*) echo "after job $SLURM_JOB_ID forkpoint doctor did not run on $node: $report.err" >>"$folder/did-not-run.txt" ;;
esac
exit 0
