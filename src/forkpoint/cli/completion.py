"""`forkpoint completion`: prints shell code that completes commands and options."""

from argparse import ArgumentParser, Namespace

from forkpoint.cli.options import Command
from forkpoint.cli.output import needing_extra

_DESCRIPTION = """\
Print the code that lets a shell complete forkpoint's commands and options, made
by argcomplete (pip install 'forkpoint[completion]').

  bash  eval "$(forkpoint completion bash)"       in ~/.bashrc
  zsh   eval "$(forkpoint completion zsh)"        in ~/.zshrc
  fish  forkpoint completion fish | source        in ~/.config/fish/config.fish
"""


def run(args: Namespace) -> int:
    with needing_extra("completion", "completion"):
        from argcomplete.shell_integration import shellcode

    print(shellcode(["forkpoint"], shell=args.shell))
    return 0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish", help="the shell")


COMMAND = Command("completion", "shell code that completes commands and options", _DESCRIPTION, _add_arguments, run)
