"""A rules file and a call come in; allow, ask or deny goes out, before any person is asked.

Every rule that matches speaks, wherever it stands in the file: any deny is a denial, else any ask is a question, else
an allow answers the questions of the hooks it names. A condition that cannot be decided (a pattern that takes too long,
a path that cannot be resolved, a command with shell syntax in it) counts as met for deny and ask, and as not met for
allow.
"""
