"""The text format of a vocabulary, which tiktoken downloads."""

import base64
from collections.abc import Sequence


def to_text(vocabulary: Sequence[bytes]) -> bytes:
    """Return the file that tiktoken would download: one token a line in base64, with its rank."""
    return b"".join(b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(vocabulary))
