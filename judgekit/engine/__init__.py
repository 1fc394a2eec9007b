"""The warm process: it keeps a judge ready, so that callers don't wait for one to start."""
