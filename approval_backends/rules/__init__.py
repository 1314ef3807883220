"""Rules from a file: they allow, ask or deny before any person is asked.

    file         YAML with its line numbers; every mistake is refused, with where it stands and what to write instead
    model        what stands in a file, checked
    subject      one call, as rules look at it
    values       arguments · `commands` shell commands · `paths` files and folders
    policy       `Rules`: judge, explain, reload

Every rule that matches speaks, wherever it stands in the file: any deny is a denial, else any ask is a question, else
an allow answers the questions of the hooks it names. A condition that cannot be decided (a pattern that takes too long,
a path nobody can resolve, a command with shell syntax in it) counts as met for deny and ask, and as not met for allow.
"""

from approval_backends.rules.policy import Considered, Rules, RulesExplanation

__all__ = ["Considered", "Rules", "RulesExplanation"]
