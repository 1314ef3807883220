"""The texts of hooks come in; messages in the agent's context, within size and token budgets, go out."""
