"""A text comes in; its number of tokens for a model goes out, offline, and exact where the tokenizer is public."""
