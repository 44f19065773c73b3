"""The paper's printed numbers, the runs that answer them, and what the two say beside each other."""
