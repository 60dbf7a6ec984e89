"""What holds a stack: each shape by a stack that was seen, and the order of precedence."""

from msgspec.structs import replace

from forkpoint.evidence.stacks.read import read_live_stacks
from forkpoint.evidence.stacks.shapes import Shape, find_shape, find_user_frame
from forkpoint.evidence.stacks.threads import RankStacks, Thread, ThreadKind
from forkpoint.model.op import Frame, Stack
from ingest.live_stacks.recorded import read_one
from looping import for_each

USER = ("main (train.py:28)", "<module> (train.py:33)")
TORCH = "torch/distributed/distributed_c10d.py"


def stack(*frames: str) -> Stack:
    """Frames as py-spy writes them, within the user's two."""
    text = "Thread 1 (idle)\n" + "".join(f"    {frame}\n" for frame in (*frames, *USER))
    return read_live_stacks(text, "x", 0)[0].threads[0].stack


@for_each(
    ("shape", "frames"),
    [
        (Shape.COLLECTIVE, [f"all_reduce ({TORCH}:3252)", "wrapper (torch/distributed/c10d_logger.py:83)"]),
        (Shape.COLLECTIVE, ["_sync_buffers (torch/nn/parallel/distributed.py:2088)"]),
        (Shape.COLLECTIVE, ["wait_for_unshard (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:330)"]),
        (Shape.COLLECTIVE, ["all_reduce (torch/distributed/_functional_collectives.py:180)"]),
        (Shape.COMM_INIT, [f"_store_based_barrier ({TORCH}:900)", f"init_process_group ({TORCH}:1700)"]),
        (Shape.COMM_INIT, ["_create_c10d_store (torch/distributed/rendezvous.py:190)"]),
        (Shape.DESTROY, [f"destroy_process_group ({TORCH}:2090)"]),
        (Shape.CUDA_SYNC, ["synchronize (torch/cuda/__init__.py:1162)"]),
        (Shape.CUDA_SYNC, ["?? (libcuda.so.1)", "cudaStreamSynchronize (libcudart.so.12)"]),
        (Shape.CUDA_SYNC, ["cuCtxSynchronize (libcuda.so.1)"]),
        (Shape.LOCK, ["Condition.wait (threading.py:327)", "Event.wait (threading.py:629)"]),
        (Shape.LOCK, ["Queue.get (queue.py:171)"]),
        (Shape.LOCK, ["__futex_abstimed_wait_common64 (libc.so.6)", "take_gil (libpython3.11.so.1.0)"]),
        (Shape.FILE_IO, ["_legacy_save (torch/serialization.py:960)", "save (torch/serialization.py:850)"]),
        (Shape.FILE_IO, ["copyfileobj (shutil.py:200)"]),
        (Shape.FILE_IO, ["__GI___fsync (libc.so.6)"]),
        (Shape.NETWORK_IO, ["SSLSocket.read (ssl.py:1166)", "SocketIO.readinto (socket.py:706)"]),
        (Shape.NETWORK_IO, ["_wait_for_done (s3transfer/futures.py:265)"]),
        (Shape.NETWORK_IO, ["accept4 (libc.so.6)"]),
        (Shape.LOADER, ["_MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1291)"]),
        (Shape.LOADER, ["wait (multiprocessing/connection.py:947)", "Queue.get (multiprocessing/queues.py:113)"]),
        (Shape.COMPILE, ["compile_fx (torch/_inductor/compile_fx.py:1700)"]),
        (Shape.COMPILE, ["compile (triton/compiler/compiler.py:270)"]),
        (Shape.SUBPROCESS, ["Popen._try_wait (subprocess.py:1960)", "Popen.communicate (subprocess.py:1209)"]),
        (Shape.SLEEP, ["clock_nanosleep (libc.so.6)"]),
        (Shape.IMPORT, ["get_data (<frozen importlib._bootstrap_external>:1131)"]),
        (Shape.PYTHON, []),
        (Shape.PYTHON, ["decode (json/decoder.py:337)"]),
    ],
)
def test_a_known_call_tells_what_holds_the_thread(shape, frames) -> None:
    assert find_shape(stack(*frames)) is shape


