"""A hook's question comes in; a rule, a grant or a person answers it, and a decision goes out."""

from amplifier_hooks.admission.apply_rules import Rules
from amplifier_hooks.admission.approval_result import Approval
from amplifier_hooks.admission.ask_approver import Approver
from amplifier_hooks.admission.backend_lease import Lease
from amplifier_hooks.admission.build_request import Origin
from amplifier_hooks.admission.session_grants import SessionGrants
from amplifier_hooks.admission.upstream_backend import UpstreamApprovals, as_backend

__all__ = ["Approval", "Approver", "Lease", "Origin", "Rules", "SessionGrants", "UpstreamApprovals", "as_backend"]
