"""What a user or a project sets, and the ground that reading it stands on: YAML, names, patterns."""
