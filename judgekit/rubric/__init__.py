"""Where rubrics are made: begun, checked, tried on their cases, and compared with one another."""
