"""Every file and folder that judgekit keeps for a user, outside of projects.

The hook's path imports this: nothing but the standard library, and no pathlib.
"""

from __future__ import annotations

import os

from judgekit import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Place:
    """A file or folder in one of the three homes: what the user wrote, or can be made again, or cannot."""

    __slots__ = ("about", "home", "name")

    def __init__(self, home: Callable[[], str], name: str, about: str) -> None:
        self.home = home
        self.name = name
        self.about = about

    def path(self, *below: str) -> str:
        """Return its absolute path, or that of something below it."""
        return os.path.join(self.home(), self.name, *below)

    def make(self, *below: str) -> str:
        """Return the path of a folder, made for its owner alone if need be; raises `OSError`."""
        return environment.private_folder(self.path(*below))


_config = environment.config_home
_cache = environment.cache_home
_state = environment.state_home

SETTINGS = Place(_config, "config.yaml", "your settings")
RUBRICS = Place(_config, "rubrics", "your rubrics")
PROVIDERS = Place(_config, "providers", "your profiles of providers")
STORE_PROFILES = Place(_config, "retrieval", "your profiles of stores")
CALIBRATIONS = Place(_config, "calibrations", "what was learned from labels")
ACCEPTED = Place(_config, "accepted.json", "calibrations of projects that you accepted")
NOISE = Place(_config, "noise", "how far the scores of a judge move")
LABEL_SECRET = Place(_config, "label-secret", "the secret behind the labels of a prompt")
STATE_KEY = Place(_config, "state-key", "the key that seals results")

REPLIES = Place(_cache, "replies.sqlite", "replies of models, for 30 days")
INDEXES = Place(_cache, "index", "search indexes, one folder for each store")
HOOK_SETTINGS = Place(_cache, "settings", "settings as the hook reads them")
NOTICES = Place(_cache, "notices", "which notices the hook gave")
STOP_SESSIONS = Place(_cache, "stop", "what was judged as an agent stopped")
GATE_RULES = Place(_cache, "gate", "which files of a repository the gate judges")
ADDRESSES = Place(_cache, "addresses", "what servers of models were seen to do")
PROXIES = Place(_cache, "proxies", "what proxies say of their models")
RESULTS = Place(_cache, "results", "locks of runs that write results")
MODELS = Place(_cache, "models", "models that run on this machine")
MODEL_LOG = Place(_cache, os.path.join("logs", "local-model.log"), "what they print")
ENGINES = Place(_cache, "run", "the addresses of running engines")
DEMO = Place(_cache, "demo", "the sample of `judgekit demo`")

LEDGER = Place(_state, "ledger", "the ledger: verdicts, and what people said of them")
NOTIFIED = Place(_state, "notified", "which verdicts `escalate.notify` was told of")
INSTALLED = Place(_state, "installed.json", "files of other programs before judgekit changed them")
INJECTIONS = Place(_state, "injections.jsonl", "the hook's log, if you switched it on")
SESSIONS = Place(_state, "sessions", "what each session was shown")
RELEVANCE = Place(_state, "relevance", "what you said of memories that the hook added")
SERVER = Place(_state, "serve", "tokens and log of a shared judge")

PLACES = tuple(place for place in globals().values() if isinstance(place, Place))
