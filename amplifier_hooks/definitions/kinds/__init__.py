"""An event comes in; the answer of a Python function, a command, a webhook or an agent goes out."""
