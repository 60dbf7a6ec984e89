"""What blocks a thread, according to the last call from user code: tables of known calls, and how to choose among them."""

from enum import StrEnum

from msgspec import Struct

from forkpoint.model.frames import bare_name, is_library, is_python, is_user_code, place_of
from forkpoint.model.op import Frame, Stack

# ---------------------------------------------------------------------------------------------------------------------
# Calls that show what a thread does, by function name and by the end of a file's path, never by a whole path.
#
# A frame is looked up in `PURPOSES`, then `MEANS`, then `WAITS`; `find_shape` below says how they are combined. The first
# rule that matches wins, so rules for single functions come before those for whole files.


class Shape(StrEnum):
    """What blocks a thread. To add a shape, add a rule below and a test."""

    COLLECTIVE = "collective"
    """Inside torch.distributed, or a wrapper's own communication (DDP, FSDP, functional collectives)."""
    COMM_INIT = "comm-init"
    """Creating a group or communicator: init_process_group, new_group, rendezvous, a barrier on the store."""
    DESTROY = "destroy"
    """Destroying a group."""
    CUDA_SYNC = "cuda-sync"
    """The CPU waits for its GPU: synchronize, or a copy such as `.item()`, which only native frames show."""
    LOCK = "lock"
    """Waits for another thread or process: a lock, an event, a queue, a future; natively a futex."""
    FILE_IO = "file-io"
    NETWORK_IO = "network-io"
    LOADER = "loader"
    """Waits for the next batch, or produces it."""
    COMPILE = "compile"
    SUBPROCESS = "subprocess"
    """Waits for a program that it started."""
    SLEEP = "sleep"
    IMPORT = "import"
    PYTHON = "python"
    """Runs Python code that is none of the above. A built-in that blocks looks the same without native frames."""
    UNKNOWN = "unknown"
    """No frames, or only native ones that are not known."""


class ShapeRule(Struct, frozen=True):
    """Python frames: the file ends with one of `files` (or lies below it, if it ends with a slash), and the function is one
    of `names`; without `names`, it is none of `besides`. Native frames: the name is one of `native`, or starts with one of
    `native_starts`.
    """

    shape: Shape
    files: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    besides: frozenset[str] = frozenset()
    native: frozenset[str] = frozenset()
    native_starts: tuple[str, ...] = ()

    def matches(self, frame: Frame) -> bool:
        name = bare_name(frame)
        if not is_python(frame):
            return name in self.native or name.startswith(self.native_starts)
        if (name not in self.names) if self.names else (name in self.besides):
            return False
        place = place_of(frame)
        return any((file in place) if file.endswith("/") else place.endswith(file) for file in self.files)


def find_rule(frame: Frame, rules: tuple[ShapeRule, ...]) -> ShapeRule | None:
    # The body of a module that is being imported is not a call into that module.
    return None if frame.name == "<module>" else next((rule for rule in rules if rule.matches(frame)), None)


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_C10D = "/torch/distributed/distributed_c10d.py"

