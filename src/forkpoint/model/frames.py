"""Classifies stack frames: Python or native, user code or library.

py-spy shortens paths to the package (`torch/cuda/__init__.py`, `threading.py`, `train.py`), so a relative path is
classified by its first part. An installed package that is not listed counts as user code: trainers are often installed,
and if ranks diverge inside one, that is the place to show.
"""

import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import dropwhile

from forkpoint.model.op import Frame, Stack

# Standard modules whose names people also give to their own scripts: a bare file of that name counts as user code.
_ALSO_SCRIPTS = frozenset({"code", "profile", "test", "this", "trace"})
_PACKAGE_NAMES = """
    torch torchvision torchaudio torchdata functorch triton torch_npu apex transformer_engine flash_attn xformers nvidia
    numpy scipy sympy pandas pyarrow PIL cv2 h5py zarr numba safetensors datasets tokenizers webdataset
    horovod ray monarch forkpoint wandb mlflow tensorboard
    fsspec s3fs gcsfs smart_open boto3 botocore s3transfer urllib3 requests httpx httpcore aiohttp grpc google azure
    huggingface_hub paramiko redis filelock tenacity backoff tqdm hydra absl click typer fire typing_extensions
"""
_PACKAGES = frozenset(_PACKAGE_NAMES.split())
_LIBRARIES = (sys.stdlib_module_names - _ALSO_SCRIPTS) | _PACKAGES
_COMMUNICATION = (
    "/deepspeed/comm/",
    "/accelerate/utils/operations.py",
    *(f"/src/forkpoint/{part}/" for part in ("consensus", "controller", "guard", "rehearse")),
)
"""Wrappers around torch.distributed; forkpoint's own also when run from a checkout."""
_INSTALLED = re.compile(r"/(?:site|dist)-packages/([^/]{1,100})")
_STANDARD = re.compile(r"/lib(?:64)?/python3[0-9.]{0,4}t?/|/torchinductor_|/torch_compile_debug/")
_OWN_LIBRARY = re.compile(r"/lib(?:64)?/python3[0-9.]{0,4}t?/(?!(?:site|dist)-packages/)")
_PYTHON = (".py", ".pyc", ".pyx")
_COMPILED = re.compile(r"\.(?:c|cc|cpp|cxx|cu|h|hh|hpp|cuh|inl|inc|tcc|S|s|rs|go|f90|m|mm)$")
_RUNTIME = re.compile(r"(?:lib)?python[0-9.]|libc[.-]|libpthread[.-]|ld-linux")
_THREADS = "/threading.py"
_NOTEBOOK = "<ipython-input"
_RUN_AT_START = ("/sitecustomize.py", "/usercustomize.py")
"""Python runs these before any program; monitoring tools hook in there."""


def place_of(frame: Frame) -> str:
    """Its file with forward slashes and a leading one, so that searches for `/torch/cuda/` or `/socket.py` match."""
    return _place(frame.filename)


def _place(filename: str) -> str:
    return "/" + filename.replace("\\", "/").removeprefix("/")


def find_parting(one: Stack | None, other: Stack | None) -> tuple[int, Frame, Frame] | None:
    """Where two call paths part, from the script inwards: how many of the user's frames they share, and the first that differ."""
    pairs = enumerate(zip(reversed(user_frames(one)), reversed(user_frames(other)), strict=False))
    return next(((shared, a, b) for shared, (a, b) in pairs if a != b), None)


def same_function(one: Frame, other: Frame) -> bool:
    return (one.filename, one.name) == (other.filename, other.name)


def is_python(frame: Frame) -> bool:
    """Not native: native frames name a source in another language, or no line. A script may lack `.py` (`bin/torchrun`)."""
    return frame.filename.endswith(_PYTHON) or (frame.line > 0 and not _COMPILED.search(frame.filename))


def without_runtime(stack: Stack) -> Stack:
    """Without innermost native frames of the interpreter and the C library: they say how a call waits, not which it is. All, if
    there are no others.
    """
    calls = tuple(dropwhile(lambda f: not is_python(f) and bool(_RUNTIME.match(short_name(f.filename))), stack))
    return calls or stack


def is_library(frame: Frame) -> bool:
    """From Python, torch or another well-known package. Native frames and frames without a file count, too."""
    return not is_python(frame) or _is_library_file(frame.filename)


