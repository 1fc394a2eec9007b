-- needs: 1
-- (the oldest schema number whose judgekit still works after this step)

-- The ledger of a team: each line as it was written. `who` is empty for lines that nobody signs.
CREATE TABLE judgekit.line (
  id text NOT NULL,
  who text NOT NULL,
  project text NOT NULL,
  schema text NOT NULL,
  at timestamptz NOT NULL,
  holder text NOT NULL,        -- of the token that brought it; empty for the command line
  provisional boolean NOT NULL, -- a verdict as it was told, until its client sends its own line of it
  line text NOT NULL,
  PRIMARY KEY (id, who)
);
CREATE INDEX line_at ON judgekit.line (at, id, who);

CREATE TABLE judgekit.token (
  name text PRIMARY KEY,
  sha256 text NOT NULL UNIQUE,
  created timestamptz NOT NULL
);

-- Processes that serve; one that was not seen for some seconds is dead.
CREATE TABLE judgekit.replica (
  id text PRIMARY KEY,
  schema integer NOT NULL,     -- the schema number that its judgekit was written for
  seen timestamptz NOT NULL
);

-- Requests that are judged now, or were answered lately. One attempt at a time has the request.
CREATE TABLE judgekit.judging (
  who text NOT NULL,
  key text NOT NULL,
  body text NOT NULL,          -- SHA-256 of the request
  attempt text NOT NULL,
  replica text NOT NULL,
  until timestamptz NOT NULL,  -- the attempt's end at the latest; of an answered request, when that was
  reserved_usd double precision NOT NULL,
  answer text,
  PRIMARY KEY (who, key)
);
CREATE INDEX judging_until ON judgekit.judging (until);
CREATE INDEX judging_open ON judgekit.judging (replica) WHERE answer IS NULL;

CREATE TABLE judgekit.spend (
  day date PRIMARY KEY,        -- in UTC
  usd double precision NOT NULL
);

CREATE TABLE judgekit.reply (
  key text PRIMARY KEY,        -- a hash of what was asked
  at timestamptz NOT NULL,
  bytes integer NOT NULL,
  reply text NOT NULL
);
CREATE INDEX reply_at ON judgekit.reply (at, key);