@for_each(
    ("shape", "frames"),
    [
        (
            Shape.LOADER,
            ["Condition.wait (threading.py:327)", "get (queue.py:171)", "_get_data (torch/utils/data/dataloader.py:1)"],
        ),
        (Shape.COLLECTIVE, ["cudaStreamSynchronize (libcudart.so.12)", f"all_gather_object ({TORCH}:2700)"]),
        (Shape.COLLECTIVE, [f"all_gather ({TORCH}:1)", "_share_seed (torch/utils/data/dataloader.py:1)"]),
        (Shape.COLLECTIVE, [f"all_gather_object ({TORCH}:1)", "compile_frame (torch/_dynamo/convert_frame.py:1)"]),
        (
            Shape.COMM_INIT,
            [f"barrier ({TORCH}:1)", f"new_group ({TORCH}:2)", "wrapper (torch/distributed/c10d_logger.py:83)"],
        ),
        (Shape.COMM_INIT, ["ncclCommInitRankConfig (libnccl.so.2)", f"all_reduce ({TORCH}:2)"]),
        (Shape.COMPILE, ["Popen.communicate (subprocess.py:1)", "_build (triton/runtime/build.py:1)"]),
        (Shape.CUDA_SYNC, ["pthread_cond_wait (libc.so.6)", "cudaEventSynchronize (libcudart.so.12)"]),
        (Shape.CUDA_SYNC, ["cudaMemcpyAsync (libcudart.so.12)", "_save (torch/serialization.py:1)"]),
        (Shape.NETWORK_IO, ["Condition.wait (threading.py:1)", "_blocking (grpc/_channel.py:1)"]),
        (Shape.SUBPROCESS, ["read (libc.so.6)", "Popen._communicate (subprocess.py:1)"]),
        (
            Shape.FILE_IO,
            ["Condition.wait (threading.py:1)", "write_data (torch/distributed/checkpoint/filesystem.py:1)"],
        ),
        (Shape.COLLECTIVE, [f"gather_object ({TORCH}:1)", "save (torch/distributed/checkpoint/filesystem.py:1)"]),
    ],
)
def test_the_purpose_of_a_call_comes_before_the_way_it_waits(shape, frames) -> None:
    assert find_shape(stack(*frames)) is shape


def test_a_lock_inside_the_user_s_upload_is_a_lock_and_the_upload_is_kept() -> None:
    held = stack("Condition.wait (threading.py:327)", "Event.wait (threading.py:629)", "upload (train.py:14)")

    assert find_shape(held) is Shape.LOCK
    assert find_user_frame(held) == Frame("upload", "train.py", 14)


def test_the_user_s_own_dataset_ends_the_call_of_the_loader() -> None:
    worker = read_one("py_spy_subprocesses.txt").threads[2].stack

    assert find_shape(worker) is Shape.LOCK
    assert find_user_frame(worker) == Frame("Stuck.__getitem__", "train.py", 13)


@for_each(
    "frames",
    [
        ["linear (torch/nn/functional.py:1)", "DistributedDataParallel.forward (torch/nn/parallel/distributed.py:1)"],
        ["_fn (torch/_dynamo/eval_frame.py:1)"],
        ["OutputCode.__call__ (torch/_inductor/output_code.py:1)"],
    ],
)
def test_wrappers_around_the_model_hold_nothing_by_themselves(frames) -> None:
    assert find_shape(stack(*frames)) is Shape.PYTHON


def test_importing_the_compiler_is_not_compiling() -> None:
    frames = ["<module> (torch/_dynamo/utils.py:70)", "exec_module (<frozen importlib._bootstrap_external>:940)"]

    assert find_shape(stack(*frames)) is Shape.IMPORT


def test_a_module_of_the_user_s_that_is_being_imported_is_an_import() -> None:
    frames = ["<module> (model.py:3)", "_call_with_frames_removed (<frozen importlib._bootstrap>:241)"]

    assert find_shape(stack(*frames)) is Shape.IMPORT


