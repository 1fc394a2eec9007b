"""How a request reaches a model: litellm, a command, or a recording."""
