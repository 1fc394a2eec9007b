"""Model replies: their form, and how to read the answer out of one."""
