"""Live stacks as faulthandler writes them."""

from forkpoint.ingest.stacks import is_only_stacks, read_stacks

TEXT = """\
Thread 0x00007f99f13fe6c0 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait
  File "/usr/lib/python3.12/threading.py", line 1032 in _bootstrap

Current thread 0x00007f9dcec21140 (most recent call first):
  File "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 3068 in all_reduce
  File "/train/metrics.py", line 15 in compute
  File "/train/train.py", line 42 in <module>
"""


def test_the_main_thread_counts_not_its_helpers() -> None:
    stack = read_stacks(TEXT, "stacks", rank=3)

    assert stack is not None
    assert (stack.rank, stack.line) == (3, 5)
    assert [f.name for f in stack.stack] == ["all_reduce", "compute", "<module>"]


def test_a_log_with_stacks_in_its_middle_is_still_a_log() -> None:
    assert is_only_stacks(TEXT)
    assert not is_only_stacks(f"step 1\nstep 2\n{TEXT}")


def test_a_file_without_frames_holds_no_stack() -> None:
    assert read_stacks("Thread 0x1 (most recent call first):\n  <no Python frame>\n", "stacks", rank=0) is None
