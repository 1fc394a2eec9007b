"""A judge made of language models, for content that a person or an agent is about to trust."""

__version__ = "0.1.0"