@lru_cache(maxsize=4096)
def _is_library_file(filename: str) -> bool:
    generated = filename.startswith("<") and not filename.startswith(_NOTEBOOK)
    if not filename or generated:
        return True
    place = _place(filename)
    if any(part in place for part in _COMMUNICATION) or place.endswith(_RUN_AT_START):
        return True
    installed = _INSTALLED.search(place)
    if installed:
        return installed[1].removesuffix(".py") in _PACKAGES
    if _STANDARD.search(place):
        return True
    first = filename.partition("/")[0].removesuffix(".py")
    return not filename.startswith("/") and first in _LIBRARIES


def installed_path(frame: Frame) -> str | None:
    """`lightning/trainer.py` of an installed package; None for other files."""
    found = _INSTALLED.search(place := place_of(frame))
    return place[found.start(1) :] if found else None


def is_standard(frame: Frame) -> bool:
    """From Python's standard library."""
    if frame.filename.startswith("/"):
        return bool(_OWN_LIBRARY.search(frame.filename))
    return frame.filename.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names - _ALSO_SCRIPTS


def is_user_code(frame: Frame) -> bool:
    return not is_library(frame)


def user_frames(stack: Stack | None) -> tuple[Frame, ...]:
    """The frames of user code, innermost first."""
    return tuple(frame for frame in stack or () if is_user_code(frame))


def line_and_name(frame: Frame) -> str:
    """`train.py:40 step`; a function without a file, which is written in C, by its name alone."""
    return f"{short_name(frame.filename)}:{frame.line} {frame.name}" if frame.filename else frame.name


def user_place(stack: Stack | None) -> str | None:
    """`train.py:40 step`: the innermost frame of user code."""
    return next(map(line_and_name, user_frames(stack)), None)


Lines = tuple[tuple[str, int], ...]
"""File and line of the program's frames, innermost first. Without folders: tracebacks give whole paths, py-spy short ones."""


def program_lines(stack: Stack | None) -> Lines:
    """Up to the body of the script: what started it (a launcher, a debugger) is in live stacks, and not in tracebacks."""
    return tuple((short_name(frame.filename), frame.line) for frame in up_to_script(user_frames(stack)))


def up_to_script(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    body = next((n for n, frame in enumerate(frames) if frame.name == "<module>"), len(frames))
    return frames[: body + 1]


_CALLS = ("distributed_c10d.py", "c10d_logger.py")
"""The functions of torch.distributed, and the wrapper that torch puts around each of them."""


def outside_c10d(stack: Stack) -> Stack:
    """Without the innermost frames that are torch.distributed's own: what the program calls, and the rendezvous that this makes."""
    own = (*_CALLS, "rendezvous.py")
    return tuple(dropwhile(lambda frame: not is_python(frame) or short_name(frame.filename) in own, stack))


def is_made_by_torch(stack: Stack) -> bool:
    """The call was made by torch for a whole model (DDP's buffers, a wrapped state), not by the program."""
    caller = next((f for f in stack if is_python(f) and not f.filename.endswith(_CALLS)), None)
    return caller is not None and "/torch/" in place_of(caller)


def in_two_threads(stacks: Iterable[Stack | None]) -> bool:
    """Two threads may call in any order, so the order of a rank's calls then says nothing about its program.

    Python threads start in `threading.py`. Autograd's do not, but the thread that called `backward` waits for them. A call
    without a stack was made by C++ (DDP's reducer), not by a thread that Python code started.
    """
    return len({_thread_entry(stack or ()) for stack in stacks}) > 1


def in_side_thread(stack: Stack) -> bool:
    """Of a thread that Python code started. An exception in such a thread ends the thread, not the program."""
    return bool(stack) and place_of(stack[-1]).endswith(_THREADS)


def _thread_entry(stack: Stack) -> tuple[str, str] | None:
    """The function that the thread runs; None: the main thread, as far as the stack shows."""
    if not in_side_thread(stack):
        return None
    return next(((f.filename, f.name) for f in reversed(stack) if not place_of(f).endswith(_THREADS)), None)


def short_name(filename: str) -> str:
    return filename.rsplit("/", 1)[-1]


def bare_name(frame: Frame) -> str:
    """The unqualified function name, as faulthandler prints it: `Queue.get` is `get`. Native names lose the C library's
    decorations: `__GI___poll` is `poll`.
    """
    if is_python(frame):
        return frame.name.rpartition(".")[2]
    name = frame.name.partition("@")[0].lstrip("_")
    for prefix in ("GI_", "libc_", "new_"):
        name = name.removeprefix(prefix).lstrip("_")
    return name.removesuffix("64")
