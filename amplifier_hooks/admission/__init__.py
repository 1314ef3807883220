"""A hook's question comes in; a rule, a grant or a person answers it, and a decision goes out."""
