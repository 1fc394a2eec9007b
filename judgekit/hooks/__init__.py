"""The entry points that other programs call: clients' prompt hooks and git's pre-push hook."""
