"""What a model said: the form of replies, and how an answer is read out of one."""
