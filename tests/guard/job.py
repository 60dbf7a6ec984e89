"""A small job under the guard. What goes wrong in it, on which rank and in which step, is in GUARD_JOB."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import msgspec
import torch
import torch.distributed as dist

import forkpoint.guard
from forkpoint.guard import messages, overseer, session

JOB = json.loads(os.environ["GUARD_JOB"])
RANK = int(os.environ["RANK"])
if JOB.get("patient"):
    # A busy machine needs longer for the same; what the guard concludes does not change, only for how long it waits.
    overseer._COLLECT_S, overseer._CONCLUDE_S, overseer._DIAGNOSE_S = 10.0, 300.0, 292.0
    session._LEAVE_S = 330.0
    messages._ANSWERS_S = 60.0
if not os.environ.get("FORKPOINT"):
    settings = JOB["settings"]
    settings["mode"] = forkpoint.guard.Mode(settings.get("mode", "observe"))
    forkpoint.guard.start(forkpoint.guard.Settings(**settings))
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
pair = dist.new_group([0, 1])
world = dist.group.WORLD
values = torch.zeros(100)


def wait_for_guard() -> None:
    """Where many jobs start at once, this step may come before the guard of this rank has said a word."""
    while (own := forkpoint.guard.session.running_thread().session) is None or own._told_reads < 0:
        time.sleep(0.1)
    time.sleep(0.5)


def write_nonsense() -> None:
    """As anybody can who reaches the store."""
    told = forkpoint.guard.session.running_thread().session
    beat = msgspec.to_builtins(told.side.beat())
    nested = b"\x91" * 100_000
    for key in (
        *(f"beat/{rank}" for rank in range(JOB["world"])),
        "ask",
        "calls/0",
        "who/2",
        "answer/1/0",
        "summary/1/0",
    ):
        for words in (
            nested,
            b'{"still_s": Infinity}',
            msgspec.msgpack.encode(beat | {"still_s": float("inf"), "rank": 0}),
            msgspec.msgpack.encode(beat | {"still_s": float("nan"), "groups": {"0": [4, 1, 2, float("inf")]}}),
            msgspec.msgpack.encode(beat | {"rank": -7, "neighbour": 10**9}),
        ):
            told._guard_store.publish(key, words)
            time.sleep(0.05)


def go_wrong() -> bool:  # noqa: C901, PLR0911 a table
    """True: this rank does not make the usual call in this step."""
    match JOB["how"]:
        case "broadcast":
            dist.broadcast(torch.ones(3), 0)
        case "sleep":
            time.sleep(JOB["seconds"])
            return False
        case "raise":
            raise ValueError("a bad batch")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "pause":
            subprocess.Popen(["sh", "-c", f"sleep {JOB['seconds']}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            return False
        case "hostile":
            write_nonsense()
            dist.broadcast(torch.ones(3), 0)
        case "exit":
            sys.exit(0)
        case "order":
            dist.all_reduce(torch.ones(7), group=pair)
            return False
        case "thread dies":
            forkpoint.guard.session.running_thread().session.look = None
            return False
        case "dtype":
            return False
        case "clock":
            time.time, now = (lambda: now() + 86400.0), time.time
            return False
    return True


for step in range(JOB["steps"]):
    time.sleep(JOB.get("pace_s", 0.03))
    if step == JOB["at"] and JOB["who"] == RANK:
        if JOB.get("patient"):
            wait_for_guard()
        print(f"WRONG {time.time():.3f}", flush=True)
        if go_wrong():
            continue
    if RANK == 0 and JOB["how"] == "dtype" and forkpoint.guard.status().alarms:
        values[0] = 1  # the job goes on in spite of its fault: all ranks end it in the same step once it was said
    # Again and again: on a busy machine a look may come when the recorder no longer holds the first one.
    again = step >= JOB["at"] and (step - JOB["at"]) % 50 == 0
    other = JOB["how"] == "dtype" and again and JOB["who"] == RANK
    dist.all_reduce(values.int() if other else values)
    if JOB["how"] == "order" and step == JOB["at"] and RANK in (0, 1) and JOB["who"] != RANK:
        dist.all_reduce(torch.ones(7), group=pair)
    if JOB["stepped"]:
        forkpoint.guard.step(step)
    if values[0]:
        break
print(f"STATUS blind={forkpoint.guard.status().blind!r}", flush=True)
print("FINISHED", flush=True)
dist.destroy_process_group()
