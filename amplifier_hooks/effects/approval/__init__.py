"""A question becomes an answer: by a rule, by a standing grant, or by a person, and silence has a name.

rules       what the host's rules make of an outcome
request     one request for all asking hooks, with an id that survives a restart
approval    what became of a request; as the record and as events have it
grants      standing answers in memory
lease       a session's hold on a backend that outlives it
upstream    any object with the four-argument method as a backend
approver    asks on behalf of one session, and holds the backend to the deadline
"""

from amplifier_hooks.effects.approval.approval import Approval
from amplifier_hooks.effects.approval.approver import Approver
from amplifier_hooks.effects.approval.grants import SessionGrants
from amplifier_hooks.effects.approval.lease import Lease
from amplifier_hooks.effects.approval.request import Origin
from amplifier_hooks.effects.approval.rules import Rules
from amplifier_hooks.effects.approval.upstream import UpstreamApprovals, as_backend

__all__ = ["Approval", "Approver", "Lease", "Origin", "Rules", "SessionGrants", "UpstreamApprovals", "as_backend"]
