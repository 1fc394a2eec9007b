"""Issues on GitHub for verdicts that a person must settle: one a task, opened and updated through `gh`."""
