"""Completion of command lines in bash and zsh, made from the declarations of the commands.

`vedur completion bash` prints a script; `docs/how-to/operate.md` says where to put it. INI is
completed from files, then the command, then its options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from vedur.cli.commands import COMMANDS
from vedur.cli.grammar import GENERAL, SIGNALS, Option
from vedur.errors import UsageError

SHELLS = ("bash", "zsh")

USAGE = """\
usage: vedur completion bash|zsh

Prints a script that completes ini files, commands and their options.

Examples:
  # for everybody who uses bash
  vedur completion bash > /etc/bash_completion.d/vedur
  # for zsh
  vedur completion zsh > "${fpath[1]}/_vedur"
  # for this shell only
  source <(vedur completion bash)
"""

_SCRIPT = """\
# Completion of vedur and londiste3. Put it where bash-completion looks, or source it.
_vedur_options() {{
    case "$1" in
{cases}
    *) echo "{general}" ;;
    esac
}}

_vedur() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" word skip="" words=() at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${{COMP_WORDS[at]}}"
        if [[ -n "$skip" ]]; then
            # bash takes the = of --key=value for a word of its own
            [[ "$word" == "=" ]] || skip=""
            continue
        fi
        case "$word" in
        {valued}) skip=1 ;;
        -* | =) ;;
        *) words+=("$word") ;;
        esac
    done
    if [[ -n "$skip" ]]; then
        [[ "$cur" == "=" ]] && cur=""
        COMPREPLY=($(compgen -f -- "$cur"))
    elif [[ "$cur" == -* ]]; then
        COMPREPLY=($(compgen -W "$(_vedur_options "${{words[@]:1:1}}")" -- "$cur"))
    elif [[ ${{#words[@]}} -eq 0 ]]; then
        COMPREPLY=($(compgen -W "{first}" -- "$cur") $(compgen -f -X '!*.ini' -- "$cur")
            $(compgen -d -S / -- "$cur"))
    elif [[ ${{#words[@]}} -eq 1 ]]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$cur"))
    elif [[ "${{words[@]:1:1}}" == "execute" ]]; then
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}}
complete -o filenames -F _vedur vedur londiste3
"""
_ZSH = "#compdef vedur londiste3\nautoload -U +X bashcompinit && bashcompinit\n"


def main(arguments: Sequence[str]) -> int:
    """Print the completion script of the shell named in `argv`; returns the exit code."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(USAGE)
        return 0
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        raise UsageError(f"completion needs the name of a shell: {' or '.join(SHELLS)}")
    sys.stdout.write(script(arguments[0]))
    return 0


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    general = (*GENERAL, *SIGNALS)
    every = [*general, *(item for command in COMMANDS for item in command.options)]
    valued = sorted({name for item in every if item.metavar for name in item.names})
    text = _SCRIPT.format(
        cases="\n".join(
            f'    {command.name}) echo "{_names((*command.options, *general))}" ;;'
            for command in COMMANDS
        ),
        general=_names(general),
        valued=" | ".join(valued),
        first="ticker demo completion",
        commands=" ".join(command.name for command in COMMANDS),
    )
    return _ZSH + text if shell == "zsh" else text


def _names(options: Sequence[Option]) -> str:
    return " ".join(name for item in options for name in item.names)
