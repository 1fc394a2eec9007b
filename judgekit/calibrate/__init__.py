"""Learns from labels which opinions of which tier may be final at a promised error rate."""
