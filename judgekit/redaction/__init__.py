"""Keeps secrets on the machine: finds them in texts before these are sent, and leaves them out."""
