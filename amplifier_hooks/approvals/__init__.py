"""Approvals as values: an answer's label or a request's digest comes in, its meaning goes out."""

from amplifier_hooks.approvals.claims import Claims, answered_digest
from amplifier_hooks.approvals.grants import grant_keys, granted, standing
from amplifier_hooks.approvals.labels import KNOWN_LABELS, as_options, offered, with_refusal

__all__ = [
    "KNOWN_LABELS",
    "Claims",
    "answered_digest",
    "as_options",
    "grant_keys",
    "granted",
    "offered",
    "standing",
    "with_refusal",
]
