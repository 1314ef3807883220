"""A question becomes an answer: by a rule, by a standing grant, or by a person, and silence has a name.

options     labels, and what they mean
rules       what the host's rules make of an outcome
approver    asks on behalf of one session, and holds the backend to the deadline
"""

from amplifier_hooks.effects.approval.approver import Approval, Approver
from amplifier_hooks.effects.approval.options import as_options
from amplifier_hooks.effects.approval.rules import Rules

__all__ = ["Approval", "Approver", "Rules", "as_options"]