def test_native_frames_alone_tell_as_much_as_they_can() -> None:
    assert find_shape(read_one("gdb_bt_barrier.txt").stack) is Shape.COLLECTIVE
    assert find_shape(read_one("gdb_bt.txt").stack) is Shape.PYTHON
    assert [find_shape(t.stack).value for t in read_one("gdb_bt.txt").threads[1:4]] == ["network-io", "lock", "lock"]
    assert find_shape((Frame("??", "/lib64/libfoo.so", 0),)) is Shape.UNKNOWN
    assert find_shape(()) is Shape.UNKNOWN


def test_a_user_s_file_named_like_a_library_s_is_the_user_s() -> None:
    assert find_shape((Frame("get", "/home/me/project/queue.py", 3),)) is Shape.PYTHON
    assert find_shape((Frame("get", "/usr/lib/python3.12/queue.py", 3),)) is Shape.LOCK


def test_an_installed_trainer_is_the_user_s_code() -> None:
    frame = Frame("fit", "/opt/env/lib/python3.12/site-packages/our_trainer/loop.py", 3)

    assert find_user_frame((frame,)) == frame


def thread(kind: ThreadKind, *frames: Frame) -> Thread:
    return Thread(None, kind, frames, 1, None, holds_gil=False)


BACKWARD = (
    Frame("_engine_run_backward", "/env/site-packages/torch/autograd/graph.py", 979),
    Frame("main", "/train/train.py", 40),
    Frame("<module>", "/train/train.py", 50),
)
HOOK = Frame("reduce_scatter", "/env/site-packages/torch/distributed/distributed_c10d.py", 4000)


def test_a_main_thread_that_waits_in_backward_stands_where_autograd_s_thread_stands() -> None:
    main = thread(ThreadKind.MAIN, *BACKWARD)

    assert RankStacks(0, "x", (thread(ThreadKind.AUTOGRAD, HOOK), main)).stack == (HOOK, *BACKWARD)
    assert find_shape((HOOK, *BACKWARD)) is Shape.COLLECTIVE


def test_of_two_busy_autograd_threads_neither_is_chosen() -> None:
    helpers = (thread(ThreadKind.AUTOGRAD, HOOK), thread(ThreadKind.AUTOGRAD, HOOK))

    assert RankStacks(0, "x", (*helpers, thread(ThreadKind.MAIN, *BACKWARD))).stack == BACKWARD


RESULT = (
    Frame("wait", "threading.py", 327),
    Frame("result", "concurrent/futures/_base.py", 451),
    Frame("main", "train.py", 40),
    Frame("<module>", "train.py", 50),
)
ON_LOCK = (Frame("wait", "threading.py", 327), *RESULT[2:])
BEATS = (Frame("beat", "/train/beat.py", 8), Frame("run", "threading.py", 982))


def pooled(line: int) -> tuple[Frame, ...]:
    return (Frame("upload", "/train/save.py", line), Frame("_worker", "concurrent/futures/thread.py", 83))


@for_each("folder", ["", "/usr/lib/python3.12/"])
def test_a_main_thread_that_waits_for_a_future_waits_for_the_only_busy_thread_of_a_pool(folder: str) -> None:
    main, work = (
        tuple(replace(f, filename=folder + f.filename) if f.filename.startswith(("conc", "thr")) else f for f in stack)
        for stack in (RESULT, pooled(3))
    )
    threads = (thread(ThreadKind.OTHER, *BEATS), thread(ThreadKind.OTHER, *work), thread(ThreadKind.MAIN, *main))

    assert RankStacks(0, "x", threads).stack == (*work, *main)


def test_of_two_busy_threads_neither_is_chosen_for_a_lock_or_where_both_are_of_a_pool() -> None:
    beats, one, two = (thread(ThreadKind.OTHER, *stack) for stack in (BEATS, pooled(3), pooled(4)))

    assert RankStacks(0, "x", (beats, one, thread(ThreadKind.MAIN, *ON_LOCK))).stack == ON_LOCK
    assert RankStacks(0, "x", (beats, one, two, thread(ThreadKind.MAIN, *RESULT))).stack == RESULT
