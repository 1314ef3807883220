"""Readers of the programs whose arguments no row of a table can describe, by the name that a row gives them."""