PURPOSES: tuple[ShapeRule, ...] = (
    ShapeRule(
        Shape.DESTROY,
        (_C10D,),
        names=_set("destroy_process_group _abort_process_group abort_process_group _shutdown_backend"),
        native_starts=("ncclCommDestroy", "ncclCommAbort", "ncclCommFinalize", "c10d::ProcessGroupNCCL::shutdown"),
    ),
    ShapeRule(
        Shape.COMM_INIT,
        (_C10D,),
        names=_set(
            "init_process_group new_group _new_group_with_tag _new_process_group_helper split_group new_subgroups "
            "new_subgroups_by_enumeration _store_based_barrier"
        ),
        native_starts=(
            "ncclCommInit",
            "ncclCommSplit",
            "bootstrapInit",
            "c10d::TCPStore::",
            "c10d::ProcessGroupNCCL::initNCCL",
        ),
    ),
    ShapeRule(
        Shape.COMM_INIT,
        (
            "/torch/distributed/rendezvous.py",
            "/torch/distributed/elastic/rendezvous/",
            "/torch/distributed/elastic/utils/store.py",
        ),
    ),
    ShapeRule(
        Shape.COMM_INIT, ("/torch/distributed/device_mesh.py",), names=_set("init_device_mesh _init_process_groups")
    ),
    ShapeRule(
        Shape.COLLECTIVE,
        (
            _C10D,
            "/torch/distributed/c10d_logger.py",
            "/torch/distributed/_functional_collectives.py",
            "/torch/distributed/nn/functional.py",
            "/torch/distributed/tensor/_collective_utils.py",
            "/torch/distributed/tensor/_redistribute.py",
            "/deepspeed/comm/",
            "/horovod/",
        ),
        native_starts=(
            "c10d::Work",
            "c10d::ProcessGroup",
            "c10d::Reducer",
            "c10d::wait_tensor",
            "nccl",
            "pncclAll",
            "gloo::",
            "Work.wait",
        ),
    ),
    # These files also wrap the model's own forward pass, which is not communication.
    ShapeRule(
        Shape.COLLECTIVE,
        ("/torch/nn/parallel/distributed.py", "/torch/distributed/fsdp/", "/torch/distributed/_composable/"),
        besides=_set("forward _run_ddp_forward _inside_ddp_forward __call__ wrapped_forward"),
    ),
    ShapeRule(
        Shape.COLLECTIVE,
        ("/torch/distributed/utils.py",),
        names=_set("_verify_param_shape_across_processes _sync_module_states _sync_params_and_buffers"),
    ),
    ShapeRule(
        Shape.LOADER,
        ("/torch/utils/data/", "/torchdata/", "/webdataset/", "/nvidia/dali/"),
    ),
    ShapeRule(Shape.LOADER, ("/multiprocessing/queues.py",), names=_set("get put")),
    ShapeRule(
        Shape.IMPORT,
        ("/importlib/__init__.py", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"),
        native_starts=("PyImport_", "import_find_and_load"),
    ),
    # Every call of compiled code passes through some of torch's compiler files.
    ShapeRule(
        Shape.COMPILE,
        ("/torch/_dynamo/eval_frame.py",),
        names=_set("export rewrite_signature optimize_assert"),
    ),
    ShapeRule(
        Shape.COMPILE,
        ("/torch/_dynamo/",),
        besides=_set("_fn compile_wrapper __call__ _call_impl forward inner wrapper nonrecursive_disable_wrapper"),
    ),
    ShapeRule(
        Shape.COMPILE,
        ("/torch/_inductor/",),
        besides=_set("run __call__ call wrapper run_node new_callee deferred_cudagraphify execute"),
    ),
    ShapeRule(
        Shape.COMPILE,
        ("/triton/compiler/", "/triton/backends/", "/triton/runtime/build.py", "/torch/utils/cpp_extension.py"),
        native_starts=("mlir::", "llvm::"),
    ),
    ShapeRule(Shape.COMPILE, ("/triton/runtime/",), names=_set("compile _do_compile _bench warmup")),
)
"""What the call is for."""

MEANS: tuple[ShapeRule, ...] = (
    ShapeRule(
        Shape.CUDA_SYNC,
        (
            "/torch/cuda/__init__.py",
            "/torch/cuda/streams.py",
            "/torch/accelerator/__init__.py",
            "/torch_npu/npu/utils.py",
            "/torch/xpu/__init__.py",
        ),
        names=_set("synchronize"),
        native_starts=(
            *(
                "cudaStreamSynchronize",
                "cudaDeviceSynchronize",
                "cudaEventSynchronize",
                "cudaMemcpy",
                "cudaLaunchKernel",
            ),
            *("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuMemcpy", "cuLaunchKernel"),
            *("hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize", "hipMemcpy"),
            "at::native::local_scalar_dense_cuda",
            "at::native::_local_scalar_dense_cuda",
            "c10::cuda::stream_synchronize",
            "Tensor.",
        ),
    ),
    ShapeRule(Shape.CUDA_SYNC, ("/torch/amp/grad_scaler.py",), names=_set("_maybe_opt_step")),
    ShapeRule(
        Shape.SUBPROCESS,
        ("/subprocess.py", "/multiprocessing/popen_fork.py", "/multiprocessing/popen_spawn_posix.py"),
        native=_set("wait4 waitpid waitid"),
    ),
    ShapeRule(Shape.SUBPROCESS, ("/multiprocessing/process.py",), names=_set("join")),
    ShapeRule(
        Shape.FILE_IO,
        (
            *(
                "/shutil.py",
                "/pathlib.py",
                "/pathlib/_local.py",
                "/genericpath.py",
                "/glob.py",
                "/tempfile.py",
                "/gzip.py",
            ),
            *("/zipfile.py", "/zipfile/__init__.py", "/tarfile.py", "/lzma.py", "/bz2.py", "/codecs.py", "/_pyio.py"),
            *("/torch/serialization.py", "/torch/distributed/checkpoint/filesystem.py", "/safetensors/", "/h5py/"),
            *(
                "/numpy/lib/npyio.py",
                "/numpy/lib/_npyio_impl.py",
                "/numpy/lib/format.py",
                "/zarr/",
                "<frozen genericpath>",
            ),
        ),
        besides=_set("__getattr__ decode"),
    ),
    ShapeRule(
        Shape.FILE_IO,
        ("/os.py", "<frozen os>"),
        names=_set("makedirs walk fwalk scandir removedirs renames fdopen popen"),
    ),
    ShapeRule(
        Shape.FILE_IO, ("/posixpath.py", "<frozen posixpath>"), names=_set("realpath _joinrealpath ismount lexists")
    ),
    ShapeRule(
        Shape.FILE_IO, ("/logging/__init__.py", "/logging/handlers.py"), names=_set("flush emit _open doRollover")
    ),
    ShapeRule(
        Shape.NETWORK_IO,
        (
            *("/socket.py", "/ssl.py", "/http/client.py", "/urllib/request.py", "/ftplib.py", "/smtplib.py"),
            *("/urllib3/", "/requests/", "/httpx/", "/httpcore/", "/aiohttp/", "/grpc/", "/boto3/", "/botocore/"),
            *("/s3transfer/", "/s3fs/", "/gcsfs/", "/fsspec/asyn.py", "/google/cloud/", "/google/api_core/", "/azure/"),
            *("/huggingface_hub/", "/smart_open/", "/paramiko/", "/redis/", "/wandb/sdk/", "/mlflow/"),
        ),
    ),
)
"""How the call works, if that says more than that it waits."""

WAITS: tuple[ShapeRule, ...] = (
    ShapeRule(
        Shape.FILE_IO,
        native=_set(
            "read readv write writev pread pwrite fsync fdatasync open openat stat fstat lstat statx fstatat getdents "
            "flock ftruncate rename unlink msync sync copy_file_range"
        ),
    ),
    ShapeRule(
        Shape.NETWORK_IO,
        native=_set(
            "recv recvfrom recvmsg send sendto sendmsg connect accept accept4 getaddrinfo SSL_read SSL_write res_query"
        ),
    ),
    ShapeRule(
        Shape.SLEEP,
        ("/tenacity/nap.py",),
        native=_set("clock_nanosleep nanosleep usleep sleep time_sleep pysleep"),
    ),
    ShapeRule(
        Shape.LOCK,
        ("/threading.py",),
        names=_set("wait wait_for acquire join __enter__ _wait_for_tstate_lock _acquire_restore"),
        native_starts=(
            *("futex", "do_futex", "lll_lock", "pthread_mutex_lock", "pthread_mutex_cond_lock", "pthread_cond_"),
            *(
                "pthread_rwlock_",
                "pthread_join",
                "pthread_clockjoin",
                "sem_",
                "PyThread_acquire_lock",
                "take_gil",
                "lock.acquire",
            ),
            *("std::condition_variable", "std::mutex", "std::thread::join"),
        ),
    ),
    ShapeRule(
        Shape.LOCK,
        (
            "/queue.py",
            "/concurrent/futures/_base.py",
            "/multiprocessing/synchronize.py",
            "/multiprocessing/connection.py",
        ),
        besides=_set("qsize empty full done running"),
    ),
    ShapeRule(Shape.LOCK, ("/filelock/", "/torch/utils/file_baton.py")),
)
"""Plain waiting: any frame further out in the same call says more."""


# ---------------------------------------------------------------------------------------------------------------------
# What blocks a thread, according to the last call from user code.
#
# Only the frames inside the innermost frame of user code are examined: the library call in which the thread is. The first
# of these that applies decides:
#
# 1. Creating or destroying a group, anywhere in the call: a barrier inside `new_group` is part of creating the group.
# 2. The innermost frame with a purpose: a collective, the loader, the compiler, an import. A lock, a socket or a GPU
#    wait inside the loader belongs to the loader; a collective inside the compiler or the loader is a collective.
# 3. The innermost frame that shows a means: GPU wait, subprocess, file, network. A lock inside it belongs to it.
# 4. The innermost plain wait: file or network system calls, sleep, lock.
# 5. Importing, if the user's frame is a module that is being imported; else Python, if any Python runs.
#
# The user's frame itself is not interpreted: `event.wait()` in `upload` is a lock, and `find_user_frame` gives
# `upload`.

__all__ = ["Shape", "find_last_call", "find_shape", "find_user_frame"]

_FIRST = frozenset({Shape.COMM_INIT, Shape.DESTROY})


def find_shape(stack: Stack) -> Shape:
    call = find_last_call(stack)
    purposes = _shapes(call, PURPOSES)
    for shapes in ([s for s in purposes if s in _FIRST], purposes, _shapes(call, MEANS), _shapes(call, WAITS)):
        if shapes:
            return shapes[0]
    if _is_importing(stack[len(call) :]):
        return Shape.IMPORT
    return Shape.PYTHON if any(is_python(f) or _is_interpreter(f) for f in stack) else Shape.UNKNOWN


def find_last_call(stack: Stack) -> Stack:
    """The frames inside the innermost frame of user code: the library call in which the thread is. All, without user code."""
    depth = next((depth for depth, frame in enumerate(stack) if is_user_code(frame)), len(stack))
    return stack[:depth]


def find_user_frame(stack: Stack) -> Frame | None:
    """The innermost frame of user code: the place to look at."""
    return next((frame for frame in stack if is_user_code(frame)), None)


def _shapes(call: Stack, rules: tuple[ShapeRule, ...]) -> list[Shape]:
    found = (find_rule(frame, rules) for frame in call)
    return [rule.shape for rule in found if rule]


def _is_importing(rest: Stack) -> bool:
    """The innermost frame of user code is a module's body, called by the import system."""
    return len(rest) > 1 and rest[0].name == "<module>" and is_library(rest[1]) and "importlib." in place_of(rest[1])


def _is_interpreter(frame: Frame) -> bool:
    return frame.name.startswith(("_PyEval_EvalFrame", "PyEval_EvalCode"))
