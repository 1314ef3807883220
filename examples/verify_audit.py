"""Verify a record with nothing but this file, as the page that describes the format (specs/audit-format.md) says.

    python verify_audit.py record.jsonl "$(cat audit.key.pub)"

It imports nothing of the packages; `cryptography` checks the signatures. The verifier key is the public half of the
key, kept elsewhere. `amplifier-hooks audit verify` tells more; what is unbroken, both call so.

Prints:

    usage: verify_audit.py RECORD VERIFIER-KEY
"""

import base64
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT = "amplifier-hooks/audit/1"
TEXTS = ("log", "segment", "previous", "tenant", "session", "sdk", "key")


def verify(record: Path, public: bytes) -> str:
    """`unbroken`, or the first thing that is wrong or missing; `public` is the key that must have signed the record."""
    others = record.parent.glob(f"{record.stem}.{'[0-9]' * 6}*{record.suffix}")
    files = [record, *sorted(others, key=lambda path: int(path.stem.rpartition(".")[2]))]
    log, seq, head, doubts = "", 0, b"", list[str]()
    for number, file in enumerate(files, 1):
        where, kinds = f"{file.name}, line 1", ["", ""]
        try:
            opening = first(file)
            left = first(files[number]).get("left", {}) if number < len(files) else {}
            origin = f"{FORMAT}/{opening['log']}/{number}"
            require(opening["segment"] == number and opening["log"] == (log or opening["log"]), "is not this segment")
            require(opening["previous"] == head.hex(), "does not follow the segment before")
            texts = [str(opening[name]).encode() for name in TEXTS]
            told = b"".join(len(text).to_bytes(8, "big") + text for text in texts)
            log, head = opening["log"], sha256(f"{FORMAT}/segment\n".encode() + told).digest()
            for place, line in enumerate(lines(file, left.get("bytes")), 1):
                where, before, body = f"{file.name}, line {place}", head, line[:-73]
                head, seq = sha256(f"{FORMAT}\n".encode() + head + body).digest(), seq + 1
                require(line == body + b',"h":"%b"}\n' % head.hex().encode(), "is not what was written here")
                entry = json.loads(line)
                kinds = [kinds[1], entry["kind"]]
                require(entry["seq"] == seq, "has another number than is due")
                require((kinds[1] == "segment.opened") == (place == 1), "opens a segment, or does not")
                if kinds[1] == "log.checkpoint":
                    stated = f"{origin}\n{seq - 1}\n{base64.b64encode(before).decode()}\n"
                    check(body, entry, origin, stated, public)
                if kinds[1] == "log.recovered":
                    doubts.append(f"repaired tail: {where}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidSignature) as problem:
            return f"wrong: {where}: {str(problem) or 'the signature is not by this key'}"
        closing = "log.closed" if number == len(files) else "segment.closed"
        if left or kinds != [closing, "log.checkpoint"]:
            doubts.append(f"not closed: {file.name}, behind line {seq}: {left or 'lines may be missing'}")
    return doubts[0] if doubts else "unbroken"


def lines(file: Path, count: int | None) -> Iterator[bytes]:
    """The lines in the first `count` bytes of a file, or in all of it; never more than one line at once."""
    with file.open("rb") as opened:
        while (count is None or opened.tell() < count) and (line := opened.readline(65_536)):
            yield line


def first(file: Path) -> dict[str, Any]:
    """The facts of the first line."""
    facts: dict[str, Any] = json.loads(next(lines(file, None), b""))["facts"]
    return facts


def check(body: bytes, entry: dict[str, Any], origin: str, stated: str, public: bytes) -> None:
    """Raise unless this is the checkpoint that has to stand here, written as it has to be, and signed by this key."""
    key_id = sha256(origin.encode() + b"\n\x01" + public).digest()[:4]
    signature = base64.b64decode(entry["facts"]["note"].split()[-1])[4:]
    Ed25519PublicKey.from_public_bytes(public).verify(signature, stated.encode())
    note = f"{stated}\n\u2014 {origin} {base64.b64encode(key_id + signature).decode()}\n"
    whole = {"seq": entry["seq"], "kind": "log.checkpoint", "facts": {"note": note}}
    require(json.dumps(whole, separators=(",", ":")).encode()[:-1] == body, "is not written in the one way there is")


def require(condition: bool, problem: str) -> None:  # noqa: FBT001
    """Raise if it is not so."""
    if not condition:
        raise ValueError(problem)


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004
        sys.exit(print("usage: verify_audit.py RECORD VERIFIER-KEY"))
    verdict = verify(Path(sys.argv[1]), base64.b64decode(sys.argv[2].split("+", 2)[2])[1:])
    print(verdict)
    sys.exit(verdict != "unbroken")
