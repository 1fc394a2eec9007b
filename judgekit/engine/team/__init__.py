"""The shared judge of a team: the same judge behind TCP, with tokens, its own keys and the team's ledger."""
