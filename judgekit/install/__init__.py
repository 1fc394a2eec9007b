"""Writes judgekit into other programs' settings, and takes it out again without a trace."""
