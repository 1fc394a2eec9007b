-- The tables of an index. A change of these needs a new `VERSION` of the file, in index_file.py.

CREATE TABLE about (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- What is looked at before every query: folders (`x`, `y`, `z` are ctime, mtime, inode) and the store's own files (as
-- in `file`). What was read too soon after its last change is not `sure`.
CREATE TABLE watch (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, folder INTEGER NOT NULL,
        x INTEGER, y INTEGER, z INTEGER, sure INTEGER NOT NULL);

-- One row a file, `pending` until it is read. `inode` is mixed with the ctime, see `look`. `live` is 1 when it gave an
-- entry; `read` is when, in nanoseconds; `digest` is of all that was found; `status` says why an entry is not in force.
-- `language` is that of its stop words, empty when it has hardly any of those that are known. `sections` is how many it
-- has in the table `section`.
CREATE TABLE file (
        number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, folder INTEGER NOT NULL,
        pending INTEGER NOT NULL DEFAULT 1, size INTEGER, mtime INTEGER, inode INTEGER,
        read INTEGER NOT NULL DEFAULT 0, live INTEGER NOT NULL DEFAULT 0, digest INTEGER,
        problem TEXT, id TEXT, title TEXT, category TEXT, tags TEXT, status TEXT,
        updated REAL, language TEXT NOT NULL DEFAULT '',
        sections INTEGER NOT NULL DEFAULT 0);
CREATE INDEX file_folder ON file (folder);
CREATE INDEX file_pending ON file (number) WHERE pending;
CREATE INDEX file_problem ON file (path) WHERE problem IS NOT NULL;

-- What is wrong beside single files, and what of a sound file is not searched; `place` is a folder or a file.
CREATE TABLE note (place TEXT NOT NULL, text TEXT NOT NULL);

-- The sections of long entries, read for the few that lead: the number of the `line` in the file where one begins (0 if
-- its lines aren't those of the file), which characters of the body's stems are its own, how many `words` these are, its
-- `heading` with the ones above, and the stems of these. A heading that is NULL is the one before. Sections may overlap.
CREATE TABLE section (
        file INTEGER NOT NULL, place INTEGER NOT NULL, line INTEGER NOT NULL, start INTEGER NOT NULL,
        end INTEGER NOT NULL, words INTEGER NOT NULL, heading TEXT, titles TEXT,
        PRIMARY KEY (file, place)) WITHOUT ROWID;

-- In how many entries each stem of the table `text` occurs; the row with an empty term counts all words.
CREATE TABLE term (term TEXT PRIMARY KEY, entries INTEGER NOT NULL) WITHOUT ROWID;

-- It holds stems: all the rest was done before. So whatever stands between two spaces is one word here.
CREATE VIRTUAL TABLE text
        USING fts5(title, tags, body, parts, tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'");
