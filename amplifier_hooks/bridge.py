"""The hook command that other agent programs run: it passes their question to the server and the answer back.

    python -I -S bridge.py SOCKET PROGRAM [deny|ask|allow]

The bridge uses the standard library only, and little of it, because it runs before every tool call. It parses nothing:
standard input goes to the server unchanged, and the server's answer goes unchanged to standard output, standard error
and the exit status. The last argument decides the call if no server answers: by default the bridge denies it, and
prints the command that starts a server.
"""

import os
import sys

__all__ = ["carry"]

WAIT = 24 * 3600.0
"""Seconds until the bridge gives up an answer. The program's own limit is shorter, and a person may take their time."""

DOWN = (
    "amplifier-hooks does not answer, so this call was not decided. Start it with: "
    "amplifier-hooks serve --programs --web --hooks amplifier-hooks.yaml\n"
)
ASKING = ("claude_code", "gemini")
"""Programs that ask their user for a hook. Codex takes such an answer for none, and goes on with the call."""
ASK = (
    '{"decision": "ask", "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask", '
    '"permissionDecisionReason": "amplifier-hooks does not answer"}}'
)


def carry(arguments: list[str]) -> int:
    """Ask the server. Return the exit status.

    Args:
        arguments: Address of the server, name of the program, and the answer at a gate when no server answers.
    """
    path, program, *rest = arguments
    question = sys.stdin.buffer.read()
    try:
        status, output, errors = ask(path, program, question)
    except (OSError, ValueError):
        return answer_without_server(program, rest[0] if rest else "deny")
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(errors)
    return status


def ask(path: str, program: str, question: bytes) -> tuple[int, bytes, bytes]:
    """Send one request to the server's socket. Raises `OSError` without an answer, `ValueError` for an invalid one."""
    from _socket import AF_UNIX, SOCK_STREAM, socket  # `socket` is built on this module, and takes longer to load

    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(WAIT)
    connection.connect(path)
    head = f"POST /v1/bridge/{program} HTTP/1.1\r\nhost: bridge\r\nconnection: close\r\n"
    hops = os.environ.get("AMPLIFIER_HOOKS_HOPS", "")
    if hops.isascii() and hops.isdigit():  # a hook's command asks: the server counts the hops
        head += f"x-amplifier-hooks-hops: {hops}\r\n"
    connection.sendall(f"{head}content-length: {len(question)}\r\n\r\n".encode("ascii") + question)
    answer = b""
    while part := connection.recv(65536):
        answer += part
    connection.close()
    top, end, body = answer.partition(b"\r\n\r\n")
    first, *lines = top.split(b"\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in lines if b": " in line)
    if not end or first.split()[1] != b"200" or len(body) != int(fields[b"content-length"]):
        raise ValueError(first)
    cut = int(fields[b"x-output-length"])
    return int(fields[b"x-exit-status"]), body[:cut], body[cut:]


def answer_without_server(program: str, policy: str) -> int:
    """Return the exit status for a call that no server decides, and print the reason."""
    if policy == "allow":
        return 0
    if policy == "ask" and program in ASKING:
        os.write(1, ASK.encode("ascii"))
        return 0
    os.write(2, DOWN.encode("ascii"))
    return 2


if __name__ == "__main__":
    sys.exit(carry(sys.argv[1:]))
