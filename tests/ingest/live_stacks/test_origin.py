"""Whose code a frame is: one answer for dumps, logs and stacks."""

from forkpoint.model.frames import is_user_code, user_place
from forkpoint.model.op import Frame
from looping import for_each

PACKAGES = "/env/lib/python3.11/site-packages/"


@for_each(
    "filename",
    [
        "/train/train.py",
        "train.py",
        "train",
        "<ipython-input-3-0a1b>",
        PACKAGES + "my_trainer/loop.py",
        PACKAGES + "transformers/trainer.py",
        PACKAGES + "lightning/pytorch/loops/fit_loop.py",
        PACKAGES + "deepspeed/runtime/engine.py",
        "/home/me/lib/torch_tricks.py",
        "/home/me/forkpoint/train.py",
    ],
)
def test_the_users_scripts_and_trainers_are_user_code(filename: str) -> None:
    assert is_user_code(Frame("f", filename, 3))


@for_each(
    "filename",
    [
        PACKAGES + "torch/distributed/distributed_c10d.py",
        "/usr/local/lib/python3.12/dist-packages/torch/nn/modules/module.py",
        "torch/nn/modules/module.py",
        "/usr/lib/python3.11/threading.py",
        "threading.py",
        "<frozen runpy>",
        "<string>",
        "<eval_with_key>.12",
        PACKAGES + "horovod/torch/mpi_ops.py",
        PACKAGES + "ray/_private/worker.py",
        PACKAGES + "deepspeed/comm/torch.py",
        PACKAGES + "monarch/actor/host_mesh.py",
        PACKAGES + "forkpoint/consensus/carry.py",
        "/home/me/forkpoint/src/forkpoint/consensus/carry.py",
        "/home/me/forkpoint/src/forkpoint/guard/thread.py",
        "/tmp/torchinductor_me/ab/cab.py",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "",
    ],
)
def test_python_torch_and_what_carries_messages_are_not(filename: str) -> None:
    assert not is_user_code(Frame("f", filename, 0 if ".so" in filename else 3))


def test_the_place_is_the_innermost_of_the_users_frames() -> None:
    stack = (
        Frame("all_reduce", PACKAGES + "torch/distributed/distributed_c10d.py", 2806),
        Frame("reduce", PACKAGES + "deepspeed/comm/comm.py", 9),
        Frame("step", PACKAGES + "my_trainer/loop.py", 40),
        Frame("<module>", "/train/train.py", 3),
    )

    assert user_place(stack) == "loop.py:40 step"
