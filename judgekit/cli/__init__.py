"""The command line: a module for related commands."""
